"""The kernel's log, from the bytes of a record to a file that replaces the device."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.rules.facts import KernelLine
from detectors.sources import kmsg
from detectors.sources.kmsg import follow, parse_record, read_device, unescape

XID = "NVRM: Xid (PCI:0000:38:00): {}, x"


class Heard:
    """A sink that records what it gets."""

    def __init__(self) -> None:
        self.lines: list[KernelLine] = []
        self.sequence = -1
        self.gaps: list[str] = []
        self.bad_lines: list[str] = []
        self.coverage: list[str] = []
        self.restarts = 0
        self.caught_up_at: list[int] = []
        self.news = asyncio.Event()

    def line(self, line: KernelLine) -> None:
        self.lines.append(line)

    def passed(self, sequence: int) -> None:
        self.sequence = sequence
        self.news.set()

    def lost(self, count: int, why: str) -> None:
        self.gaps.append(f"{count}: {why}")
        self.news.set()

    def bad(self, text: str) -> None:
        self.bad_lines.append(text)
        self.news.set()

    def restarted(self) -> int:
        self.restarts += 1
        return self.sequence

    def misplaced(self) -> None:
        self.coverage.append("misplaced")
        self.news.set()

    def covered(self) -> None:
        self.coverage.append("covered")
        self.news.set()

    def caught_up(self) -> None:
        self.caught_up_at.append(self.sequence)
        self.news.set()

    def blind(self, why: str) -> None:
        self.coverage.append(why)
        self.news.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not holds():
                self.news.clear()
                await self.news.wait()


@asynccontextmanager
async def following(path: Path, after: int = -1) -> AsyncIterator[Heard]:
    heard = Heard()
    task = asyncio.create_task(follow(path, heard, after=after))
    try:
        yield heard
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def record(sequence: int, text: str, prio: int = 4) -> str:
    return f"{prio},{sequence},{sequence * 1000},-;{text}\n"


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_a_record_has_facility_sequence_and_time() -> None:
    found = parse_record(b"6,339,5140900,-,caller=T1;NVRM: loading; done")

    assert found is not None
    assert (found.facility, found.sequence, found.usec, found.text) == (
        0,
        339,
        5140900,
        "NVRM: loading; done",
    )


@pytest.mark.parametrize("head", [b"4,99999999999999999999,1,-", b"4,1,99999999999999999999,-"])
def test_numbers_that_no_kernel_reaches_make_no_record(head: bytes) -> None:
    """A sequence number of that size would end the reading: no number comes after it, and the API accepts
    none."""
    assert parse_record(head + b";NVRM: loading") is None


@given(st.binary(max_size=300))
def test_no_bytes_make_the_record_parser_raise(data: bytes) -> None:
    parse_record(data)
    unescape(data.decode("utf-8", "replace"))


def test_escapes_are_undone() -> None:
    assert unescape(r"a\x0ab\x5cx \xc3\xa4 \xzz") == "a\nb\\x ä \\xzz"


async def test_the_lines_of_the_driver_are_heard_and_others_only_passed(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text(
        record(1, "Linux version 6.8")
        + record(2, XID.format(79))
        + " SUBSYSTEM=pci\n DEVICE=+pci:0000:38:00.0\n"
        + record(3, "eth0: link up")
    )

    async with following(path) as heard:
        await heard.until(lambda: heard.sequence == 3)

    assert [line.sequence for line in heard.lines] == [2]
    assert heard.bad_lines == []
    assert heard.coverage == ["covered"]


async def test_that_all_was_read_is_said_after_the_last_record(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text("".join(record(n, XID.format(79)) for n in range(1, 3000)))

    async with following(path) as heard:
        await heard.until(lambda: bool(heard.caught_up_at))

    assert heard.caught_up_at == [2999]


async def test_of_an_empty_log_all_is_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text("")

    async with following(path) as heard:
        await heard.until(lambda: bool(heard.caught_up_at))


async def test_a_user_record_of_the_kernel_log_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text(record(1, XID.format(79), prio=12) + record(2, XID.format(48)))

    async with following(path) as heard:
        await heard.until(lambda: heard.sequence == 2)

    assert [line.sequence for line in heard.lines] == [2]


async def test_escapes_are_undone_only_in_the_drivers_lines(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text(
        record(1, r"\x4eVRM: Xid (PCI:0000:38:00): 79, x")
        + record(2, r"NVRM: The NVIDIA GPU 0000:b3:00.0\x0aNVRM: installed\x0aNVRM: fallen off the bus")
    )

    async with following(path) as heard:
        await heard.until(lambda: heard.sequence == 2)

    assert [line.text.count("\n") for line in heard.lines] == [2]


async def test_half_a_record_waits_for_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    whole = record(2, XID.format(79))
    path.write_text(record(1, "x") + whole[:20])

    async with following(path) as heard:
        await heard.until(lambda: heard.sequence == 1)
        assert heard.lines == []
        append(path, whole[20:])
        await heard.until(lambda: heard.sequence == 2)

    assert heard.lines[0].text == XID.format(79)


async def test_reading_goes_on_after_the_resume_point(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text("".join(record(n, XID.format(79)) for n in range(1, 6)))

    async with following(path, after=3) as heard:
        await heard.until(lambda: heard.sequence == 5)

    assert [line.sequence for line in heard.lines] == [4, 5]
    assert heard.gaps == []


async def test_a_gap_in_the_sequence_is_told(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text(record(1, "x") + record(9, XID.format(79)))

    async with following(path) as heard:
        await heard.until(lambda: heard.sequence == 9)

    (gap,) = heard.gaps
    assert gap.startswith("7: ")
    assert "9" in gap


async def test_what_is_no_record_is_told_and_the_next_one_read(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_bytes(b"garbage \xff\x00\n\n;;;\n6,x,1,-;a\n" + record(1, XID.format(79)).encode())

    async with following(path) as heard:
        await heard.until(lambda: heard.sequence == 1)

    assert len(heard.bad_lines) == 3
    assert len(heard.lines) == 1


async def test_a_huge_line_is_cut_and_the_next_one_read(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text("z" * 3_000_000 + "\n" + record(1, XID.format(79)))

    async with following(path) as heard:
        await heard.until(lambda: heard.sequence == 1)

    assert len(heard.lines) == 1
    assert len(heard.gaps) == 1
    assert max(map(len, heard.bad_lines)) <= 200


async def test_a_file_that_is_cut_or_replaced_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text(record(1, "x") + record(2, "a longer line than what follows"))

    async with following(path) as heard:
        await heard.until(lambda: heard.sequence == 2)
        path.write_text(record(3, XID.format(48)))
        await heard.until(lambda: heard.sequence == 3)
        (tmp_path / "new").write_text(record(4, XID.format(79)))
        (tmp_path / "new").rename(path)
        await heard.until(lambda: heard.sequence == 4)

    assert heard.restarts == 2
    assert [line.sequence for line in heard.lines] == [3, 4]


async def test_a_file_that_is_written_under_another_name_is_heard(tmp_path: Path) -> None:
    """This happens if the file is mounted into a container: its folder in the container gets no event of the
    writer."""
    (tmp_path / "host").mkdir()
    (tmp_path / "container").mkdir()
    host, mounted = tmp_path / "host" / "kmsg", tmp_path / "container" / "kmsg"
    host.write_text(record(1, "x"))
    mounted.hardlink_to(host)

    async with following(mounted) as heard:
        await heard.until(lambda: heard.sequence == 1)
        await asyncio.sleep(0.1)  # until it only waits
        with host.open("a") as file:
            file.write(record(2, XID.format(79)))
        await heard.until(lambda: heard.sequence == 2)


async def test_a_missing_device_is_blind_with_the_reason(tmp_path: Path) -> None:
    async with following(tmp_path / "kmsg") as heard:
        await heard.until(lambda: bool(heard.coverage))

    assert heard.coverage == [f"{tmp_path / 'kmsg'}: {os.strerror(errno.ENOENT)}"]


def answered(answers: list[bytes | int]) -> bytes:
    """Returns the next answer of a device. A number is an error."""
    if not answers:
        raise BlockingIOError
    answer = answers.pop(0)
    if isinstance(answer, int):
        raise OSError(answer, "told to")
    return answer


def test_an_overrun_of_the_device_goes_on_with_the_oldest_record() -> None:
    answers: list[bytes | int] = [
        b"6,1,1,-;a\n KEY=v\n",
        errno.EPIPE,
        b"6,9,1,-;b\n",
        errno.EINVAL,
        b"6,11,1,-;c\n",
    ]

    heard = Heard()
    assert list(filter(None, read_device(partial(answered, answers), heard))) == [
        b"6,1,1,-;a",
        b"6,9,1,-;b",
        b"6,11,1,-;c",
    ]
    assert len(heard.gaps) == 1


@pytest.mark.parametrize("fails", [errno.EPIPE, errno.EINVAL])
async def test_an_overrun_among_old_records_is_not_the_end_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: int
) -> None:
    """Otherwise the position of an earlier run would look wrong, and the lines that it has read would be new
    again."""
    device = tmp_path / "kmsg"
    os.mkfifo(device)
    answers: list[bytes | int] = [record(number, XID.format(79)).encode() for number in range(1, 3000)]
    answers.insert(1, fails)
    read_of_file = os.read

    def read(fd: int, size: int) -> bytes:
        if not os.path.samestat(os.fstat(fd), device.stat()):
            return read_of_file(fd, size)
        return answered(answers)

    monkeypatch.setattr(kmsg, "_is_device", lambda path: True)
    monkeypatch.setattr(os, "read", read)
    writes = os.open(device, os.O_RDWR)
    os.write(writes, b"there is more")
    try:
        async with following(device, after=2990) as heard:
            await heard.until(lambda: bool(heard.caught_up_at))
    finally:
        os.close(writes)

    assert heard.coverage == ["covered"]
    assert [line.sequence for line in heard.lines] == list(range(2991, 3000))


@given(st.lists(st.binary(max_size=60).filter(lambda data: b"\n" not in data), max_size=8))
@settings(max_examples=40, deadline=None)
def test_garbage_before_a_record_never_costs_the_record(
    tmp_path_factory: pytest.TempPathFactory, garbage: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("kmsg") / "kmsg"
    harmless = [data for data in garbage if parse_record(data) is None]
    path.write_bytes(b"".join(data + b"\n" for data in harmless) + record(7, XID.format(79)).encode())

    async def read() -> list[KernelLine]:
        async with following(path) as heard:
            await heard.until(lambda: heard.sequence == 7)
        return heard.lines

    assert [line.sequence for line in asyncio.run(read())] == [7]


async def test_a_resume_point_that_the_log_has_never_reached_hides_nothing(tmp_path: Path) -> None:
    """A thief of the agent's token can write such a resume point."""
    path = tmp_path / "kmsg"
    path.write_text(record(1, "x") + record(2, XID.format(79)))

    async with following(path, after=2**62) as heard:
        await heard.until(lambda: heard.sequence == 2)
        append(path, record(3, XID.format(48)))
        await heard.until(lambda: heard.sequence == 3)

    assert heard.coverage == ["covered", "misplaced", "covered"]
    assert [line.sequence for line in heard.lines] == [2, 3]


async def test_a_resume_point_at_the_end_of_the_log_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text(record(1, "x") + record(2, XID.format(79)))

    async with following(path, after=2) as heard:
        await heard.until(lambda: bool(heard.caught_up_at))

    assert heard.coverage == ["covered"]
    assert heard.lines == []
