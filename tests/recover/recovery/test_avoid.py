"""A proven fault keeps the gang off its node for as long as the fault is open; a suspicion is only a
preference."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from detectors.wire.contract import Fault, Severity
from detectors.wire.training import Edge
from recover.api import Phase
from recover.model import Mark, NodeSignal, SignalKind, Template
from recover.model.actions import Create
from recover.model.modes import Mode
from tests.acting import advanced, look, only_recovery, recovering, step
from tests.builders import Worlds, cluster, gang
from tests.recover.recovery.phase_cases import CLAIM, faulted


def begun(world: Worlds) -> Mark:
    """Returns the mark that the start of the gang has written into the job."""
    advanced(world, Phase.RESUMING)
    for _ in range(3):
        if "start-gang" in step(world):
            break
    mark = world.gangs["llm-uid"].mark
    assert mark is not None
    assert mark.did == "resumed"
    return mark


def scan(world: Worlds) -> dict[str, Any]:
    (made,) = [a for a in look(world).actions if isinstance(a, Create) and a.what == "create-scan"]
    spec: dict[str, Any] = made.body["spec"]
    return spec


def crashed(**changes: Any) -> Worlds:
    """Returns a gang whose rank on n1 crashed while n1's kernel log was not read, so n1 is a suspect."""
    world = cluster(nodes=8).running(gang())
    world.blind("n1").crash(rank=1)
    return world


def test_a_node_that_is_only_suspected_is_less_preferred_and_nothing_more() -> None:
    mark = begun(recovering(crashed()))

    assert (mark.avoided, mark.suspected) == ((), ("n1",))


def test_a_degraded_node_elsewhere_is_less_preferred() -> None:
    world = crashed()
    world.finding(on="n6", code="xid-63", fault=Fault.MEMORY_DEGRADED, severity=Severity.PENDING)

    assert begun(recovering(world)).suspected == ("n1", "n6")


def test_what_training_has_outlived_is_no_suspicion() -> None:
    """Xid 61 occurred three hours and a thousand steps ago, and now a program error occurs elsewhere."""
    world = cluster(nodes=8).running(gang())
    world.finding(on="n2", code="xid-61", fault=Fault.UNKNOWN, ago_s=3 * 3600)
    (rank,) = [p for p in world.pods["llm-uid"].values() if p.node == "n2"]
    world.progress(rank, Edge.STEPPING, at=world.now - timedelta(seconds=30))

    mark = begun(recovering(world.crash(rank=1)))

    assert (mark.avoided, mark.suspected) == ((), ())


def test_a_suspicion_ends_with_a_persons_release_and_with_time() -> None:
    released = recovering(crashed())
    released.change_node("n1", released_at=released.later(1).now)
    aged = recovering(crashed())
    aged.later(aged.settings.placement.suspicion_s + 1)

    assert begun(released).suspected == begun(aged).suspected == ()


def test_after_observe_became_recover_ranks_and_scan_are_kept_off_a_broken_node() -> None:
    """The fault is too old to act on, but it is still present."""
    templates = {"Worker": Template(volumes=(CLAIM,))}
    job = gang(annotations={"rekindle.dev/checkpoint": "/ckpt"}, templates=templates)
    world = cluster(nodes=8, mode=Mode.OBSERVE).running(job).finding(on="n6", ago_s=1)
    recovering(world)
    world.later(60)
    world.mode, world.mode_since = Mode.RECOVER, world.now - timedelta(seconds=30)
    recovering(world.crash(rank=1))
    assert world.nodes["n6"].quarantine is None
    advanced(world, Phase.STOPPING)

    terms = scan(world)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms == {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n6"]}]}
        ]
    }
    world.settings = msgspec.structs.replace(world.settings, scheduling_gates=False)
    world.change_gang(annotations={})
    assert begun(world).avoided == ("n6",)


