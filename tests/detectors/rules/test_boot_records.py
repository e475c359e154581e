"""The cause of a node's boot, from what pstore and watchdogs keep, and nothing more than that."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.rules.boot_records import Boot, CrashRecord, crash_record, reason_of
from detectors.rules.host_state_rows import host_state_rows
from detectors.wire.contract import Severity

AT = datetime(2026, 11, 26, 3, tzinfo=UTC)
PANIC = """Panic#1 Part1
<0>[ 8191.331207][T12345] BUG: kernel NULL pointer dereference, address: 0000000000000008
<4>[ 8191.331311] RIP: 0010:uvm_va_block_find+0x12/0x80 [nvidia_uvm]
<0>[ 8191.331420] Kernel panic - not syncing: Fatal exception in interrupt
<0>[ 8191.331422] Kernel Offset: 0x2e000000 from 0xffffffff81000000
"""
OOPS = """Oops#1 Part1
<1>[  100.000001] BUG: unable to handle page fault for address: ffffb0a1c0a3d000
<4>[  100.000002] Oops: 0000 [#1] PREEMPT SMP NOPTI
"""


def boot(*texts: str, ago: timedelta = timedelta(minutes=4), watchdogs: tuple[int, ...] = ()) -> Boot:
    records = [record for text in texts if (record := crash_record(text, AT - ago)) is not None]
    return Boot("b", AT, tuple(records), watchdogs)


def told(found: Boot, *, is_known: bool = True) -> tuple[str, str]:
    reason = reason_of(found, is_known=is_known)
    return (reason.code, reason.text) if reason is not None else ("", "")


def test_a_panic_is_told_in_its_own_words() -> None:
    code, text = told(boot(OOPS, PANIC), is_known=False)
    assert code == "boot-after-panic"
    assert text == ("booted at 2026-11-26 03:00:00 UTC, after a kernel panic: Fatal exception in interrupt")


def test_parts_of_a_panic_that_hold_no_reason_still_show_it() -> None:
    code, text = told(boot("Panic#2 Part7\n<6>[ 1.000000] usb 1-1: new device\n"))
    assert (code, text.endswith("its record holds no line that says why")) == ("boot-after-panic", True)


def test_an_oops_is_told_as_one_and_never_as_the_cause_of_a_crash() -> None:
    code, text = told(boot(OOPS))
    assert code == "node-booted"
    assert "after an error of the kernel: BUG: unable to handle page fault" in text


def test_a_record_of_an_older_crash_explains_no_boot() -> None:
    assert told(boot(PANIC, ago=timedelta(days=3)))[0] == "node-booted"
    assert told(boot(PANIC, ago=timedelta(days=-3)), is_known=False) == ("", "")


def test_a_watchdog_that_caused_the_boot_says_so() -> None:
    assert told(boot(watchdogs=(0, 0x20)), is_known=False)[0] == "boot-by-watchdog"
    assert "overheating and low power" in told(boot(watchdogs=(0x11,)))[1]
    assert told(boot(PANIC, watchdogs=(0x20,)))[0] == "boot-after-panic", "the panic came first"


def test_where_nothing_is_recorded_no_cause_is_named() -> None:
    code, text = told(boot(watchdogs=(0,)))
    assert (code, text) == (
        "node-booted",
        "booted at 2026-11-26 03:00:00 UTC; neither pstore nor a watchdog tells why",
    )
    assert told(boot(), is_known=False) == ("", "")


def test_a_tenants_words_in_a_record_are_no_panic() -> None:
    lie = "Oops#1 Part1\n<6>[    1.000000] python3[77]: Kernel panic - not syncing: told by a program\n"
    record = crash_record(lie, AT)
    assert record is not None
    assert not record.is_panic
    assert crash_record("<6>[    1.000000] usb 1-1: new device\n", AT) is None


def test_no_packaged_row_is_more_than_a_note() -> None:
    assert {row.severity for row in host_state_rows().values()} == {Severity.INFO}


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=300), st.integers(0, 2**32))
def test_no_record_and_no_state_of_a_watchdog_ends_the_agent(text: str, status: int) -> None:
    record = crash_record(text, AT)
    assert record is None or len(record.line) <= 160
    found = Boot("b", AT, () if record is None else (record,), (status,))
    assert reason_of(found, is_known=True) is not None


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(11, 10**6), max_size=5), st.booleans())
def test_boots_without_a_record_of_their_own_name_no_cause(minutes_after: list[int], is_known: bool) -> None:
    """The boots are kernel upgrades, power cycles and repairs, and there are records of crashes at other
    times."""
    records = tuple(CrashRecord(AT + timedelta(minutes=late), True, "x") for late in minutes_after)
    reason = reason_of(Boot("b", AT, records, (0,)), is_known=is_known)
    assert (reason is None) == (not is_known)
    assert reason is None or reason.code == "node-booted"
