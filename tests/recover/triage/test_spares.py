"""Tests spare nodes: Rekindle uses one for each node that is out of service, until that node returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from detectors.wire.contract import Fault, ObjectMeta, Severity
from detectors.wire.fitting import limit
from recover.api import ActionRecord, Outcome, Phase
from recover.api.reasons import Reason
from recover.model import NodeSignal, PodPhase, SignalKind, Template
from recover.model.modes import Mode
from recover.triage.spare_node import SPARE, SPARE_FOR
from recover.triage.spares import keep_spares
from tests.acting import advanced, end_pods, only_recovery, recovering, step
from tests.builders import Worlds, cluster, gang
from tests.facts import names
from tests.recover.triage.spare_cases import (
    OURS,
    PEOPLES,
    POOL,
    add_label,
    comes_to_rest,
    fails,
    incident_of,
    kept,
    lent,
    released,
    reserve,
    spares,
    told,
)

# --- keeping, using and returning a spare -----------------------------------------------------------------


def test_a_labelled_node_is_kept_free_and_other_taints_stay() -> None:
    world = cluster()
    add_label(world, "n1", "yes")
    add_label(world, "n2", "false")
    world.change_node("n1", taints=(PEOPLES,))

    assert kept(world) == ["keep-spare n1"]
    assert world.nodes["n1"].taints == (PEOPLES, OURS)
    assert kept(world) == []


def test_a_quarantine_lets_one_spare_in_and_the_incident_tells_which() -> None:
    world = fails(spares("n7", "n8").running(gang()), "n1")

    assert comes_to_rest(world) == ["lift-spare n7"]
    assert lent(world) == {"n7": "n1"}
    assert world.nodes["n7"].taints == ()
    assert world.nodes["n7"].annotations[SPARE_FOR] == incident_of(world, "n1").metadata.name
    ((outcome, reason, message),) = told(world, "n1")
    assert (outcome, reason) == (Outcome.DONE, "")
    assert names(message, "n7", "n1")


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.RECOVER])
def test_two_names_of_242_characters_still_fit_into_what_the_incident_tells(mode: Mode) -> None:
    """The API server refuses the whole Incident if one message is too long."""
    long_names = {name: f"{name}.{'long.' * 48}".strip(".") for name in ("n1", "n7")}
    assert [len(name) for name in long_names.values()] == [242, 242]
    world = spares("n7", mode=mode).change_node("n7", taints=(OURS,))
    for short, name in long_names.items():
        node = world.nodes.pop(short)
        world.nodes[name] = msgspec.structs.replace(node, name=name)
        health = world.health.pop(short)
        world.health[name] = msgspec.structs.replace(health, metadata=ObjectMeta(name=name))

    fails(world, long_names["n1"])
    comes_to_rest(world)

    ((outcome, _, message),) = told(world, long_names["n1"])
    assert outcome is (Outcome.DONE if mode is Mode.RECOVER else Outcome.WOULD)
    assert len(message) == limit(ActionRecord, "message")
    assert long_names["n7"] in message
    assert long_names["n1"][:200] in message


def test_when_the_node_is_back_the_spare_is_one_again_at_once() -> None:
    world = fails(spares("n7"), "n1")
    before = world.nodes["n7"].taints
    comes_to_rest(world)
    released(world, "n1")

    assert comes_to_rest(world) == ["return-spare n7"]
    assert (lent(world), world.nodes["n7"].taints) == ({}, before)
    assert SPARE_FOR not in world.nodes["n7"].annotations


def test_two_nodes_out_let_two_spares_in_and_a_third_finds_none_which_is_told() -> None:
    world = fails(spares("n7", "n8"), "n1", "n2", "n3")

    comes_to_rest(world)

    assert lent(world) == {"n7": "n1", "n8": "n2"}
    ((outcome, reason, message),) = told(world, "n3")
    assert (outcome, reason) == (Outcome.REFUSED, Reason.NO_SPARE)
    assert names(message, "pool h200", "nvidia.com/gpu: 8", "n3", 2)

    released(world, "n1")
    comes_to_rest(world)

    assert lent(world) == {"n7": "n3", "n8": "n2"}
    assert [outcome for outcome, _, _ in told(world, "n3")] == [Outcome.DONE]


def test_a_degraded_node_that_still_takes_pods_needs_no_spare() -> None:
    world = spares("n7").finding(on="n1", fault=Fault.MEMORY_DEGRADED, severity=Severity.PENDING)
    recovering(world.later(20))
    assert world.nodes["n1"].quarantine is not None

    assert comes_to_rest(world) == []


def test_a_spare_that_is_quarantined_in_service_is_replaced_by_another() -> None:
    world = fails(spares("n7", "n8"), "n1")
    comes_to_rest(world)

    fails(world, "n7")
    done = comes_to_rest(world)

    assert done == ["lift-spare n8", "return-spare n7"]
    assert lent(world) == {"n8": "n1"}
    assert world.nodes["n7"].quarantine is not None
    assert OURS in world.nodes["n7"].taints


def test_a_spare_that_fails_in_reserve_leaves_no_gap() -> None:
    world = fails(spares("n7", "n8"), "n7")

    assert comes_to_rest(world) == []
    assert reserve(world) == ["n7", "n8"]


# --- choice of the spare ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "unfit",
    [
        {"ready": False},
        {"unschedulable": True},
        {"labels": {SPARE: "true", POOL: "a100"}},
        {"labels": {SPARE: "true", POOL: "h200", "rekindle.dev/managed": "false"}},
        {"allocatable": {"nvidia.com/gpu": 7}},
        {"allocatable": {}},
        {"allocatable": {"amd.com/gpu": 8}},
        {"taints": (OURS, PEOPLES)},
    ],
)
def test_a_spare_that_would_not_do_is_passed_over(unfit: Mapping[str, Any]) -> None:
    world = spares("n7", "n8").change_node("n7", **unfit)

    comes_to_rest(fails(world, "n1"))

    assert lent(world) == {"n8": "n1"}


def test_for_a_node_that_has_lost_all_its_devices_a_spare_with_devices_is_found() -> None:
    world = spares("n7", "n8").change_node("n7", allocatable={"nvidia.com/gpu": 0})
    world.change_node("n1", capacity={"nvidia.com/gpu": 0})

    comes_to_rest(fails(world, "n1"))

    assert lent(world) == {"n8": "n1"}


def test_a_held_spare_is_passed_over_and_stays_as_it_is() -> None:
    world = spares("n7", "n8")
    notes = world.nodes["n7"].annotations
    world.change_node("n7", annotations={**notes, "rekindle.dev/hold": "true"})

    comes_to_rest(fails(world, "n1"))

    assert lent(world) == {"n8": "n1"}
    assert keep_spares(world.world(), world.now).requeue_after_s is not None, "a hold may end by time alone"


def test_a_spare_with_an_open_finding_is_passed_over() -> None:
    world = spares("n7", "n8").finding(on="n7", severity=Severity.PENDING)

    comes_to_rest(fails(world, "n1"))

    assert lent(world) == {"n8": "n1"}


def test_a_spare_whose_fault_has_no_incident_yet_is_passed_over() -> None:
    world = fails(spares("n7", "n8"), "n1").finding(on="n7")

    comes_to_rest(world)

    assert lent(world) == {"n8": "n1"}


def test_a_spare_on_which_somebody_still_runs_is_passed_over() -> None:
    world = spares("n7", "n8").running(gang("other", ranks=1), first_node=7)

    comes_to_rest(fails(world, "n1"))

    assert lent(world) == {"n8": "n1"}


def test_a_rank_without_accelerators_keeps_no_spare_from_standing_in() -> None:
    """Anybody who may create a pod may place it on a spare by a toleration."""
    world = spares("n7").running(gang("other", ranks=1), first_node=7)
    pods = world.pods["other-uid"]
    for uid, pod in pods.items():
        pods[uid] = msgspec.structs.replace(pod, accelerators=0)

    comes_to_rest(fails(world, "n1"))

    assert lent(world) == {"n7": "n1"}


def test_a_taint_of_peoples_that_the_failed_node_has_too_keeps_no_spare_out() -> None:
    world = spares("n7").change_node("n1", taints=(PEOPLES,)).change_node("n7", taints=(PEOPLES, OURS))

    comes_to_rest(fails(world, "n1"))

    assert world.nodes["n7"].taints == (PEOPLES,)


# --- dead nodes -------------------------------------------------------------------------------------------


def dead(world: Worlds, name: str) -> Worlds:
    """Makes the node not ready. The opted-in gang has lost its rank there."""
    world.not_ready(name).stall()
    return recovering(world)


def test_a_dead_node_that_a_recovery_avoids_lets_a_spare_in_until_it_is_ready_again() -> None:
    world = dead(spares("n7").running(gang()), "n1")
    assert world.recoveries

    assert comes_to_rest(world) == ["lift-spare n7"]
    world.recoveries.clear()
    assert comes_to_rest(world) == [], "it has no other node to come back to"

    world.change_node("n1", ready=True)
    assert comes_to_rest(world) == ["return-spare n7"]


def test_a_node_that_is_ready_again_keeps_its_spare_while_the_gang_is_still_kept_off_it() -> None:
    world = dead(spares("n7").running(gang()), "n1")
    comes_to_rest(world)

    world.change_node("n1", ready=True)
    assert comes_to_rest(world) == []

    world.recoveries.clear()
    assert comes_to_rest(world) == ["return-spare n7"]


def test_a_dead_node_without_a_gang_that_is_recovered_lets_no_spare_in() -> None:
    world = spares("n7").running(gang(opted_in=False)).not_ready("n1")

    assert comes_to_rest(recovering(world)) == []


def test_while_its_gang_is_recovered_the_spare_outlasts_the_dead_nodes_deletion() -> None:
    world = dead(spares("n7").running(gang()), "n1")
    comes_to_rest(world)
    world.without_node("n1")
    assert comes_to_rest(world) == []

    world.recoveries.clear()

    assert comes_to_rest(world) == ["return-spare n7"]


def test_a_node_that_is_deleted_lets_in_a_spare_like_its_gangs_other_nodes() -> None:
    world = spares("n7", "n8").running(gang())
    world.change_node("n7", allocatable={"nvidia.com/gpu": 4})
    world.without_node("n1")
    recovering(recovering(world))

    assert comes_to_rest(world) == ["lift-spare n8"]
    world.recoveries.clear()
    assert comes_to_rest(world) == ["return-spare n8"]


def nowhere(world: Worlds, *, accelerators: int, has_run: bool) -> Worlds:
    """Adds a rank that names a node that does not exist."""
    rank = next(iter(world.pods["llm-uid"].values()))
    world.pods["llm-uid"]["nowhere"] = msgspec.structs.replace(
        rank,
        name="llm-worker-9",
        uid="nowhere",
        node="n99",
        created=world.now,
        phase=PodPhase.RUNNING if has_run else PodPhase.PENDING,
        containers=rank.containers if has_run else (),
        accelerators=accelerators,
    )
    world.gone_nodes.add("n99")
    return world


@pytest.mark.parametrize("is_later", [False, True], ids=["first attempt", "later attempt"])
@pytest.mark.parametrize(
    ("accelerators", "has_run", "done"),
    [(0, False, []), (8, False, []), (0, True, []), (8, True, ["lift-spare n9"])],
)
def test_a_node_that_no_rank_is_known_to_have_held_accelerators_on_lets_no_spare_in(
    accelerators: int, has_run: bool, done: list[str], is_later: bool
) -> None:
    """Anybody who may create a pod may write the name of any node into it. Only the kubelet of a real node
    reports that the pod's containers run."""
    world = spares("n9").running(gang())
    if is_later:
        advanced(recovering(world.crash(rank=1)), Phase.VERIFYING)

    nowhere(world.later(60), accelerators=accelerators, has_run=has_run)
    recovering(recovering(world.later(60)))
    if is_later:
        step(world)

    recovery = only_recovery(world)
    assert recovery.status.attempt == (2 if is_later else 1)
    assert "n99" in recovery.nodes
    assert comes_to_rest(world) == done


