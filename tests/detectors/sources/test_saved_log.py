"""A saved kernel log, in each format that tools print."""

# ruff: noqa: E501  the lines of logs are kept whole

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors.sources.saved_log import SINCE_BOOT, read_saved, saved_line

XID = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
AT_BOOT = datetime(1970, 1, 1, 1, 23, 20, 500000, tzinfo=UTC)
LONG = (
    "NVRM: The NVIDIA GPU 0000:b3:00.0",
    "NVRM: (PCI ID: 10de:26b5) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
)


@pytest.mark.parametrize(
    ("line", "at"),
    [
        (f"3,1001,5000500000,-;{XID}", AT_BOOT),
        (f"<3>[ 5000.500000] {XID}", AT_BOOT),
        (f"[ 5000.500000] {XID}", AT_BOOT),
        (f"kern  :err   : [ 5000.500000] {XID}", AT_BOOT),
        (f"[Thu Sep 19 02:29:46 2024] {XID}", datetime(2024, 9, 19, 2, 29, 46, tzinfo=UTC)),
        (f"kern  :err   : [Thu Sep 19 02:29:46 2024] {XID}", datetime(2024, 9, 19, 2, 29, 46, tzinfo=UTC)),
        (f"2026-11-23T20:30:00,500000+00:00 {XID}", datetime(2026, 11, 23, 20, 30, 0, 500000, tzinfo=UTC)),
        (f"kern  :err   : 2026-11-23T21:30:00,500000+01:00 {XID}", datetime(2026, 11, 23, 20, 30, 0, 500000, tzinfo=UTC)),
        (f"Nov 23 20:30:00 node-1 kernel: {XID}", datetime(1972, 11, 23, 20, 30, tzinfo=UTC)),
        (f"Feb 29 20:30:00 node-1 kernel: [ 5000.500000] {XID}", datetime(1972, 2, 29, 20, 30, tzinfo=UTC)),
        (f"2026-11-23T20:30:00+0000 node-1 kernel: {XID}", datetime(2026, 11, 23, 20, 30, tzinfo=UTC)),
        (f"2026-11-23T20:30:00.123456+00:00 node-1 kernel: [    5.0] {XID}", datetime(2026, 11, 23, 20, 30, 0, 123456, tzinfo=UTC)),
        (json.dumps({"MESSAGE": XID, "_TRANSPORT": "kernel", "__REALTIME_TIMESTAMP": "1795465800000000"}), datetime(2026, 11, 23, 20, 30, tzinfo=UTC)),
        (f"\x1b[32m[ 5000.500000] \x1b[0m\x1b[31m{XID}\x1b[0m", AT_BOOT),
        (f"[ 5000.500000] [ T1234] {XID}", AT_BOOT),
        (f"[ 5000.500000][    C3] {XID}", AT_BOOT),
        (f"[ 5000.500000 <    0.000012>] {XID}", AT_BOOT),
        (f"[  +0.000012] {XID}", None),
        (f"[Nov23 20:30] {XID}", None),
        (f"[ 5000.500000] node-1 kernel: {XID}", AT_BOOT),
        (f"[ 5000.500000 <    0.000012 >] node-1 kernel: {XID}", AT_BOOT),
        (f"[ 5000.500000 <    0.000012*>] node-1 kernel: {XID}", AT_BOOT),
        (f"[ 5000.500000                ] node-1 kernel: {XID}", AT_BOOT),
        (f"Tue 2026-11-24 04:30:00 +08 node-1 kernel: {XID}", datetime(2026, 11, 23, 20, 30, tzinfo=UTC)),
        (f"Tue 2026-11-24 04:30:00 CST node-1 kernel: {XID}", datetime(2026, 11, 24, 4, 30, tzinfo=UTC)),
        (json.dumps({"fac": "kern", "pri": "err", "time": 5000.5, "msg": f"{XID}\n"}), AT_BOOT),
        (f"[999999999999.0] {XID}", None),
        (json.dumps({"MESSAGE": XID, "__REALTIME_TIMESTAMP": "9" * 18}), None),
        (f"Mon 2026-11-23 20:30:00 UTC node-1 kernel: {XID}", datetime(2026, 11, 23, 20, 30, tzinfo=UTC)),
        (f"1795465800.500000 node-1 kernel: {XID}", datetime(2026, 11, 23, 20, 30, 0, 500000, tzinfo=UTC)),
        (f"Nov 23 20:30:00 kernel: {XID}", datetime(1972, 11, 23, 20, 30, tzinfo=UTC)),
        (f"2026-11-23T20:30:00+0000 kernel: {XID}", datetime(2026, 11, 23, 20, 30, tzinfo=UTC)),
        (f"[ 5000.500000] kernel: {XID}", AT_BOOT),
        (f"[Thu Sep 19 02:29:46 2024 <    0.000012>] {XID}", datetime(2024, 9, 19, 2, 29, 46, tzinfo=UTC)),
        (f"[四 9月 19 02:29:46 2024] {XID}", None),
        (f"Nov 23 2026 20:30:00 node-1 kernel: {XID}", datetime(1972, 11, 23, 20, 30, tzinfo=UTC)),
        (f"<3>1 2026-11-23T20:30:00Z node-1 kernel - - - {XID}", datetime(2026, 11, 23, 20, 30, tzinfo=UTC)),
        (f'2026-11-23T20:30:00Z node-1 kernel - - [x y="1"] {XID}', datetime(2026, 11, 23, 20, 30, tzinfo=UTC)),
        (f'<3>1 2026-11-23T20:30:00Z node-1 kernel - - [meta sequenceId="29"][x y="a\\]"] \ufeff{XID}', datetime(2026, 11, 23, 20, 30, tzinfo=UTC)),
        (json.dumps({"log": f"Nov 23 20:30:00 node-1 kernel: {XID}\n", "stream": "stdout", "time": "x"}), datetime(1972, 11, 23, 20, 30, tzinfo=UTC)),
        (json.dumps({"message": f"Nov 23 20:30:00 node-1 kernel: {XID}", "host": "node-1"}), datetime(1972, 11, 23, 20, 30, tzinfo=UTC)),
        (json.dumps({"message": XID, "_TRANSPORT": "kernel", "source_type": "journald"}), None),
        (json.dumps({"@timestamp": "x", "log": {"offset": 4711, "file": {"path": "/var/log/kern.log"}}, "message": f"Nov 23 20:30:00 node-1 kernel: {XID}"}), datetime(1972, 11, 23, 20, 30, tzinfo=UTC)),
        (f"Nov 23 20:30:00 node-1 kernel: message repeated 3 times: [ [ 5000.500000] {XID}]", datetime(1972, 11, 23, 20, 30, tzinfo=UTC)),
        (f"Nov 23 20:30:00 node-1 kernel: message repeated 2 times: [ {XID}]", datetime(1972, 11, 23, 20, 30, tzinfo=UTC)),
        (f"2026-11-23T20:30:00Z stdout F [ 5000.500000] {XID}", datetime(2026, 11, 23, 20, 30, tzinfo=UTC)),
        (f"[pod/debug/x] 2026-11-23T20:30:00Z [ 5000.500000] {XID}", datetime(2026, 11, 23, 20, 30, tzinfo=UTC)),
        (f"MESSAGE={XID}", None),
        (f"    MESSAGE={XID}", None),
        (json.dumps({"MESSAGE": list(XID.encode()), "__REALTIME_TIMESTAMP": "x"}), None),
        # NVIDIA/gpu-operator issue 610: the journal of a machine that speaks Chinese
        (f"11月 23 20:30:00 node-1 kernel: {XID}", datetime(1972, 11, 23, 20, 30, tzinfo=UTC)),
        (f"окт 23 20:30:00 node-1 kernel: {XID}", None),
        (f"févr. 23 20:30:00 node-1 kernel: [ 5000.500000] {XID}", AT_BOOT),
        # NVIDIA/open-gpu-kernel-modules issue 1118: talosctl dmesg
        (f"192.168.11.119: kern: warning: [2026-11-23T20:30:00.500000000Z]: {XID}", datetime(2026, 11, 23, 20, 30, 0, 500000, tzinfo=UTC)),
        (f"kern:     err: [2026-11-23T20:30:00.5Z]: {XID}", datetime(2026, 11, 23, 20, 30, 0, 500000, tzinfo=UTC)),
        # aws/aws-parallelcluster issue 1150: grep over several files
        (f"messages:Nov 23 20:30:00 node-1 kernel: {XID}", datetime(1972, 11, 23, 20, 30, tzinfo=UTC)),
        (f"/var/log/kern.log.1:4711:Nov 23 20:30:00 node-1 kernel: [ 5000.5] {XID}", datetime(1972, 11, 23, 20, 30, tzinfo=UTC)),
        # NVIDIA/open-gpu-kernel-modules issue 1150: the time is cut off
        (f"kernel: {XID}", None),
        (f"kernel:[ 5000.500000] {XID}", AT_BOOT),
        (XID, None),
    ],
)  # fmt: skip
def test_each_form_is_told_apart_by_itself(line: str, at: datetime | None) -> None:
    read = saved_line(f"{line}\r\n")

    assert read is not None
    assert (read.text, read.at and read.at.astimezone(UTC)) == (XID, at)