def test_a_scan_that_waits_is_made_again_once_a_further_node_is_broken() -> None:
    world = faulted(checkpoint="/ckpt")
    advanced(world, Phase.STOPPING)
    step(world)
    assert "affinity" not in str(world.scans)
    world.pods["llm-uid"].clear()
    advanced(world, Phase.CHOOSING)
    world.finding(on="n6")

    assert step(world) == ["remove-scan"]
    assert scan(world)["affinity"]


def kept_in_service(world: Worlds) -> Worlds:
    """Returns a world whose broken n1 is never cordoned, because n7 uses up the limit of one node."""
    recovering(world.finding(on="n7"))
    recovering(world.running(gang()).finding(on="n1"))
    assert world.nodes["n7"].unschedulable
    assert not world.nodes["n1"].unschedulable
    return world


def test_a_broken_node_that_a_limit_kept_in_service_is_avoided() -> None:
    assert begun(kept_in_service(cluster(nodes=8))).avoided == ("n1",)


def rebooted(world: Worlds) -> None:
    health = world.health["n1"]
    status = msgspec.structs.replace(health.status, boot_id="another", findings=[])
    world.health["n1"] = msgspec.structs.replace(health, status=status)
    world.change_node("n1", boot_id="another")


def reset(world: Worlds) -> None:
    health = world.health["n1"]
    cleared = [msgspec.structs.replace(f, cleared_at=world.now) for f in health.status.findings]
    status = msgspec.structs.replace(health.status, findings=cleared)
    world.health["n1"] = msgspec.structs.replace(health, status=status)


def given_back(world: Worlds) -> None:
    world.change_node("n1", released_at=world.now)


@pytest.mark.parametrize("repair", [rebooted, reset, given_back])
def test_once_it_is_repaired_it_is_excluded_no_more(repair: Any) -> None:
    """The node was never cordoned, so nobody could uncordon it."""
    world = kept_in_service(cluster(nodes=8))
    advanced(world, Phase.CHOOSING)
    repair(world.later(60))

    mark = begun(world)

    assert mark.avoided == ()
    assert only_recovery(world).status.avoid_nodes == []


def test_a_gang_that_tolerates_everything_is_kept_off_nodes_that_are_not_ready() -> None:
    """Kubernetes' own taint keeps any other gang off such nodes."""
    plain = {"Worker": Template()}
    tolerant = {"Worker": Template(tolerations=({"operator": "Exists"},))}
    stays = {"Worker": Template(tolerations=({"operator": "Exists", "effect": "NoExecute"},))}
    for templates, avoided in ((tolerant, ("n6",)), (plain, ()), (stays, ())):
        world = cluster(nodes=8).running(gang(templates=templates)).not_ready("n6")
        world.nodes["n9"] = msgspec.structs.replace(world.nodes["n6"], name="n9", is_accelerated=False)

        assert begun(recovering(world.crash(rank=1))).avoided == avoided


def test_the_affinity_is_written_with_host_names_and_without_what_people_exclude_themselves() -> None:
    world = kept_in_service(cluster(nodes=8))
    world.change_node("n1", labels={"kubernetes.io/hostname": "host-1"})
    assert begun(world).avoided == ("host-1",)

    theirs = kept_in_service(cluster(nodes=8))
    template = msgspec.structs.replace(gang().templates[""], avoided=("n1",))
    assert begun(theirs.change_gang(templates={"Worker": template})).avoided == ()


def test_nodes_that_others_suspect_are_less_preferred_and_not_if_they_say_it_of_all() -> None:
    told = (NodeSignal(SignalKind.TAINT, "any", "", "any", Severity.SUSPECT, Fault.HOST_HARDWARE),)

    some = crashed().change_node("n6", signals=told)
    assert begun(recovering(some)).suspected == ("n1", "n6")

    every = crashed()
    for name in every.nodes:
        every.change_node(name, signals=told)
    mark = begun(recovering(every))
    assert (mark.avoided, mark.suspected) == ((), ("n1",))