def test_a_recovery_that_an_earlier_version_wrote_keeps_its_spare() -> None:
    world = recovering(recovering(spares("n9").running(gang()).without_node("n1")))
    (name, recovery), *_ = world.recoveries.items()
    older = msgspec.structs.replace(recovery.spec, nodes_without_devices=[])
    world.recoveries[name] = msgspec.structs.replace(recovery, spec=older)

    assert comes_to_rest(world) == ["lift-spare n9"]


# --- broken nodes that stay in service --------------------------------------------------------------------


def test_a_broken_node_that_a_limit_keeps_in_service_lets_a_spare_in_while_a_gang_is_kept_off_it() -> None:
    """At most one of six nodes is quarantined. The gang leaves both broken nodes, and needs two others."""
    world = recovering(spares("n4", "n5", nodes=6).running(gang()).finding(on="n1").finding(on="n2"))
    assert not world.nodes["n2"].unschedulable
    assert comes_to_rest(world) == ["lift-spare n4"]

    advanced(world, Phase.RESUMING)
    assert comes_to_rest(world) == ["lift-spare n5"]
    assert lent(world) == {"n4": "n1", "n5": "n2"}

    world.recoveries.clear()
    assert comes_to_rest(world) == ["return-spare n5"]


def test_a_broken_node_that_no_gang_is_kept_off_needs_no_spare() -> None:
    world = recovering(spares("n4", "n5", nodes=6).finding(on="n1").finding(on="n2"))

    assert comes_to_rest(world) == ["lift-spare n4"]