@pytest.mark.parametrize(
    "text",
    ["EDAC MC0: 1 UE memory read error", "Memory failure: 0x1: x", "XFS (sda1): x", "nvme nvme0: a b - c"],
)
def test_a_driver_is_no_host_where_dmesg_has_printed_the_time(text: str) -> None:
    read = saved_line(f"2026-11-23T20:30:00,500000+00:00 {text}")

    assert read is not None
    assert read.text == text


@pytest.mark.parametrize(
    "text",
    ["dmesg: read kernel buffer failed", "messages 12 of 30 seconds", "kern: warning: nothing in brackets"],
)
def test_a_text_that_only_begins_like_a_form_stays_whole(text: str) -> None:
    read = saved_line(f"[ 5000.500000] {text}")

    assert read is not None
    assert read.text == text


@pytest.mark.parametrize(
    "line",
    [
        f"11,1001,5000500000,-;{XID}",
        f"<11>[ 5000.500000] {XID}",
        f"user  :err   : [ 5000.500000] {XID}",
        f"Nov 23 20:30:00 node-1 sshd[4711]: {XID}",
        f"2026-11-23T20:30:00+0000 node-1 mine: {XID}",
        json.dumps({"MESSAGE": XID, "_TRANSPORT": "syslog"}),
        json.dumps({"fac": "daemon", "pri": "err", "time": 5000.5, "msg": XID}),
        json.dumps({"MESSAGE": XID, "_TRANSPORT": "kernel", "SYSLOG_FACILITY": "1"}),
        f"<11>1 2026-11-23T20:30:00Z node-1 kernel - - - {XID}",
        f"2026-11-23T20:30:00Z node-1 mine - - - {XID}",
        f'<11>1 2026-11-23T20:30:00Z node-1 kernel - - [a b="1"][c d="2"] {XID}',
        json.dumps({"log": f"Nov 23 20:30:00 node-1 sshd[4711]: {XID}\n"}),
        json.dumps({"message": XID, "_TRANSPORT": "syslog"}),
        f"Nov 23 20:30:00 node-1 sshd[4711]: message repeated 2 times: [ {XID}]",
        f"11月 23 20:30:00 node-1 mine[4711]: {XID}",
        f"192.168.11.119: user: warning: [2026-11-23T20:30:00.5Z]: {XID}",
        f"messages:Nov 23 20:30:00 node-1 mine: {XID}",
        "",
        "[    5.000000] ",
        " SUBSYSTEM=pci",
    ],
)
def test_what_a_form_shows_to_be_another_programs_does_not_count(line: str) -> None:
    read = saved_line(line)

    assert read is None


