"""The lease: taken only when nobody else can still write, kept only while every doubt is excluded.

Virtual time, against the simulated API server. Settings are the shipped ones: 15 s, 10 s, 2 s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.cluster.client import Client
from chaos.cluster.store import Deletion, MemoryCluster
from chaos.cluster.virtual import Clock, run
from detectors.kubeapi import ReplyLost
from recover.errors import NotLeaderError
from recover.kube.cluster import NAMESPACES
from recover.kube.lease import LEASE, Elector, LeaseLostError, read_record
from recover.resources import LEASES
from recover.settings import Settings
from tests.recover.rough import Rough, Trouble

START = datetime(2026, 11, 21, 12, tzinfo=UTC)
NAMESPACE = Settings().namespace
DURATION_S, RENEW_DEADLINE_S, RETRY_S = 15.0, 10.0, 2.0


class Skewed:
    """A machine's wall clock that is wrong by so much."""

    def __init__(self, clock: Clock, by: timedelta) -> None:
        self._clock, self._by = clock, by

    def now(self) -> datetime:
        return self._clock.now() + self._by


class Process:
    """One controller's elector, with its own way to the API server. `stopped_s` is added to its uptime."""

    def __init__(self, lab: Lab, identity: str, skew: timedelta = timedelta()) -> None:
        self.client = Client(lab.store, identity)
        self.stopped_s = 0.0
        self.elector = Elector(
            self.client, Settings(), identity, Skewed(lab.clock, skew), lambda: now_s() + self.stopped_s
        )
        self.task = asyncio.create_task(self.elector.run())

    @property
    def leads(self) -> bool:
        return not self.task.done() and self.may_write

    @property
    def may_write(self) -> bool:
        try:
            self.elector.check()
        except NotLeaderError:
            return False
        return True

    async def lost(self, within_s: float) -> str:
        """Why it ended. Fails if it does not within that time."""
        async with asyncio.timeout(within_s):
            with pytest.raises(LeaseLostError) as error:
                await self.task
        assert not self.may_write
        return str(error.value)

    async def taken(self) -> float:
        """Waits until it leads; returns how long that took."""
        began_s = now_s()
        async with asyncio.timeout(300):
            await self.elector.leading.wait()
        return now_s() - began_s

    async def kill(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Lab:
    """An API server that has the Lease, without a holder, as after an installation."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.store = MemoryCluster(clock.now)
        self.store.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        self.store.create(LEASES, {"metadata": {"name": LEASE}}, NAMESPACE)
        self.person = Client(self.store, "person")

    def process(self, identity: str, skew: timedelta = timedelta()) -> Process:
        return Process(self, identity, skew)

    def spec(self) -> dict[str, Any]:
        found: dict[str, Any] = self.store.read(LEASES, LEASE, NAMESPACE).body["spec"]
        return found

    def edit(self, **spec: Any) -> None:
        self.store.patch(LEASES, LEASE, {"spec": spec}, namespace=NAMESPACE)

    def delete(self) -> None:
        self.store.delete(LEASES, LEASE, Deletion(), NAMESPACE)


def now_s() -> float:
    return asyncio.get_running_loop().time()


def played(story: Callable[[Lab], Coroutine[Any, Any, None]]) -> None:
    async def main(clock: Clock) -> None:
        await story(Lab(clock))
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    run(main, start=START)


# --- taking it ----------------------------------------------------------------------------------------------


def test_a_lease_without_a_holder_is_taken_at_once_and_renewed() -> None:
    async def story(lab: Lab) -> None:
        a = lab.process("a")

        assert await a.taken() == 0
        await asyncio.sleep(61)

        assert a.leads
        spec = lab.spec()
        assert (spec["holderIdentity"], spec["leaseTransitions"], spec["leaseDurationSeconds"]) == (
            "a",
            1,
            15,
        )
        assert spec["acquireTime"] == "2026-11-21T12:00:00.000000Z"
        assert spec["renewTime"] == "2026-11-21T12:01:00.000000Z"

    played(story)


def test_a_foreign_lease_is_taken_only_after_it_was_watched_unchanged_for_its_duration() -> None:
    async def story(lab: Lab) -> None:
        lab.edit(
            holderIdentity="b",
            leaseDurationSeconds=40,
            leaseTransitions=7,
            renewTime="2020-01-01T00:00:00.000000Z",
        )
        a = lab.process("a")

        assert await a.taken() == pytest.approx(40, abs=0.01)
        assert (lab.spec()["holderIdentity"], lab.spec()["leaseTransitions"]) == ("a", 8)

    played(story)


@pytest.mark.parametrize("hours", [-5, 0, 5])
def test_the_wall_clock_of_neither_side_matters(hours: int) -> None:
    async def story(lab: Lab) -> None:
        b = lab.process("b", timedelta(hours=hours))
        await b.taken()
        a = lab.process("a")
        await asyncio.sleep(600)
        assert b.leads
        assert not a.may_write

        await b.kill()
        assert DURATION_S - RETRY_S <= await a.taken() <= DURATION_S + RETRY_S

    played(story)


def test_a_restarted_process_of_the_same_identity_leads_at_once() -> None:
    async def story(lab: Lab) -> None:
        first = lab.process("pod-1")
        await first.taken()
        await asyncio.sleep(30)
        await first.kill()

        second = lab.process("pod-1")

        assert await second.taken() == 0
        assert lab.spec()["leaseTransitions"] == 2

    played(story)


def test_of_two_living_processes_of_one_identity_the_older_ends_at_its_next_renewal() -> None:
    async def story(lab: Lab) -> None:
        older = lab.process("pod-1")
        await older.taken()
        younger = lab.process("pod-1")
        await younger.taken()

        assert "transition 2" in await older.lost(within_s=RETRY_S + 1)
        await asyncio.sleep(30)
        assert younger.leads

    played(story)


def test_a_missing_lease_is_made_only_after_the_duration() -> None:
    async def story(lab: Lab) -> None:
        lab.delete()
        a = lab.process("a")

        assert await a.taken() == pytest.approx(DURATION_S, abs=0.01)

    played(story)


def test_a_lost_answer_to_the_acquisition_does_not_cost_the_duration() -> None:
    async def story(lab: Lab) -> None:
        a = lab.process("a")
        a.client.disturbance.lose_replies = 1

        assert await a.taken() <= RETRY_S
        assert a.leads

    played(story)


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"holderIdentity": "b"}, "leaseDurationSeconds"),
        ({"holderIdentity": "b", "leaseDurationSeconds": -3}, "leaseDurationSeconds"),
        ({"holderIdentity": "b", "leaseDurationSeconds": "soon"}, "leaseDurationSeconds"),
        ({"holderIdentity": 7, "leaseDurationSeconds": 15}, "holderIdentity"),
        ({"holderIdentity": "b", "leaseDurationSeconds": 15, "leaseTransitions": "x"}, "leaseTransitions"),
        ([], "spec"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_garbled_lease_counts_as_held_and_the_field_is_named(spec: Any, named: str) -> None:
    raw = b'{"metadata": {"resourceVersion": "7"}, "spec": %s}' % str(spec).replace("'", '"').encode()

    record = read_record(raw, duration_s=DURATION_S)

    assert record.holder != ""
    assert record.duration_s == DURATION_S
    assert record.garbled == named


def test_an_answer_that_is_no_lease_is_as_good_as_none() -> None:
    for raw in (b"<html>", b"[]", b'{"kind": "Lease"}'):
        with pytest.raises(ReplyLost):
            read_record(raw, duration_s=DURATION_S)


# --- keeping it ---------------------------------------------------------------------------------------------


def test_a_lost_answer_to_a_renewal_that_happened_is_no_loss() -> None:
    async def story(lab: Lab) -> None:
        a, _ = lab.process("a"), lab.process("b")
        await a.taken()
        a.client.disturbance.lose_replies = 1
        await asyncio.sleep(60)
        assert a.leads

    played(story)


def test_a_renewal_that_never_arrived_is_tried_again_until_the_deadline() -> None:
    async def story(lab: Lab) -> None:
        a, b = lab.process("a"), lab.process("b")
        await a.taken()
        a.client.disturbance.partition()
        await asyncio.sleep(RENEW_DEADLINE_S - RETRY_S)
        assert a.leads
        a.client.disturbance.heal()
        await asyncio.sleep(60)
        assert a.leads
        assert not b.may_write

    played(story)


@pytest.mark.parametrize("silence", ["refuses", "hangs", "forbids"])
def test_without_an_answered_renewal_the_leader_writes_nothing_and_ends_before_another_leads(
    silence: str,
) -> None:
    async def story(lab: Lab) -> None:
        a, b = lab.process("a"), lab.process("b")
        await a.taken()
        if silence == "refuses":
            a.client.disturbance.partition()
        elif silence == "hangs":
            a.client.disturbance.delay_s = 3600
        else:
            a.client.disturbance.refuse_with.extend([403] * 100)

        assert "10 s" in await a.lost(within_s=RENEW_DEADLINE_S + 1)

        assert now_s() == pytest.approx(RENEW_DEADLINE_S, abs=0.01)
        assert not b.may_write
        await b.taken()
        assert now_s() >= DURATION_S

    played(story)


def test_a_renewal_counts_from_when_it_was_sent() -> None:
    """The way there and back takes 6 s: of the 10 s for writing 4 are left when the answer comes."""

    async def story(lab: Lab) -> None:
        a = lab.process("a")
        await a.taken()
        await asyncio.sleep(1)
        a.client.disturbance.delay_s = 6  # of the renewal that begins at 2 s
        await asyncio.sleep(7.1)
        assert a.elector.left_s() == pytest.approx(DURATION_S - 6.1)

    played(story)


def test_a_process_that_was_stopped_past_its_lease_ends_without_a_further_write() -> None:
    async def story(lab: Lab) -> None:
        a = lab.process("a")
        await a.taken()
        await asyncio.sleep(10)
        version = lab.store.version

        a.stopped_s = RENEW_DEADLINE_S

        assert not a.may_write
        await a.lost(within_s=RETRY_S + 1)
        assert lab.store.version == version

    played(story)


def test_whoever_finds_another_holder_ends_at_once() -> None:
    async def story(lab: Lab) -> None:
        a = lab.process("a")
        await a.taken()
        lab.edit(holderIdentity="person")

        assert "person holds it" in await a.lost(within_s=RETRY_S + 1)

    played(story)


def test_a_deleted_lease_ends_the_leader_and_nobody_leads_before_its_time_is_over() -> None:
    async def story(lab: Lab) -> None:
        a, b = lab.process("a"), lab.process("b")
        await a.taken()
        await asyncio.sleep(60)
        lab.delete()
        deleted_s = now_s()

        assert "deleted" in await a.lost(within_s=2 * RETRY_S)
        await b.taken()
        assert now_s() - deleted_s >= DURATION_S

    played(story)


def test_somebody_who_touches_the_lease_every_second_does_not_end_the_leader() -> None:
    async def story(lab: Lab) -> None:
        a = lab.process("a")
        await a.taken()
        for number in range(120):
            note = {"metadata": {"annotations": {"seen": str(number)}}}
            lab.store.patch(LEASES, LEASE, note, namespace=NAMESPACE)
            await asyncio.sleep(1)
        assert a.leads

    played(story)


def test_a_duration_that_somebody_shortens_makes_nobody_lead_sooner() -> None:
    async def story(lab: Lab) -> None:
        a, b = lab.process("a"), lab.process("b")
        await a.taken()
        lab.edit(leaseDurationSeconds=1)
        await asyncio.sleep(60)

        assert a.leads
        assert not b.may_write
        assert lab.spec()["leaseDurationSeconds"] == DURATION_S

    played(story)


def test_a_released_lease_is_taken_at_the_next_look() -> None:
    async def story(lab: Lab) -> None:
        a = lab.process("a")
        await a.taken()
        b = lab.process("b")
        await asyncio.sleep(60)
        await a.kill()

        await a.elector.release()

        assert not a.may_write
        assert await b.taken() <= RETRY_S

    played(story)


def test_what_is_no_longer_ours_is_not_released() -> None:
    async def story(lab: Lab) -> None:
        a = lab.process("a")
        await a.taken()
        await a.kill()
        lab.edit(holderIdentity="b")

        await a.elector.release()

        assert lab.spec()["holderIdentity"] == "b"

    played(story)


# --- never two ----------------------------------------------------------------------------------------------


class Pod:
    """A process of a fixed identity, begun again whenever it ends, as a kubelet does it."""

    def __init__(self, lab: Lab, identity: str, skew: timedelta) -> None:
        self.rough = Rough(Client(lab.store, identity))
        self._identity, self._clock = identity, Skewed(lab.clock, skew)
        self.elector = self._new()
        self._process: asyncio.Task[NoReturn] | None = None
        self.keeper = asyncio.create_task(self._keep())

    def _new(self) -> Elector:
        return Elector(self.rough, Settings(), self._identity, self._clock, now_s)

    async def _keep(self) -> None:
        while True:
            self.elector = self._new()
            self._process = asyncio.create_task(self.elector.run())
            await asyncio.wait([self._process])
            error = None if self._process.cancelled() else self._process.exception()
            assert error is None or isinstance(error, LeaseLostError), error
            self.elector = self._new()
            await asyncio.sleep(1)

    def kill(self) -> None:
        if self._process is not None:
            self._process.cancel()

    @property
    def holds(self) -> bool:
        return self.elector.left_s() > 0


class Event(Trouble, frozen=True):
    """What happens to one of the pods, so long after the event before."""

    after_s: float
    pod: int
    kills: bool
    touches: bool


times = st.floats(0, 20).map(lambda t: round(t, 2))
events = st.builds(
    Event,
    after_s=times,
    pod=st.integers(0, 2),
    kills=st.booleans(),
    touches=st.booleans(),
    requests=st.integers(0, 8),
    there_s=times,
    back_s=times,
    fate=st.sampled_from(["arrives", "is lost", "arrives late", "answer is lost"]),
)


@given(
    script=st.lists(events, max_size=12),
    skews=st.lists(st.integers(-9, 9), min_size=3, max_size=3),
    deleted_at_s=st.none() | st.floats(0, 100),
)
@settings(max_examples=60, deadline=None)
def test_never_do_two_hold_the_lease_and_when_trouble_ends_one_leads(
    script: list[Event], skews: list[int], deleted_at_s: float | None
) -> None:
    """Late, lost, overtaken requests and answers, kills and restarts, wrong wall clocks, people's edits."""

    async def story(lab: Lab) -> None:
        pods = [Pod(lab, f"pod-{n}", timedelta(hours=skew)) for n, skew in enumerate(skews)]
        watcher = asyncio.create_task(_two_hold(pods))
        if deleted_at_s is not None:
            asyncio.get_running_loop().call_at(deleted_at_s, lab.delete)
        for event in script:
            await asyncio.sleep(event.after_s)
            pod = pods[event.pod]
            pod.rough.meets(event)
            if event.kills:
                pod.kill()
            if event.touches and lab.store.objects(LEASES, NAMESPACE):
                note = {"metadata": {"annotations": {"at": str(now_s())}}}
                lab.store.patch(LEASES, LEASE, note, namespace=NAMESPACE)
        for pod in pods:
            pod.rough.is_smooth()
        await asyncio.sleep(max(0.0, (deleted_at_s or 0.0) - now_s()) + 100)
        assert not watcher.done(), watcher.result()
        assert [pod.elector.leading.is_set() for pod in pods].count(True) == 1

    played(story)


async def _two_hold(pods: list[Pod]) -> str:
    """Returns only if that happens."""
    while len(held := [n for n, pod in enumerate(pods) if pod.holds]) < 2:
        await asyncio.sleep(0.05)
    return f"pods {held} hold the lease at {now_s()} s"