def test_a_spare_that_others_suspect_comes_last_and_comes_all_the_same() -> None:
    told = (NodeSignal(SignalKind.LABEL, "any", "", "any", Severity.SUSPECT, Fault.UNKNOWN),)
    world = spares("n7", "n8").running(gang()).change_node("n7", signals=told)

    fails(world, "n1")
    assert comes_to_rest(world) == ["lift-spare n8"]
    fails(world, "n2")
    assert comes_to_rest(world) == ["lift-spare n7"]


def spares_of_two_models() -> Worlds:
    """Returns nodes without a label of the pool. The spare n7 has another model of GPU than the others."""
    world = spares("n7", "n8")
    for name, node in world.nodes.items():
        product = "A100" if name == "n7" else "H200"
        labels = {key: value for key, value in node.labels.items() if key != POOL}
        world.change_node(name, labels={**labels, "nvidia.com/gpu.product": product})
    return world


def test_a_job_that_is_pinned_to_the_broken_node_keeps_no_spare_from_others() -> None:
    world = spares("n7")
    container = {"name": "burn-in", "resources": {"limits": {"nvidia.com/gpu": 8}}}
    pinned = Template(containers=(container,), count=1, node_selector={"kubernetes.io/hostname": "n1"})
    world.running(gang("burn-in", templates={"": pinned}), first_node=1)

    comes_to_rest(fails(world, "n1"))

    assert lent(world) == {"n7": "n1"}