def test_what_dmesg_prints_is_no_host_behind_the_time_of_a_container() -> None:
    read = saved_line("2026-11-23T20:30:00Z [ 5000.500000] Oops: 0000 [#1] SMP NOPTI")

    assert read is not None
    assert read.text == "Oops: 0000 [#1] SMP NOPTI"


@pytest.mark.parametrize("head", ["[    5.000000] ", "Nov 23 20:30:00 node-1 kernel: ", "<3>[    5.000000] "])
def test_the_lines_of_one_record_are_put_together(head: str) -> None:
    read = list(read_saved([head + text for text in (XID, *LONG, XID)]))

    assert [line.text for line, _ in read] == [XID, "\n".join(LONG), XID]


DMESG = f"""{{
   "dmesg": [
      {{
         "pri": 6,
         "time":     0.000000,
         "msg": "Linux version 6.8.0"
      }},{{
         "pri": 3,
         "time":  5000.500000,
         "msg": "{XID}"
      }}
   ]
}}
"""
JOURNAL = f"""{{
\t"_HOSTNAME" : "node-1",
\t"MESSAGE" : "{XID}",
\t"_TRANSPORT" : "%s"
}}
"""


def test_an_object_of_several_lines_is_read_as_a_whole() -> None:
    dmesg = [(line.text, line.at) for line, _ in read_saved(DMESG.splitlines(keepends=True))]
    journal = (JOURNAL % "kernel" + JOURNAL % "syslog").splitlines(keepends=True)

    assert dmesg[-2:] == [("Linux version 6.8.0", SINCE_BOOT), (XID, AT_BOOT)]
    assert [line.text for line, _ in read_saved(journal)].count(XID) == 1


