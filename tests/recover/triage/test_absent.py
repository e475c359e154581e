"""Absence from a cache proves nothing: tests what decisions ask, and what they do not do before the
answer."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from recover.api import IncidentPhase, Phase
from recover.api.reasons import Reason
from recover.k8s.kinds import NODES, PODS, PYTORCHJOBS
from recover.model.actions import Action, ConfirmGone, ConfirmListed, Patch
from recover.triage.absent import unconfirmed
from recover.workloads import WORKLOADS
from tests.acting import advanced, look, only_recovery, recovering, step
from tests.builders import Worlds, cluster, gang


def without_word(world: Worlds, *nodes: str) -> Worlds:
    """Removes the Nodes from the cache, while no live read has answered whether they exist."""
    for node in nodes:
        del world.nodes[node]
    return world


def questions(actions: tuple[Action, ...]) -> list[str]:
    return [action.name for action in actions if isinstance(action, ConfirmGone)]


def test_a_rank_on_a_node_that_is_not_in_the_cache_is_not_lost_before_a_live_read() -> None:
    world = without_word(cluster(nodes=8).running(gang(ranks=4)), "n3")

    decision = world.decide()

    assert decision.restarts == []
    assert questions(decision.plan.actions) == ["n3"]

    world.gone_nodes.add("n3")
    assert world.decide().restarts == ["llm"]
    assert questions(world.decide().plan.actions) == []


def test_a_node_in_the_cache_exists_whatever_an_older_read_said() -> None:
    world = cluster(nodes=8).running(gang(ranks=4))
    world.gone_nodes.add("n3")

    assert world.decide().restarts == []


def test_of_a_gang_that_is_recovered_its_nodes_are_looked_for_also_when_no_pod_is_left_there() -> None:
    """An autoscaler drains a node before it deletes the node, and a spare may then replace the node."""
    world = recovering(cluster(nodes=8).running(gang(ranks=4)).finding(on="n1"))
    without_word(world, "n3").pods["llm-uid"].clear()

    assert questions(world.decide().plan.actions) == ["n3"]


def test_an_incident_of_a_node_stays_open_until_a_live_read_finds_no_such_node() -> None:
    world = recovering(cluster(40).finding(on="n1"))
    without_word(world, "n1").health.pop("n1")

    recovering(world)
    (incident,) = world.incidents.values()
    assert incident.status.phase is IncidentPhase.OPEN
    assert world.gone_nodes == {"n1"}

    recovering(world)
    (incident,) = world.incidents.values()
    assert (incident.status.phase, incident.status.unanswered) == (IncidentPhase.CLOSED, True)


def test_nodes_of_which_nothing_speaks_are_not_asked_for() -> None:
    world = without_word(cluster(nodes=8).running(gang(ranks=4)), "n6", "n7")

    assert list(unconfirmed(world.world())) == []


def test_a_pod_on_a_node_that_is_not_in_the_cache_is_not_taken_away_by_force() -> None:
    world = recovering(cluster(nodes=8).running(gang()).finding(on="n1"))
    while "stop-gang" not in step(world):
        pass
    pod = world.pods["llm-uid"]["llm-3-uid"]
    still = msgspec.structs.replace(pod, node="n-joined", deleting_since=world.now)
    world.pods["llm-uid"] = {pod.uid: still}

    wrote = [step(world), step(world)]

    assert "free-pod" not in wrote[1], (only_recovery(world).status.phase, wrote)


def test_a_node_that_is_gone_is_read_once_more_right_before_its_pods_are_removed_by_force() -> None:
    world = recovering(cluster(nodes=8).running(gang()).finding(on="n1"))
    while "stop-gang" not in step(world):
        pass
    pod = world.pods["llm-uid"]["llm-3-uid"]
    world.pods["llm-uid"] = {pod.uid: msgspec.structs.replace(pod, deleting_since=world.now)}
    world.without_node("n3")
    step(world)
    assert only_recovery(world).status.phase is Phase.FENCING

    (chain,) = look(world.later(world.settings.timing.fence_wait_s)).chains

    assert [action.what for action in chain if not isinstance(action, Patch)][:1] == ["confirm-node-gone"]
    assert isinstance(chain[0], ConfirmGone)
    assert (chain[0].resource, chain[0].name) == (NODES, "n3")


def test_a_recovery_ends_for_a_missing_job_only_after_a_live_read_of_that_very_job() -> None:
    world = recovering(cluster(nodes=8).running(gang()).finding(on="n1"))
    advanced(world, Phase.CHOOSING)
    del world.gangs["llm-uid"]

    (chain,) = look(world).chains

    read, ended = chain
    assert read == ConfirmGone(
        what="confirm-job-gone", resource=PYTORCHJOBS, name="llm", namespace="ml", uid="llm-uid"
    )
    assert isinstance(ended, Patch)
    assert ended.body["status"]["reason"] == Reason.JOB_GONE


def test_a_job_that_cannot_be_read_is_not_gone() -> None:
    world = recovering(cluster(nodes=8).running(gang()).finding(on="n1"))
    advanced(world, Phase.CHOOSING)
    del world.gangs["llm-uid"]
    world.unread = {PYTORCHJOBS: {"ml/llm"}}

    assert step(world) == []
    assert only_recovery(world).active


def test_a_job_of_a_kind_that_this_version_does_not_know_is_not_gone() -> None:
    world = recovering(cluster(nodes=8).running(gang()).finding(on="n1"))
    ((key, recovery),) = world.recoveries.items()
    ref = msgspec.structs.replace(recovery.spec.gang, kind="RayJob")
    spec = msgspec.structs.replace(recovery.spec, gang=ref)
    world.recoveries[key] = msgspec.structs.replace(recovery, spec=spec)
    del world.gangs["llm-uid"]

    assert look(world).actions == ()


def test_before_a_start_the_gangs_pods_are_listed_live() -> None:
    world = recovering(cluster(nodes=8).running(gang()).finding(on="n1"))
    advanced(world, Phase.RESUMING)
    while "start-gang" not in [action.what for action in look(world.later(1)).actions]:
        step(world)

    whats = [action.what for action in look(world).actions]
    (listed,) = [action for action in look(world).actions if isinstance(action, ConfirmListed)]

    assert whats.index("confirm-pods-ended") < whats.index("start-gang")
    assert (listed.resource, listed.namespace) == (PODS, "ml")
    assert listed.labels == "training.kubeflow.org/job-name=llm"


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_pods_of_each_framework_can_be_listed_by_their_jobs_name(workload: object) -> None:
    label = getattr(workload, "pod_label", "")
    assert label.endswith("-name")
    assert "/" in label


def test_a_rank_on_a_node_that_has_joined_a_moment_ago_is_not_lost() -> None:
    world = cluster(nodes=8).running(gang(ranks=4))
    pod = world.pods["llm-uid"]["llm-3-uid"]
    young = world.now - timedelta(seconds=2)
    world.pods["llm-uid"][pod.uid] = msgspec.structs.replace(pod, node="n-joined", created=young)

    assert world.decide().restarts == []
