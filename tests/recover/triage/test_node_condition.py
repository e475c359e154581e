"""Tests the condition AcceleratorHealthy: its content, when it is written, and that it has no harmful
effect."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from detectors.wire.contract import Coverage, CoverageState, Family, Fault, Remedy, Severity, Source
from detectors.wire.resource import StrategicPatch
from recover.api.reasons import NodeReason
from recover.k8s.kinds import NODES
from recover.model import AgentPod, OwnCondition, Refusal
from recover.model.actions import Patch
from recover.model.modes import Mode
from recover.runtime.node_conditions import NodeConditions
from recover.triage.node_condition import AT_ONCE_MAX, REFUSED_NODES_MAX, REFUSED_S, STEADY_S
from recover.triage.plan import plan
from tests.acting import recovering
from tests.builders import Worlds, cluster, gang
from tests.rights import lacking


class Told:
    """The loop of the condition, with an API server that accepts its writes."""

    def __init__(self, world: Worlds, *, is_on: bool = True) -> None:
        self.world = world
        self._loop = NodeConditions(is_on=is_on)

    def look(self) -> list[str]:
        """Runs one reconcile pass, and applies its plan. Returns the nodes that were written."""
        found = self._loop.decide(self.world.world(), self.world.now)
        for action in found.actions:
            assert isinstance(action, Patch)
            assert lacking(action) == []
            assert (action.resource, action.subresource) == (NODES, "status")
            assert action.patch_type == StrategicPatch
            assert action.uid == self.world.nodes[action.name].uid
            self._write(action)
        return [action.name for action in found.actions if isinstance(action, Patch)]

    def _write(self, action: Patch) -> None:
        assert action.body.keys() == {"status"}
        (condition,) = action.body["status"]["conditions"]
        assert condition["type"] == "AcceleratorHealthy"
        told = None
        if condition.get("$patch") != "delete":
            assert action.version, "a newer Node may say otherwise"
            told = OwnCondition(condition["status"], condition["reason"], condition["message"])
        self.world.change_node(action.name, told=told)

    def settled(self) -> Told:
        """Lets the loop write everything that lasts long enough."""
        self.look()
        self.world.later(STEADY_S)
        self.look()
        return self

    def of(self, node: str) -> tuple[str, str]:
        told = self.world.nodes[node].told
        assert told is not None
        return told.status, told.reason


def degraded() -> Worlds:
    world = cluster(8).running(gang())
    return recovering(
        world.finding(on="n1", code="xid-63", fault=Fault.MEMORY_DEGRADED, severity=Severity.PENDING)
    )


def unwatched(**changes: Any) -> Worlds:
    world = cluster(8)
    health = world.health["n1"]
    status = msgspec.structs.replace(health.status, **changes)
    world.health["n1"] = msgspec.structs.replace(health, status=status)
    return world


def without_agent() -> Worlds:
    world = cluster(8)
    world.settings = msgspec.structs.replace(world.settings, agents_are_pods=True)
    world.agents = {name: AgentPod(name, f"{name}-agent", ready=True) for name in world.nodes if name != "n1"}
    return world


BLIND = Coverage(
    source=Source.KMSG,
    state=CoverageState.BLIND,
    since=cluster().now,
    why="permission denied",
    families=[Family.GPU_XID],
)


@pytest.mark.parametrize(
    ("world", "expected"),
    [
        (cluster(8), ("True", NodeReason.NO_FAULT)),
        (cluster(8).finding(on="n1"), ("False", NodeReason.FAULT_FOUND)),
        (cluster(8, mode=Mode.OBSERVE).finding(on="n1"), ("False", NodeReason.FAULT_FOUND)),
        (recovering(cluster(8).finding(on="n1")), ("False", NodeReason.QUARANTINED)),
        (recovering(cluster(8).finding(on="n1").blind("n1")), ("False", NodeReason.QUARANTINED)),
        (degraded(), ("True", NodeReason.DEGRADED)),
        (
            cluster(8).finding(on="n1", severity=Severity.PENDING, remedy=Remedy.DRAIN_AND_RESET),
            ("False", NodeReason.FAULT_FOUND),
        ),
        (
            cluster(8).finding(on="n1", fault=Fault.UNKNOWN, severity=Severity.SUSPECT),
            ("True", NodeReason.NO_FAULT),
        ),
        (cluster(8).blind("n1"), ("Unknown", NodeReason.NOT_WATCHED)),
        (unwatched(coverage=[]), ("Unknown", NodeReason.NOT_WATCHED)),
        (unwatched(coverage=[BLIND]), ("Unknown", NodeReason.NOT_WATCHED)),
        (unwatched(boot_id="an earlier one"), ("Unknown", NodeReason.NOT_WATCHED)),
        (without_agent(), ("Unknown", NodeReason.NOT_WATCHED)),
    ],
    ids=[
        "nothing seen",
        "fault",
        "fault in observe mode",
        "quarantined",
        "quarantined, then blind",
        "degraded",
        "reset pending",
        "suspicion",
        "blind",
        "no coverage",
        "coverage of a blind source",
        "agent of an earlier boot",
        "without an agent",
    ],
)
def test_the_condition_says_what_is_known_of_the_node(world: Worlds, expected: tuple[str, str]) -> None:
    told = Told(world).settled()

    assert told.of("n1") == expected
    assert told.of("n2") == ("True", NodeReason.NO_FAULT)


def test_nothing_is_written_while_nothing_changes_and_no_decision_reads_the_condition() -> None:
    world = cluster(8).running(gang())
    before = plan(world.world(), world.settings, world.now)
    told = Told(world).settled()

    for _ in range(20):
        world.later(3600)
        assert told.look() == []
    world.change_node("n1", told=OwnCondition("False", "FaultFound", "somebody else has written it"))
    assert plan(world.world(), world.settings, world.now).chains == before.chains == ()


def test_an_agent_that_comes_and_goes_causes_no_write_and_one_that_stays_away_one() -> None:
    world = cluster(8)
    told = Told(world).settled()
    health = world.health["n1"]

    for turn in range(300):
        world.later(1)
        world.blind("n1") if turn % 20 else world.health.update(n1=health)
        assert told.look() == []
    world.blind("n1")
    writes = 0
    for _ in range(180):
        world.later(1)
        writes += len(told.look())
    assert writes == 1


def test_a_finding_that_flaps_makes_the_condition_false_once_and_true_once() -> None:
    world = cluster(8, mode=Mode.OBSERVE)
    told = Told(world).settled()
    health = world.health["n1"]
    statuses = []

    for turn in range(400):
        world.later(1)
        world.health["n1"] = health
        if turn < 300 and turn % 2:
            world.finding(on="n1", code=f"xid-{79 + turn % 3}")
        if told.look():
            statuses.append(told.of("n1")[0])

    assert statuses == ["False", "True"]


def test_a_full_cluster_is_told_in_batches_and_each_node_once() -> None:
    world = cluster(3 * AT_ONCE_MAX)
    told = Told(world)
    told.look()
    world.later(STEADY_S)

    written = [told.look() for _ in range(4)]

    assert [len(names) for names in written] == [AT_ONCE_MAX] * 3 + [0]
    assert len({name for names in written for name in names}) == 3 * AT_ONCE_MAX


def test_while_it_is_off_nothing_is_written_and_what_stands_is_removed() -> None:
    world = cluster(8)
    assert Told(world, is_on=False).settled().look() == []

    Told(world).settled()
    world.change_node("n2", annotations={"rekindle.dev/hold": "true"})
    off = Told(world, is_on=False)
    assert sorted(off.look()) == sorted(world.nodes)
    assert all(node.told is None for node in world.nodes.values())
    assert off.settled().look() == []


def test_a_node_without_accelerators_has_no_condition_and_a_held_one_keeps_its_own() -> None:
    world = cluster(8).change_node("n0", is_accelerated=False)
    told = Told(world).settled()
    assert world.nodes["n0"].told is None

    world.change_node("n1", is_accelerated=False)
    world.change_node("n2", annotations={"rekindle.dev/hold": "true"}).blind("n2")
    told.settled()
    assert world.nodes["n1"].told is None
    assert told.of("n2") == ("True", NodeReason.NO_FAULT)


def test_a_write_that_is_refused_is_tried_again_later_and_keeps_nothing_else_from_the_node() -> None:
    world = cluster(8).running(gang())
    told = Told(world)
    told.look()
    world.later(STEADY_S)
    refusal = Refusal(world.now, "403 Forbidden: any", may_pass=False)

    world.refused = {"nodes/n1/status": refusal}
    assert "n1" not in told.look()
    world.later(REFUSED_S)
    assert told.look() == ["n1"]

    world.refused = {
        f"nodes/n{number}/status": Refusal(world.now, "403", may_pass=True) for number in range(3)
    }
    assert len(world.refused) == REFUSED_NODES_MAX
    assert recovering(world.finding(on="n1")).nodes["n1"].unschedulable, "the quarantine is another write"
    assert told.look() == [], "the API server refuses this of every node"
    found = NodeConditions(is_on=True).decide(world.world(), world.now)
    assert found.requeue_after_s == REFUSED_S


def test_a_change_of_the_reason_leaves_the_time_of_the_status() -> None:
    world = cluster(8)
    loop = NodeConditions(is_on=True)
    (first,) = loop.decide(world.finding(on="n1").world(), world.now).actions
    assert isinstance(first, Patch)
    (condition,) = first.body["status"]["conditions"]
    assert condition["lastTransitionTime"] == condition["lastHeartbeatTime"]

    world.change_node("n1", told=OwnCondition("False", condition["reason"], condition["message"]))
    recovering(world)
    assert "n1" not in [getattr(one, "name", "") for one in loop.decide(world.world(), world.now).actions]
    world.now += timedelta(seconds=STEADY_S)
    written = {
        one.name: one for one in loop.decide(world.world(), world.now).actions if isinstance(one, Patch)
    }
    (condition,) = written["n1"].body["status"]["conditions"]
    assert condition["reason"] == NodeReason.QUARANTINED
    assert "lastTransitionTime" not in condition