@pytest.mark.parametrize("more", [[], ["}"], ["2,", "}"], ["3,1,1,-;x"] * 20_000])
def test_an_open_brace_hides_no_line(more: list[str]) -> None:
    record = f"3,1001,5000500000,-;{XID}"

    assert [line.text for line, _ in read_saved(["{", record, *more])].count(XID) == 1
    assert [line.text for line, _ in read_saved(["{", *more, record])].count(XID) == 1


def test_a_record_that_rsyslog_wrote_as_one_line_has_its_newlines_again() -> None:
    line = f"Jun 30 11:07:05 gpu-0 kernel: [ 5000.500000] {'#012'.join(LONG)}"

    assert [record.text for record, _ in read_saved([line])] == ["\n".join(LONG)]


def test_a_message_with_newlines_in_an_export_of_the_journal_is_one_record() -> None:
    """Its length comes first, as 8 bytes, which are no text."""
    text = "\n".join(LONG)
    exported = b"_TRANSPORT=kernel\nMESSAGE\n" + struct.pack("<Q", len(text)) + text.encode() + b"\n_PID=1\n"
    lines = [*exported.decode("utf-8", "replace").splitlines(keepends=True), f"MESSAGE={XID}\n"]

    assert [line.text for line, _ in read_saved(lines)][2:] == [text, "_PID=1", XID]


def test_indented_lines_belong_to_the_record_before_them() -> None:
    """dmesg and journalctl print the further lines of a record with an indent."""
    head, *more = LONG
    read = list(read_saved([f"[ 5.318437] {head}", *(f"            {text}" for text in more), XID]))

    assert [line.text for line, _ in read] == ["\n".join(LONG), XID]


def test_an_indented_line_of_nothing_is_no_record() -> None:
    assert not list(read_saved([" SUBSYSTEM=pci", " DEVICE=+pci:0000:3b:00.0", f"   {LONG[1]}"]))


def test_lines_of_another_time_are_no_part_of_a_record() -> None:
    lines = [f"[    5.{number}] {text}" for number, text in enumerate(LONG)]

    assert [line.text for line, _ in read_saved(lines)] == list(LONG)


def test_a_line_without_a_time_has_that_of_the_line_before() -> None:
    (first, unknown), (second, known), (third, _) = read_saved([XID, f"[ 5000.500000] {XID}", XID])

    assert (unknown, known) == (False, True)

    assert [first.at, second.at, third.at] == [SINCE_BOOT, AT_BOOT, AT_BOOT]
    assert [first.sequence, second.sequence, third.sequence] == [1, 2, 3]


@given(st.text(max_size=200))
def test_no_text_ends_the_reading(text: str) -> None:
    for head in (
        "",
        "{",
        "<3>",
        "[ 1.0] ",
        "3,1,1,-;",
        "Nov 31 20:30:00 n kernel: ",
        "2026-99-99T1 n kernel: ",
    ):
        assert len([*read_saved([head + text])]) <= 1


def test_a_line_of_a_megabyte_is_read_at_once() -> None:
    for char in ("a", " ", "[", "{", "0", ",", ":"):
        assert len([*read_saved([char * 1_000_000])]) <= 1