def test_a_gang_of_which_only_the_leader_is_pinned_still_chooses_the_spare_of_its_ranks() -> None:
    world = spares_of_two_models()
    container = {"name": "train", "resources": {"limits": {"nvidia.com/gpu": 8}}}
    leader = Template(containers=({"name": "lead"},), count=1, node_selector={"kubernetes.io/hostname": "n1"})
    workers = Template(containers=(container,), count=3, node_selector={"nvidia.com/gpu.product": "H200"})
    world.running(gang(templates={"Master": leader, "Worker": workers}))

    comes_to_rest(fails(world, "n1"))

    assert lent(world) == {"n8": "n1"}


@pytest.mark.parametrize(
    "rules",
    [
        {"node_selector": {"nvidia.com/gpu.product": "H200"}},
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["H200"]}
                                ]
                            }
                        ]
                    }
                }
            }
        },
    ],
)
def test_a_spare_that_the_nodes_gang_may_not_use_is_passed_over(rules: Mapping[str, Any]) -> None:
    """On bare machines nodes have no label of a pool, and a job chooses the model of its GPUs by a label."""
    world = spares_of_two_models()
    container = {"name": "train", "resources": {"limits": {"nvidia.com/gpu": 8}}}
    leader = Template(containers=({"name": "lead"},), count=1)
    world.running(
        gang(
            templates={
                "Master": leader,
                "Worker": msgspec.structs.replace(Template(containers=(container,), count=3), **rules),
            }
        )
    )

    comes_to_rest(fails(world, "n1"))

    assert lent(world) == {"n8": "n1"}

    comes_to_rest(fails(world, "n2"))

    assert lent(world) == {"n8": "n1"}
    ((outcome, reason, message),) = told(world, "n2")
    assert (outcome, reason) == (Outcome.REFUSED, Reason.NO_SPARE)
    assert names(message, "n2", 2)
    end_pods(world)
    world.recoveries.clear()
    world.gangs.clear()

    comes_to_rest(world)

    assert lent(world) == {"n7": "n2", "n8": "n1"}, "no gang waits for the node any more"
