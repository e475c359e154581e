"""Tests the lease: a controller takes it only when nobody else can still write, and keeps it only while
every doubt is excluded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from chaos.apiserver.client import Client
from detectors.client.kubeapi import ApiError, ReplyLost, WatchEvent
from detectors.wire.resource import Resource
from recover.kube.lease import MOMENT_S, Elector, read_record
from recover.policy.settings import Settings
from tests.recover.kube.lease_cases import DURATION_S, RENEW_DEADLINE_S, RETRY_S, Lab, now_s, played

# --- taking the lease -------------------------------------------------------------------------------------


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


def test_the_last_moment_of_a_wait_is_no_storm_of_requests() -> None:
    """The subtraction of times leaves a tiny rest, which no sleep may end: two standby controllers used to
    repeat their request without end."""

    async def story(lab: Lab) -> None:
        lab.edit(holderIdentity="b", leaseDurationSeconds=15)
        uptime_s, asked = 0.0, Asked(lab.store, "a")
        a = Elector(asked, Settings(), "a", lab.clock, lambda: uptime_s)
        running = asyncio.create_task(a.run())
        await asyncio.sleep(1)

        uptime_s = DURATION_S - 1e-12
        await asyncio.sleep(5)
        uptime_s = DURATION_S
        await asyncio.sleep(5)

        assert not running.done()
        assert a.leading.is_set()

    played(story)


class Asked(Client):
    reads = 0

    async def get(self, resource: Resource, name: str, namespace: str = "") -> bytes:
        self.reads += 1
        assert self.reads < 1000, "a storm of requests"
        return await super().get(resource, name, namespace)


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


# --- keeping the lease ------------------------------------------------------------------------------------


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
    """The round trip takes 6 s: 4 of the 10 s for writing are left when the answer arrives."""

    async def story(lab: Lab) -> None:
        a = lab.process("a")
        await a.taken()
        await asyncio.sleep(1)
        a.client.disturbance.delay_s = 6  # delays the renewal that begins at 2 s
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

        assert "person" in await a.lost(within_s=RETRY_S + 1)

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
        for _ in range(120):
            lab.touch()
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


@pytest.mark.parametrize("after_s", [0.7, 60, 1000], ids=["soon", "later", "in another watch"])
def test_a_released_lease_is_taken_at_once(after_s: float) -> None:
    async def story(lab: Lab) -> None:
        a = lab.process("a")
        await a.taken()
        b = lab.process("b")
        await asyncio.sleep(after_s)
        await a.kill()

        await a.elector.release()

        assert not a.may_write
        assert await b.taken() <= MOMENT_S

    played(story)


def test_who_may_not_watch_takes_a_released_lease_at_the_next_read() -> None:
    """A Role of an older chart does not grant the watch."""

    async def story(lab: Lab) -> None:
        a = lab.process("a")
        await a.taken()
        b = Unwatching(lab.store, "b")
        elector = Elector(b, Settings(), "b", lab.clock, now_s)
        running = asyncio.create_task(elector.run())
        await asyncio.sleep(60.7)
        await a.kill()

        await a.elector.release()
        began_s = now_s()
        await elector.leading.wait()

        assert MOMENT_S < now_s() - began_s <= RETRY_S
        assert 1 <= b.watches <= 1 + 60 / DURATION_S
        assert not running.done()

    played(story)


class Unwatching(Client):
    watches = 0

    async def watch(self, resource: Resource, **of: Any) -> AsyncIterator[WatchEvent]:
        self.watches += 1
        raise ApiError(403, "Forbidden", "leases is forbidden")
        yield WatchEvent("", msgspec.Raw())


def test_what_is_no_longer_ours_is_not_released() -> None:
    async def story(lab: Lab) -> None:
        a = lab.process("a")
        await a.taken()
        await a.kill()
        lab.edit(holderIdentity="b")

        await a.elector.release()

        assert lab.spec()["holderIdentity"] == "b"

    played(story)
