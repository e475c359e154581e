"""Tests whose turn it is to write, and how much less is written while the API server is overloaded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest

from chaos.cluster.virtual import Clock, run
from detectors.client.kubeapi import CONNECTIONS_MAX, ApiError
from recover.policy.settings import DeviceReports, Settings
from recover.runtime.limiter import (
    ACTS_ALONE_S,
    ACTS_ALONE_S_MAX,
    READS_MAX,
    READS_OF_ONE_MAX,
    SLOTS_MAX,
    SLOW_MAX,
    SLOW_S,
    Limiter,
    Urgency,
)
from recover.runtime.observe import Observer
from recover.runtime.telemetry import Metrics
from tests.recover.scripted import Scripted

START = datetime(2026, 11, 21, 12, tzinfo=UTC)
WRITE_S = 0.01


class Desk:
    """Makes writes that take 10 ms each, and records the order in which they were sent."""

    def __init__(self) -> None:
        self.limiter = Limiter(Metrics())
        self.sent: list[str] = []
        self.most_in_flight = 0

    async def write(
        self, name: str, urgency: Urgency, order: int = 0, *, refused: ApiError | None = None
    ) -> None:
        try:
            async with self.limiter.slot(urgency, order):
                self.sent.append(name)
                self.most_in_flight = max(self.most_in_flight, self.limiter.in_flight)
                await asyncio.sleep(WRITE_S)
                if refused is not None:
                    raise refused
        except ApiError:
            return

    async def read(
        self, namespace: str, *, takes_s: float = WRITE_S, refused: ApiError | None = None
    ) -> None:
        try:
            async with self.limiter.read(namespace):
                self.sent.append(namespace)
                self.most_in_flight = max(self.most_in_flight, self.limiter.in_flight)
                await asyncio.sleep(takes_s)
                if refused is not None:
                    raise refused
        except ApiError:
            return

    async def burst(self, count: int, *, refused: ApiError | None = None) -> None:
        await asyncio.gather(*(self.write(str(n), Urgency.ACT, refused=refused) for n in range(count)))


def overload(retry_after_s: float | None = None, status: int = 429) -> ApiError:
    return ApiError(status, "TooManyRequests", "slow down", retry_after_s)


def now_s() -> float:
    return asyncio.get_running_loop().time()


def played(story: Callable[[Desk], Coroutine[Any, Any, None]]) -> None:
    async def main(_: Clock) -> None:
        await story(Desk())

    run(main, start=START)


def test_eight_writes_are_under_way_at_once_and_no_more() -> None:
    async def story(desk: Desk) -> None:
        await desk.burst(100)

        assert desk.most_in_flight == SLOTS_MAX == 8
        assert now_s() == pytest.approx(WRITE_S * 13)  # 100 by 8: only the slots limit them
        assert desk.limiter.in_flight == 0

    played(story)


def test_an_act_overtakes_the_reports_that_wait() -> None:
    async def story(desk: Desk) -> None:
        reports = [asyncio.create_task(desk.write("report", Urgency.REPORT)) for _ in range(20)]
        await asyncio.sleep(0)
        assert desk.limiter.waiting() == {Urgency.REPORT: 16}
        await desk.write("act", Urgency.ACT)

        assert desk.sent.index("act") == SLOTS_MAX / 2
        await asyncio.gather(*reports)
        assert len(desk.sent) == 21

    played(story)


def test_reports_wait_for_an_act_and_for_what_its_answer_causes() -> None:
    async def story(desk: Desk) -> None:
        act = asyncio.create_task(desk.write("act", Urgency.ACT))
        await asyncio.sleep(0)
        alarm = asyncio.create_task(desk.write("alarm", Urgency.ALARM))
        reports = [asyncio.create_task(desk.write("report", Urgency.REPORT)) for _ in range(2)]
        await asyncio.sleep(WRITE_S + ACTS_ALONE_S / 2)
        await desk.write("next act", Urgency.ACT)

        assert desk.sent == ["act", "alarm", "next act"]
        began_s = now_s()
        await asyncio.gather(act, alarm, *reports)
        assert now_s() - began_s == pytest.approx(ACTS_ALONE_S + WRITE_S)

    played(story)


def test_acts_in_a_row_do_not_keep_a_report_waiting_for_long() -> None:
    async def story(desk: Desk) -> None:
        async def acts() -> None:
            for _ in range(100):
                await desk.write("act", Urgency.ACT)

        for _ in range(2):  # the second row of acts begins long after the first
            row = asyncio.create_task(acts())
            await asyncio.sleep(0)
            began_s = now_s()
            await desk.write("report", Urgency.REPORT)
            assert now_s() - began_s == pytest.approx(ACTS_ALONE_S_MAX + WRITE_S)
            await row
            await asyncio.sleep(1)

    played(story)


def test_a_busy_event_loop_does_not_keep_a_report_waiting_either() -> None:
    """The next act then begins before the timer of the reports is heard."""

    async def story(desk: Desk) -> None:
        async def acts() -> None:
            for _ in range(60):
                await desk.write("act", Urgency.ACT)
                desk.limiter._acts_until_s -= 2 * ACTS_ALONE_S  # a reconcile took so long

        row = asyncio.create_task(acts())
        await asyncio.sleep(0)
        began_s = now_s()
        await desk.write("report", Urgency.REPORT)
        assert now_s() - began_s <= ACTS_ALONE_S_MAX + 2 * WRITE_S
        await row

    played(story)


def test_reports_that_nobody_answers_leave_slots_to_acts() -> None:
    async def story(desk: Desk) -> None:
        async def slow() -> None:
            async with desk.limiter.slot(Urgency.REPORT):
                await asyncio.sleep(1000)

        waiting = [asyncio.create_task(slow()) for _ in range(100)]
        for _ in range(20):
            began_s = now_s()
            await asyncio.gather(*(desk.write("act", Urgency.ACT) for _ in range(SLOTS_MAX // 2)))
            assert now_s() - began_s == pytest.approx(WRITE_S)
            await asyncio.sleep(SLOW_S)
        assert desk.limiter.in_flight == (SLOTS_MAX + SLOW_MAX) // 2
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert desk.limiter.in_flight == 0

    played(story)


def test_a_kind_whose_webhook_hangs_delays_the_writes_to_no_other_kind() -> None:
    async def story(desk: Desk) -> None:
        async def stop() -> None:
            async with desk.limiter.slot(Urgency.ACT, kind="pytorchjobs"):
                await asyncio.sleep(5)

        async def gang() -> None:
            while True:
                await stop()

        gangs = [asyncio.create_task(gang()) for _ in range(200)]
        await asyncio.sleep(2 * SLOW_S)
        for _ in range(40):
            began_s = now_s()
            await desk.write("cordon", Urgency.ACT)
            assert now_s() - began_s <= SLOW_S + WRITE_S
            await asyncio.sleep(1)
        assert desk.limiter.waiting() == {Urgency.ACT: 200 - (SLOW_MAX + SLOTS_MAX) // 2}
        for task in gangs:
            task.cancel()
        await asyncio.gather(*gangs, return_exceptions=True)
        assert desk.limiter.in_flight == 0

    played(story)


def test_a_limit_of_events_alone_slows_down_no_other_write() -> None:
    """The admission plugin EventRateLimit answers so."""

    async def story(desk: Desk) -> None:
        with pytest.raises(ApiError):
            async with desk.limiter.slot(Urgency.REPORT, learns=False):
                raise overload(retry_after_s=20)

        assert desk.limiter.slots == SLOTS_MAX
        began_s = now_s()
        await desk.write("act", Urgency.ACT)
        assert now_s() - began_s == pytest.approx(WRITE_S)

    played(story)


def test_a_slot_that_an_answer_brings_back_is_used_at_once() -> None:
    async def story(desk: Desk) -> None:
        await desk.write("refused", Urgency.ACT, refused=overload())
        while desk.limiter.slots > 1:
            await desk.write("refused", Urgency.ACT, refused=overload())
        desk.sent.clear()
        answered = asyncio.Event()

        async def slow() -> None:
            async with desk.limiter.slot(Urgency.ACT):
                await answered.wait()

        tasks = [asyncio.create_task(slow())]
        await asyncio.sleep(SLOW_S + WRITE_S)
        async with desk.limiter.slot(Urgency.ACT):
            tasks.append(asyncio.create_task(desk.write("next", Urgency.ACT)))
            await asyncio.sleep(WRITE_S)
            answered.set()
            await asyncio.sleep(2 * WRITE_S)
            assert desk.limiter.slots == 2
            assert desk.sent == ["next"]
        await asyncio.gather(*tasks)

    played(story)


def test_an_act_that_nobody_answers_keeps_no_report_waiting() -> None:
    async def story(desk: Desk) -> None:
        async def slow() -> None:
            async with desk.limiter.slot(Urgency.ACT):
                await asyncio.sleep(1000)

        waiting = asyncio.create_task(slow())
        await asyncio.sleep(2 * SLOW_S)
        began_s = now_s()
        await desk.write("report", Urgency.REPORT)
        assert now_s() - began_s == pytest.approx(WRITE_S)
        waiting.cancel()

    played(story)


def test_what_was_begun_first_is_finished_first() -> None:
    async def story(desk: Desk) -> None:
        writes = [desk.write(f"other {n}", Urgency.ACT, order=n + 2) for n in range(20)]
        tasks = [asyncio.create_task(write) for write in writes]
        await asyncio.sleep(0)
        await desk.write("first chain's second write", Urgency.ACT, order=1)

        assert desk.sent.index("first chain's second write") == SLOTS_MAX
        await asyncio.gather(*tasks)

    played(story)


@pytest.mark.parametrize("status", [429, 503])
def test_a_burst_that_is_refused_halves_the_slots_once(status: int) -> None:
    async def story(desk: Desk) -> None:
        await desk.burst(8, refused=overload(status=status))
        assert desk.limiter.slots == 4

        await desk.burst(4, refused=overload(status=status))
        assert desk.limiter.slots == 2

    played(story)


def test_one_slot_always_stays() -> None:
    async def story(desk: Desk) -> None:
        for _ in range(10):
            await desk.burst(1, refused=overload())
        assert desk.limiter.slots == 1
        await desk.burst(1)

    played(story)


def test_slots_come_back_one_at_a_time_and_not_beyond_eight() -> None:
    async def story(desk: Desk) -> None:
        await desk.burst(8, refused=overload())
        grown = []
        for _ in range(6):
            await desk.burst(desk.limiter.slots)
            grown.append(desk.limiter.slots)
        assert grown == [5, 6, 7, 8, 8, 8]

    played(story)


def test_a_failed_precondition_is_no_overload() -> None:
    async def story(desk: Desk) -> None:
        await desk.burst(8, refused=ApiError(409, "Conflict", "stale"))
        assert desk.limiter.slots == SLOTS_MAX

    played(story)


@pytest.mark.parametrize(("asked_s", "waited_s"), [(3.0, 3.0), (3600.0, 30.0)])
def test_nothing_is_sent_before_the_time_that_the_server_asks_for(asked_s: float, waited_s: float) -> None:
    async def story(desk: Desk) -> None:
        await desk.burst(1, refused=overload(asked_s))
        await desk.burst(1)
        assert now_s() == pytest.approx(waited_s + 2 * WRITE_S)

    played(story)


def test_a_shorter_wait_does_not_end_a_longer_one() -> None:
    async def story(desk: Desk) -> None:
        for retry_after_s in (5.0, 1.0):
            asyncio.get_running_loop().create_task(
                desk.write("refused", Urgency.ACT, refused=overload(retry_after_s))
            )
        await asyncio.sleep(2 * WRITE_S)
        await desk.burst(1)
        assert now_s() == pytest.approx(5 + 2 * WRITE_S)

    played(story)


def test_whoever_is_cancelled_while_waiting_or_writing_leaves_no_slot_taken() -> None:
    async def story(desk: Desk) -> None:
        writes = [asyncio.create_task(desk.write(str(n), Urgency.ACT)) for n in range(20)]
        await asyncio.sleep(0)
        for write in writes:
            write.cancel()
        await asyncio.gather(*writes, return_exceptions=True)
        assert desk.limiter.in_flight == 0
        await desk.burst(100)
        assert desk.most_in_flight == SLOTS_MAX

    played(story)


def test_a_turn_that_comes_to_one_who_is_cancelled_at_that_moment_goes_to_the_next() -> None:
    async def story(desk: Desk) -> None:
        writing = [asyncio.create_task(desk.write(str(n), Urgency.ACT)) for n in range(SLOTS_MAX)]
        await asyncio.sleep(0)
        cancelled = asyncio.create_task(desk.write("cancelled", Urgency.ACT))
        following = asyncio.create_task(desk.write("following", Urgency.ACT))
        await asyncio.sleep(0)
        writing[0].add_done_callback(lambda _: cancelled.cancel())
        await asyncio.gather(*writing, following)
        assert "following" in desk.sent
        assert desk.limiter.in_flight == 0

    played(story)


def test_a_write_that_waits_for_a_webhook_takes_no_slot_from_others() -> None:
    async def story(desk: Desk) -> None:
        answered = asyncio.Event()

        async def slow() -> None:
            async with desk.limiter.slot(Urgency.ACT):
                await answered.wait()

        waiting = [asyncio.create_task(slow()) for _ in range(SLOTS_MAX * 2)]
        await asyncio.sleep(0)
        began_s = now_s()
        await desk.write("quick", Urgency.ACT)
        assert now_s() - began_s < 2 * SLOW_S + 1

        assert desk.limiter.in_flight == len(waiting)
        answered.set()
        await asyncio.gather(*waiting)
        assert desk.limiter.in_flight == 0

    played(story)


def test_so_many_slow_writes_and_no_more_are_in_flight_at_once() -> None:
    async def story(desk: Desk) -> None:
        async def slow(kind: str) -> None:
            async with desk.limiter.slot(Urgency.ACT, kind=kind):
                await asyncio.sleep(1000)

        waiting = [asyncio.create_task(slow(kind)) for kind in ("jobs", "nodes") for _ in range(SLOW_MAX)]
        await asyncio.sleep(100)
        assert desk.limiter.in_flight == SLOW_MAX + SLOTS_MAX
        await asyncio.gather(*waiting)
        assert desk.limiter.in_flight == 0

    played(story)


def test_reads_have_places_of_their_own_and_take_none_of_the_writes() -> None:
    async def story(desk: Desk) -> None:
        reads = [asyncio.create_task(desk.read(f"ns-{n}", takes_s=1000)) for n in range(10)]
        await asyncio.sleep(0)
        assert len(desk.sent) == READS_MAX
        assert desk.limiter.waiting() == {Urgency.ACT: 10 - READS_MAX}

        began_s = now_s()
        await desk.burst(SLOTS_MAX)
        assert now_s() - began_s == pytest.approx(WRITE_S)
        await asyncio.gather(*reads)
        assert desk.limiter.in_flight == 0

    played(story)


def test_the_namespaces_have_their_turns_to_read() -> None:
    async def story(desk: Desk) -> None:
        many = [asyncio.create_task(desk.read("many")) for _ in range(100)]
        more = [asyncio.create_task(desk.read("more")) for _ in range(100)]
        await asyncio.sleep(0)
        assert desk.sent == ["many"] * READS_OF_ONE_MAX + ["more"] * READS_OF_ONE_MAX
        began_s = now_s()
        await desk.read("one")
        assert now_s() - began_s == pytest.approx(2 * WRITE_S)

        await asyncio.gather(*many, *more)
        assert desk.most_in_flight == READS_MAX
        assert len(desk.sent) == 201

    played(story)


def test_no_read_is_sent_before_the_time_that_the_server_asks_for() -> None:
    async def story(desk: Desk) -> None:
        await desk.read("ml", refused=overload(3.0))
        assert desk.limiter.slots == SLOTS_MAX // 2
        await asyncio.gather(desk.read("ml"), desk.burst(1))
        assert now_s() == pytest.approx(3.0 + 2 * WRITE_S)

    played(story)


def test_whoever_is_cancelled_while_waiting_to_read_or_reading_leaves_no_place_taken() -> None:
    async def story(desk: Desk) -> None:
        reading = [asyncio.create_task(desk.read("ml")) for _ in range(READS_OF_ONE_MAX)]
        await asyncio.sleep(0)
        at_its_turn = asyncio.create_task(desk.read("ml"))
        waiting = [asyncio.create_task(desk.read("ml")) for _ in range(10)]
        await asyncio.sleep(0)
        reading[0].add_done_callback(lambda _: at_its_turn.cancel())
        for read in waiting:
            read.cancel()
        await asyncio.gather(*reading, at_its_turn, *waiting, return_exceptions=True)
        assert desk.limiter.in_flight == 0

        await asyncio.gather(*(desk.read("ml") for _ in range(10)))
        assert desk.limiter.in_flight == 0

    played(story)


def test_every_write_and_read_finds_a_connection_beside_all_watches() -> None:
    """Requests that wait for a connection wait in no order of urgency, and the wait counts as the
    server's."""
    observer = Observer(Scripted(), Settings(), lambda: None)
    watches = len(observer.reflectors) + len(DeviceReports.__struct_fields__) * 4
    assert watches + SLOTS_MAX + SLOW_MAX + READS_MAX < CONNECTIONS_MAX
