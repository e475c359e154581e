"""Tests places that are reserved for gangs that were started a moment ago, and how long other gangs wait
for these places."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from detectors.wire.contract import Fault, Severity
from recover.api import Act, Phase, Recovery
from recover.api.reasons import Reason
from recover.model import Mark, Taint
from recover.recovery.advance import advance
from tests.acting import acts, advanced, apply, end_pods, recovering, start_pods
from tests.builders import Worlds, gang
from tests.facts import names
from tests.recover.triage.test_capacity import GPU, estimate, machines, struck, template

KEY = "ml/its"
RDMA = {"name": "train", "resources": {"limits": {GPU: 8, "rdma/hca": 1}}}


def waiting() -> Worlds:
    """Returns a gang of three that has waited for a place, and whose missing node has returned."""
    world = struck()
    advanced(world, Phase.BLOCKED)
    world.change_node("n1", unschedulable=False, taints=(), quarantine=None)
    world.health["n1"] = world.health["n0"]
    assert estimate(world).fits
    return world


def starts(world: Worlds, **changes: Any) -> Worlds:
    """Starts another gang now, which requests the same places."""
    if "bert-uid" not in world.gangs:
        other = gang("bert", ranks=3, templates={"Worker": template()})
        world.gangs["bert-uid"] = other
    world.change_gang("bert", mark=Mark(recovery="its", attempt=1, did="resumed"), **changes)
    mine = ours(world)
    entered = msgspec.structs.replace(mine.status.phases[-1], phase=Phase.RESUMING, at=world.now)
    world.recoveries[KEY] = msgspec.structs.replace(
        mine,
        metadata=msgspec.structs.replace(mine.metadata, name="its"),
        spec=msgspec.structs.replace(
            mine.spec, gang=msgspec.structs.replace(mine.spec.gang, name="bert", uid="bert-uid")
        ),
        status=msgspec.structs.replace(
            mine.status, phase=Phase.RESUMING, phases=[*mine.status.phases, entered]
        ),
    )
    return world


def ours(world: Worlds) -> Recovery:
    (found,) = [one for key, one in world.recoveries.items() if key != KEY]
    return found


def step(world: Worlds) -> list[str]:
    """Runs one reconcile pass over the gang that waits."""
    found = advance(ours(world), world.world(), world.settings, world.now)
    apply(world, found)
    return acts(found)


def is_started_within(world: Worlds, seconds: int, every_s: int, other_every_s: int) -> int | None:
    """Returns the seconds after which the gang is started, while the other gang is started again and
    again. None if it is not started."""
    for at_s in range(0, seconds, every_s):
        if at_s % other_every_s == 0:
            starts(world)
        for _ in range(3):
            if "start-gang" in step(world):
                return at_s
        world.later(every_s)
    return None


def test_two_gangs_that_wait_for_the_same_places_do_not_start_together() -> None:
    world = starts(waiting())

    assert estimate(world).missing == 3
    assert estimate(world.later(61)).fits


def test_a_gang_whose_start_is_being_written_keeps_its_places() -> None:
    """One node that becomes free wakes all gangs that wait, and each decides before any start is written."""
    world = waiting()
    world.gangs["bert-uid"] = gang("bert", ranks=3, templates={"Worker": template()})
    world.change_gang("bert", suspended=True)
    world.being_started = {"llm-uid"}
    assert estimate(world).fits, "its own start"

    world.being_started = {"llm-uid", "bert-uid"}

    assert estimate(world).missing == 3
    assert "start-gang" not in [*step(world), *step(world)]
    world.being_started = set()
    assert "start-gang" in [*step(world), *step(world)]


def test_a_gang_that_runs_claims_no_second_place_while_its_recovery_is_being_opened() -> None:
    world = waiting()
    world.gangs["bert-uid"] = gang("bert", ranks=3, templates={"Worker": template()})
    world.being_started = {"bert-uid"}

    assert estimate(world).fits


def test_a_gang_that_the_present_attempt_has_not_started_keeps_no_place() -> None:
    """A job that its framework has permanently failed keeps the mark of the attempt before."""
    world = starts(waiting())
    mine = world.recoveries[KEY]
    world.recoveries[KEY] = msgspec.structs.replace(
        mine, status=msgspec.structs.replace(mine.status, attempt=2)
    )

    assert estimate(world).fits


def test_a_gang_that_asks_for_more_than_nodes_report_keeps_its_places_too() -> None:
    roles = {"Worker": template(containers=(RDMA,))}

    assert estimate(starts(waiting(), templates=roles)).missing == 3


@pytest.mark.parametrize(
    ("ranks", "devices", "missing"), [(6, 4, 3), (2, 4, 1), (1, 1, 1), (1, 16, 0), (0, 4, 0)]
)
def test_a_gang_with_ranks_of_another_size_keeps_the_devices_that_they_need(
    ranks: int, devices: int, missing: int
) -> None:
    """Without this, each of two gangs may get a part of the places, and both wait for the rest."""
    other = template(containers=({"name": "train", "resources": {"limits": {GPU: devices}}},), count=ranks)

    assert estimate(starts(waiting(), templates={"Worker": other}, size=ranks)).missing == missing


def in_pool(name: str) -> dict[str, Any]:
    """Returns the affinity to the nodes of a pool."""
    one = {"key": "pool", "operator": "In", "values": [name]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [one]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def test_a_gang_that_does_not_tolerate_the_taint_of_these_nodes_keeps_no_place_here() -> None:
    tolerating = template(tolerations=({"key": "team", "operator": "Exists"},))
    world = waiting().change_gang(templates={"Worker": tolerating})
    for name in world.nodes:
        world.change_node(name, taints=(Taint(key="team", effect="NoSchedule", value="a"),))

    assert not estimate(starts(world, templates={"Worker": tolerating})).fits
    assert estimate(starts(world, templates={"Worker": template()})).fits


@pytest.mark.parametrize(
    ("rules", "fits"),
    [
        ({"node_selector": {"pool": "b"}}, True),
        ({"node_selector": {"disk": "fast"}}, True),
        ({"node_selector": {"pool": "a"}}, False),
        ({"affinity": in_pool("b")}, True),
        ({"affinity": in_pool("a")}, False),
    ],
)
def test_a_gang_that_cannot_use_these_nodes_keeps_no_place_here(rules: dict[str, Any], fits: bool) -> None:
    world = waiting()
    world.change_gang(templates={"Worker": template(node_selector={"pool": "a"})})

    other = {"Worker": template(**rules)}

    assert estimate(starts(world, templates=other)).fits is fits


def test_a_gang_with_other_devices_keeps_no_place_here() -> None:
    part = template(containers=({"resources": {"limits": {"nvidia.com/mig-1g.10gb": 1}}},))

    assert estimate(starts(waiting(), templates={"Worker": part})).fits


def test_of_an_elastic_gang_the_fewest_ranks_count_once_its_pods_had_time_to_come() -> None:
    world = starts(waiting(), may_lack=2)
    assert estimate(world).missing == 3

    assert estimate(world.later(5)).missing == 1
    start_pods(world, "bert", running=False)
    assert estimate(world).missing == 3, "the scheduler may bind those that are there"


def test_a_rank_behind_a_scheduling_gate_keeps_no_place() -> None:
    """Perhaps nobody ever lifts the gate, and a pod behind a gate occupies nothing."""
    world = starts(waiting())
    start_pods(world, "bert", running=False)
    assert estimate(world).missing == 3
    pods = world.pods["bert-uid"]
    for uid, pod in pods.items():
        pods[uid] = msgspec.structs.replace(pod, gated=True)

    assert estimate(world).fits


@pytest.mark.parametrize("change", [{"node": "n0"}, {"gated": True}], ids=["bound", "behind a gate"])
def test_a_master_with_fewer_devices_takes_no_place_of_a_worker(change: dict[str, Any]) -> None:
    small = {"name": "train", "resources": {"limits": {GPU: 1}}}
    roles = {"Master": template(containers=(small,), count=1), "Worker": template(count=4)}
    world = starts(waiting(), templates=roles, size=5)
    start_pods(world, "bert", running=False)
    pods = world.pods["bert-uid"]
    for uid, pod in pods.items():
        pods[uid] = msgspec.structs.replace(pod, requests=((GPU, 8),))
    master = next(iter(pods))
    pods[master] = msgspec.structs.replace(pods[master], requests=((GPU, 1),), **change)

    assert [ranks for _, ranks in estimate(world).kept_for] == [4]


def test_who_waits_beside_reserved_places_says_for_whom_and_starts_once_they_are_free() -> None:
    world = starts(waiting())

    assert step(world) == ["recovery-resuming"]
    status = ours(world).status
    assert (status.phase, status.reason) == (Phase.RESUMING, Reason.NO_CAPACITY)
    assert names(status.message, 3, "ml/bert")
    assert step(world.later(30)) == []

    del world.recoveries[KEY]
    assert step(world) == ["recovery-resuming"]
    assert (ours(world).status.phase, ours(world).status.reason) == (Phase.RESUMING, "")
    assert ours(world).status.phases[-1].at == world.now, "its own start begins now"
    assert "start-gang" in step(world)


def test_once_the_places_are_taken_it_waits_for_room_as_before() -> None:
    world = starts(waiting())
    step(world)
    start_pods(world.later(2), "bert", first_node=0)
    for uid, pod in world.pods["bert-uid"].items():
        world.pods["bert-uid"][uid] = msgspec.structs.replace(pod, requests=((GPU, 8),))

    assert step(world) == ["recovery-blocked"]
    status = ours(world).status
    assert (status.phase, status.reason) == (Phase.BLOCKED, Reason.NO_CAPACITY)
    assert names(status.message, "ml/llm", 3)
    assert not names(status.message, "ml/bert")


def test_a_job_that_may_leave_a_degraded_node_is_told_for_whom_the_free_places_are_reserved() -> None:
    saves = gang(
        ranks=3,
        templates={"Worker": template()},
        annotations={"rekindle.dev/checkpoint-on-sigterm": "true"},
    )
    world = machines(6).running(saves)
    world.running(gang("bert", ranks=3, templates={"Worker": template()}), first_node=3)
    recovering(world.crash("bert", rank=0))
    while "start-gang" not in (wrote := step(world)):
        if "stop-gang" in wrote:
            end_pods(world, "bert")

    world.finding(on="n1", code="xid-63", fault=Fault.MEMORY_DEGRADED, severity=Severity.PENDING)
    (told,) = [r for r in world.decide().incident.status.actions if r.action == Act.RESTART_GANG]

    assert told.reason == Reason.NO_CAPACITY
    assert names(told.message, "ml/llm", "n1", 3, "ml/bert")
    assert not names(told.message, 0)


@pytest.mark.parametrize(
    ("other_every_s", "at_most_s"),
    [(1000, 60), (20, 66), (1, 300)],
    ids=["once", "again and again", "without end"],
)
def test_whoever_starts_again_and_again_keeps_no_other_gang_from_free_places(
    other_every_s: int, at_most_s: int
) -> None:
    took_s = is_started_within(waiting(), 400, 1, other_every_s)

    assert took_s is not None
    assert 55 <= took_s <= at_most_s


def test_of_two_gangs_that_have_waited_it_out_together_one_starts_and_the_other_lets_it_have_its_places() -> (
    None
):
    world = starts(waiting())
    for _ in range(61):
        step(world.later(1))
        starts(world)
    world.later(6)

    starts(world)
    assert "start-gang" not in [*step(world), *step(world), *step(world)]
    world.later(5)
    assert "start-gang" in [*step(world), *step(world), *step(world)]
