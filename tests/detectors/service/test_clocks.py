"""Clocks that are set, and a clock that drifts: no fault is missed, no hang is reported without cause, and no
finding gets a wrong time."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from detectors.folds.core import AgentCore
from detectors.rules.facts import KernelLine, PodRef
from detectors.service.clocks import KernelClock, WallClock, until_next_s
from detectors.service.settings import AgentSettings
from detectors.wire.training import Edge
from tests.detectors.sources.test_kmsg import XID, following, record

NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)
RANK = PodRef("ml", "llm-0", "uid")


def kernel(core: AgentCore, at: datetime, code: int, sequence: int) -> None:
    core.kernel_line(
        KernelLine(sequence=sequence, at=at, text=f"NVRM: Xid (PCI:0000:38:00): {code}, pid=1, name=p, x")
    )


@pytest.fixture
def core() -> AgentCore:
    return AgentCore(AgentSettings(), boot_id="0f1e2d3c")


@pytest.mark.parametrize("step", [HOUR, -HOUR], ids=["forwards", "back"])
def test_a_fault_after_the_clock_was_set_is_no_repeat_and_no_consequence(
    core: AgentCore, step: timedelta
) -> None:
    kernel(core, NOW, 79, 1)
    kernel(core, NOW + step, 79, 2)
    kernel(core, NOW + step + timedelta(seconds=60), 119, 3)

    assert [(finding.code, finding.count) for finding in core.findings] == [
        ("xid-79", 1),
        ("xid-79", 1),
        ("xid-119", 1),
    ]


@pytest.mark.parametrize("step", [HOUR, -HOUR], ids=["forwards", "back"])
def test_the_time_that_a_clock_is_set_by_is_neither_a_hang_nor_hides_one(
    core: AgentCore, step: timedelta
) -> None:
    core.log_line(RANK, "step 1", NOW)
    core.log_line(RANK, "step 2", NOW + timedelta(seconds=10))
    core.tick(NOW + timedelta(seconds=10))
    set_at = NOW + timedelta(seconds=20) + step
    core.clock_set(step, set_at)

    core.tick(set_at)
    assert core.status(set_at).pods[0].edge is Edge.STEPPING
    core.tick(set_at + timedelta(seconds=580))
    assert core.status(set_at).pods[0].edge is Edge.STEPPING
    core.tick(set_at + timedelta(seconds=600))
    assert core.status(set_at).pods[0].edge is Edge.STALLED


@pytest.mark.parametrize("step", [HOUR, -HOUR], ids=["forwards", "back"])
def test_a_step_between_the_setting_of_the_clock_and_the_next_sample_counts_by_the_new_clock(
    core: AgentCore, step: timedelta
) -> None:
    for number in range(7):
        core.log_line(RANK, f"step {number}", NOW - timedelta(seconds=7 - number))
    core.tick(NOW)
    core.log_line(RANK, "step 7", NOW + step + timedelta(seconds=1))
    looked_at = NOW + step + timedelta(seconds=1.5)
    core.clock_set(step, looked_at)

    core.tick(looked_at + timedelta(seconds=590))
    assert core.status(NOW).pods[0].edge is Edge.STEPPING
    core.tick(looked_at + timedelta(seconds=601))
    assert core.status(NOW).pods[0].edge is Edge.STALLED


def test_a_clock_that_is_slewed_was_not_set() -> None:
    clock = WallClock(1000.0, 10.0)

    assert clock.set_by_s(1100.5, 110.0) == 0.0
    assert clock.set_by_s(4710.0, 120.0) == 3600.0
    assert clock.set_by_s(4720.0, 130.0) == 0.0
    assert clock.set_by_s(1130.0, 140.0) == -3600.0


def test_the_kernels_clock_is_followed_where_it_drifts_and_not_where_we_are_late() -> None:
    days_s = 100 * 86400.0
    clock = KernelClock()
    assert clock.monotonic_s(5.0) == 5.0

    clock.just_showed(days_s - 300.0, days_s)
    assert clock.monotonic_s(days_s - 300.0) == days_s, "five minutes in a hundred days"
    clock.just_showed(days_s - 300.0 + 10.0, days_s + 100.0)
    assert clock.monotonic_s(days_s - 290.0) == pytest.approx(days_s + 10.0, abs=0.1), "we came 90 s late"
    clock.just_showed(days_s + 200.0, days_s + 120.0)
    assert clock.monotonic_s(days_s + 200.0) == days_s + 120.0, "it is ahead"


async def test_a_record_that_comes_now_is_dated_now_though_the_kernels_clock_is_minutes_off(
    tmp_path: Path,
) -> None:
    """A terminal replaces the device: one read gives one line, or nothing if there is none."""
    ours, theirs = os.openpty()
    (tmp_path / "kmsg").symlink_to(os.ttyname(theirs))
    behind_s = min(300.0, time.monotonic() * 1e-4)
    try:
        async with following(tmp_path / "kmsg") as heard:
            os.write(ours, record(1, "Linux version 6.8").encode())
            await heard.until(lambda: heard.sequence == 1)
            await asyncio.sleep(0.1)
            usec = int((time.monotonic() - behind_s) * 1e6)
            os.write(ours, f"4,2,{usec},-;{XID.format(79)}\n".encode())
            await heard.until(lambda: heard.sequence == 2)
            now = datetime.now(UTC)
    finally:
        os.close(ours)
        os.close(theirs)

    (line,) = heard.lines
    assert abs(now - line.at) < timedelta(seconds=1)


@pytest.mark.parametrize(
    ("every_s", "now_s", "rest_s"),
    [
        (1.0, 7.25, 0.75),
        (0.5, 7.25, 0.25),
        (0.5, 7.0, 0.5),
        (0.5, 6.999999, 0.500001),  # woken a moment early: it must not run again at once
        (0.5, 7.46, 0.54),  # it took most of its period
    ],
)
def test_loops_whose_periods_are_multiples_wake_together(every_s: float, now_s: float, rest_s: float) -> None:
    assert until_next_s(every_s, now_s) == pytest.approx(rest_s)
