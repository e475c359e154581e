"""Tests Stopping and Fencing: until nothing of the old attempt runs any more."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from detectors.wire.contract import Finding
from recover.api import Phase
from recover.api.reasons import Reason
from recover.k8s.kinds import JOBS, NODES
from recover.model import Container, PodPhase, Taint, Terminal, Volume, VolumeKind
from recover.model.actions import Delete, Emit
from tests.acting import (
    acts,
    advanced,
    end_pods,
    look,
    only_recovery,
    recovering,
    start_pods,
    step,
)
from tests.builders import NOW, Worlds, cluster, gang
from tests.facts import names
from tests.recover.recovery.phase_cases import CLAIM, faulted

# --- stopping ---------------------------------------------------------------------------------------------


def test_consent_that_is_withdrawn_before_the_stop_is_heard_and_the_gang_is_watched_on() -> None:
    world = faulted()
    advanced(world, Phase.STOPPING)
    world.change_gang(labels={"rekindle.dev/auto-recovery": "disabled"})

    assert step(world) == ["recovery-failed"]
    assert only_recovery(world).status.reason == Reason.NOT_OPTED_IN

    world.change_gang(labels={"rekindle.dev/auto-recovery": "enabled"}).later(600).crash(rank=2)
    assert world.decide().restarts == ["llm"]


def test_a_gang_that_somebody_starts_again_right_after_the_stop_is_left_to_them() -> None:
    world = faulted()
    advanced(world, Phase.STOPPING)
    step(world)
    world.change_gang(suspended=False)

    step(world)

    status = only_recovery(world).status
    assert (status.phase, status.reason) == (Phase.ESCALATED, Reason.FOREIGN_OWNER)


def test_the_next_fault_of_a_gang_that_a_person_started_again_is_seen_beside_a_failed_pod_of_before() -> None:
    world = recovering(cluster(nodes=8).running(gang()).crash(rank=1))
    advanced(world, Phase.STOPPING)
    step(world)
    end_pods(world, keep_failed=True)
    world.change_gang(suspended=False, suspend_writer="kubectl-patch")
    step(world)
    start_pods(world.later(30))
    assert recovering(world).decide().restarts == []

    new = next(pod for pod in world.pods["llm-uid"].values() if pod.name == "llm-worker-2")
    failed = Container(name="train", running=False, exit_code=1, finished_at=world.later(60).now)
    world.pods["llm-uid"][new.uid] = msgspec.structs.replace(new, phase=PodPhase.FAILED, containers=(failed,))

    assert world.decide().restarts == ["llm"]


def test_failed_pods_that_a_job_keeps_do_not_hold_the_recovery_up() -> None:
    """A batch/v1 Job never removes its failed pods, and its new pods have other names."""
    world = recovering(cluster(nodes=8).running(gang()).crash(rank=1))
    world.change_gang(resource=JOBS)
    advanced(world, Phase.STOPPING)
    step(world)
    end_pods(world, keep_failed=True)

    step(world)

    assert [p.phase for p in world.pods["llm-uid"].values()] == [PodPhase.FAILED]
    assert only_recovery(world).status.phase is Phase.RESUMING


def test_an_ended_pod_whose_name_the_new_one_takes_must_be_gone() -> None:
    """The training-operator would count the old pod as the new rank's own failure."""
    world = recovering(cluster(nodes=8).running(gang()).crash(rank=1))
    advanced(world, Phase.STOPPING)
    step(world)
    end_pods(world, keep_failed=True)

    assert acts(look(world)) == []
    assert only_recovery(world).status.phase is Phase.STOPPING

    world.pods["llm-uid"].clear()
    step(world)
    assert only_recovery(world).status.phase is Phase.RESUMING


def test_an_ended_pod_on_a_dead_node_gives_its_name_free_without_a_proof() -> None:
    """Nothing of the pod runs any more, and only its node could have removed it."""
    world = recovering(cluster(nodes=8).running(gang()).crash(rank=1))
    advanced(world, Phase.STOPPING)
    step(world)
    end_pods(world, keep_failed=True)
    world.not_ready("n1")
    step(world)

    (freed,) = look(world).actions

    assert only_recovery(world).status.phase is Phase.FENCING
    assert isinstance(freed, Delete)
    assert (freed.name, freed.grace_s) == ("llm-worker-1", 0)


@pytest.mark.parametrize(("ranks", "within_s"), [(4, 180.0), (600, 180.0), (2000, 600.0)])
def test_a_framework_that_ends_20_pods_a_second_has_time_for_a_large_gang(
    ranks: int, within_s: float
) -> None:
    """On a real control plane, 2,000 pods of a Job still existed after 180 s, although nothing was wrong."""
    world = recovering(cluster(nodes=ranks).running(gang(ranks=ranks)).crash(rank=1))
    advanced(world, Phase.STOPPING)

    deadline = only_recovery(world).status.deadline

    assert deadline is not None
    assert (deadline - world.now).total_seconds() == pytest.approx(within_s)


def test_pods_that_never_end_on_a_living_node_are_brought_to_a_person() -> None:
    world = faulted()
    advanced(world, Phase.STOPPING)
    step(world)

    assert acts(look(world.later(179))) == []
    ended = look(world.later(1))
    step(world)

    status = only_recovery(world).status
    assert (status.phase, status.reason) == (Phase.BLOCKED, Reason.PODS_STUCK)
    assert names(status.message, 4, "llm-worker-0", "n0")
    assert [act.reason for act in ended.actions if isinstance(act, Emit)] == ["RecoveryBlocked"]
    assert step(world) == []

    world.pods["llm-uid"].popitem()
    assert step(world) == ["recovery-blocked"], "the words follow what is left"
    end_pods(world.later(120))
    assert step(world) == ["recovery-resuming"]


def test_a_stop_waits_as_long_as_the_pods_own_grace_lets_them_end() -> None:
    world = cluster(nodes=8).running(gang())
    for uid, pod in world.pods["llm-uid"].items():
        world.pods["llm-uid"][uid] = msgspec.structs.replace(pod, grace_s=300)
    recovering(world.crash(rank=1))
    advanced(world, Phase.STOPPING)
    step(world)

    assert acts(look(world.later(359))) == []
    assert step(world.later(1)) == ["recovery-blocked"]


@pytest.mark.parametrize(("grace_s", "size"), [(2**63 - 1, 4), (30, 2**62)])
def test_whatever_grace_and_size_a_job_claims_its_deadlines_are_dates(grace_s: int, size: int) -> None:
    world = cluster(nodes=8).running(gang())
    recovering(world.crash(rank=1)).change_gang(size=size)
    for uid, pod in world.pods["llm-uid"].items():
        world.pods["llm-uid"][uid] = msgspec.structs.replace(pod, grace_s=grace_s)

    advanced(world, Phase.STOPPING)

    deadline = only_recovery(world).status.deadline
    assert deadline is not None
    assert deadline - world.now <= timedelta(days=31)


def test_a_node_that_falls_silent_while_old_pods_are_waited_for_is_fenced() -> None:
    world = faulted()
    advanced(world, Phase.STOPPING)
    step(world)
    assert step(world.later(180)) == ["recovery-blocked"]
    lost = world.pods["llm-uid"]["llm-2-uid"]
    world.pods["llm-uid"] = {lost.uid: lost}

    assert step(world.not_ready("n2")) == ["recovery-fencing"]


@pytest.mark.parametrize("phase", [Phase.PLANNED, Phase.STOPPING, Phase.CHOOSING, Phase.VERIFYING])
def test_a_job_that_is_deleted_needs_nothing_more(phase: Phase) -> None:
    world = faulted()
    advanced(world, phase)
    world.change_gang(deleting=True)

    assert step(world) == ["recovery-failed"]
    assert only_recovery(world).status.reason == Reason.JOB_GONE


@pytest.mark.parametrize("phase", [Phase.PLANNED, Phase.STOPPING, Phase.RESUMING, Phase.VERIFYING])
def test_a_job_that_its_framework_fails_for_good_meanwhile_is_escalated(phase: Phase) -> None:
    world = faulted()
    advanced(world, phase)
    world.change_gang(terminal=Terminal(succeeded=False, reason="BackoffLimitExceeded"))

    step(world)

    assert only_recovery(world).status.reason == Reason.TERMINAL_JOB


# --- fencing ----------------------------------------------------------------------------------------------


def fencing(volumes: tuple[Volume, ...] = (CLAIM,)) -> Worlds:
    """Returns a recovery in Fencing. The rank on n2 cannot end, because its node is silent; all other
    ranks have ended."""
    world = faulted()
    advanced(world, Phase.STOPPING)
    step(world)
    world.not_ready("n2", ago_s=40)
    lost = msgspec.structs.replace(world.pods["llm-uid"]["llm-2-uid"], volumes=volumes)
    world.pods["llm-uid"] = {lost.uid: lost}
    assert step(world) == ["recovery-fencing"]
    return world


def test_a_pod_on_a_silent_node_is_not_freed_without_a_proof_and_a_person_is_called_in_time() -> None:
    world = fencing()
    assert acts(look(world.later(299))) == []

    step(world.later(1))

    status = only_recovery(world).status
    assert (status.phase, status.reason) == (Phase.BLOCKED, Reason.NEEDS_FENCING_PROOF)
    assert acts(look(world.later(86400))) == []


@pytest.mark.parametrize("blocked", [False, True])
def test_a_proof_frees_the_pods_at_any_time_and_the_recovery_goes_on(blocked: bool) -> None:
    world = fencing()
    if blocked:
        step(world.later(300))
    world.change_node("n2", taints=(Taint("node.kubernetes.io/out-of-service", "NoExecute"),))

    assert step(world) == ["fail-pod", "free-pod"]
    assert step(world) == ["recovery-resuming"]


def test_a_node_object_that_is_gone_proves_nothing_about_a_volume_that_one_node_may_write() -> None:
    """Anybody may delete the Node object, while the kubelet and the rank still run."""
    world = fencing().without_node("n2")

    assert acts(look(world.later(299))) == []
    assert step(world.later(1)) == ["recovery-blocked"]
    status = only_recovery(world).status
    assert status.reason == Reason.NEEDS_FENCING_PROOF
    assert names(status.message, "kubectl -n ml delete pod llm-worker-2 --force")
    assert acts(look(world.later(86400))) == []

    world.pods["llm-uid"].clear()
    assert step(world) == ["recovery-resuming"]


def test_without_a_node_object_harmless_volumes_are_given_up_after_the_wait() -> None:
    world = fencing((Volume(name="tmp", kind=VolumeKind.EMPTY_DIR),)).without_node("n2")

    assert acts(look(world.later(299))) == []
    assert step(world.later(1)) == ["fail-pod", "free-pod"]


def test_fencing_that_is_blocked_looks_again_when_time_alone_becomes_a_proof() -> None:
    scratch = Volume(name="tmp", kind=VolumeKind.EMPTY_DIR)
    world = fencing((scratch,))
    world.later(200).not_ready("n2", ago_s=0)  # the node reported for a moment
    assert step(world.later(101)) == ["recovery-blocked"]

    wait_s = look(world).requeue_after_s
    assert wait_s == pytest.approx(199)
    assert step(world.later(wait_s)) == ["fail-pod", "free-pod"]


def test_a_node_that_only_cannot_be_read_proves_nothing() -> None:
    world = fencing()
    del world.nodes["n2"]
    world.unread[NODES] = {"n2"}

    assert acts(look(world)) == []

    step(world.later(300))

    assert only_recovery(world).status.reason == Reason.NEEDS_FENCING_PROOF


def test_harmless_volumes_are_given_up_after_the_wait_and_not_before() -> None:
    scratch = Volume(name="tmp", kind=VolumeKind.EMPTY_DIR)
    world = fencing((scratch,))

    assert acts(look(world.later(259))) == []
    assert step(world.later(1)) == ["fail-pod", "free-pod"]


def test_a_pod_whose_node_is_heard_again_ends_by_itself() -> None:
    world = fencing()
    world.change_node("n2", ready=True)
    assert acts(look(world)) == []

    end_pods(world)
    assert step(world) == ["recovery-resuming"]


def test_only_machines_that_are_silent_are_to_be_switched_off() -> None:
    """A person who follows the words for a machine that reports again ends the work of others there."""
    world = fencing()
    (lost,) = world.pods["llm-uid"].values()
    world.not_ready("n3")
    world.pods["llm-uid"]["other"] = msgspec.structs.replace(lost, name="llm-worker-3", uid="o", node="n3")
    assert step(world.later(300)) == ["recovery-blocked"]
    assert names(only_recovery(world).status.message, "n2", "n3")

    step(world.change_node("n3", ready=True))
    status = only_recovery(world).status
    assert (status.phase, status.reason) == (Phase.BLOCKED, Reason.NEEDS_FENCING_PROOF)
    assert names(status.message, "n2")
    assert not names(status.message, "n3")

    step(world.change_node("n2", ready=True))
    status = only_recovery(world).status
    assert (status.phase, status.reason) == (Phase.BLOCKED, Reason.PODS_STUCK)
    assert not names(status.message, "taint")

    end_pods(world)
    assert step(world) == ["recovery-resuming"]


def test_a_boot_that_an_old_incident_remembers_proves_nothing_about_a_pod_made_since() -> None:
    world = fencing()
    (name,) = world.incidents
    incident = world.incidents[name]
    old = msgspec.structs.replace(
        incident.spec, node="n2", boot_id="a-boot-long-ago", detected_at=NOW - timedelta(days=3)
    )
    world.incidents[name] = msgspec.structs.replace(incident, spec=old)
    assert acts(look(world)) == []

    fresh = msgspec.structs.replace(old, detected_at=NOW)
    world.incidents[name] = msgspec.structs.replace(incident, spec=fresh)
    assert acts(look(world)) == ["fail-pod", "free-pod"]


def test_a_gang_that_somebody_starts_while_a_node_is_fenced_is_left_to_them() -> None:
    world = fencing()
    world.change_gang(suspended=False)

    step(world)

    assert only_recovery(world).status.reason == Reason.FOREIGN_OWNER


# --- a cause that is over before the stop -----------------------------------------------------------------


def released(world: Worlds) -> Worlds:
    world.change_node("n1", unschedulable=False, taints=())
    return world


@pytest.mark.parametrize("is_completed", [False, True], ids=["just now", "and triage has taken note"])
@pytest.mark.parametrize("phase", [Phase.PLANNED, Phase.STOPPING])
def test_a_gang_that_trains_is_not_stopped_for_a_node_that_a_person_has_released(
    phase: Phase, is_completed: bool
) -> None:
    world = faulted()
    advanced(world, phase)
    released(world.later(2))
    if is_completed:
        recovering(world)

    assert step(world) == ["recovery-failed"]

    status = only_recovery(world).status
    assert (status.phase, status.reason) == (Phase.FAILED, Reason.CAUSE_GONE)
    assert names(status.message, "n1", "xid-79")
    assert not world.gangs["llm-uid"].suspended


def test_it_is_stopped_all_the_same_where_a_rank_is_lost_or_another_cause_stands() -> None:
    lost = faulted()
    advanced(lost, Phase.STOPPING)
    released(lost.crash(rank=1))
    assert "stop-gang" in step(lost)

    other = faulted()
    advanced(other, Phase.STOPPING)
    recovering(other.later(1).finding(on="n2"))
    released(other)
    while (wrote := step(other)) and "stop-gang" not in wrote:
        assert only_recovery(other).active
    assert "stop-gang" in wrote


def test_a_fault_that_its_agent_calls_ended_stops_no_gang_and_one_that_nobody_shows_does() -> None:
    world = faulted()
    advanced(world, Phase.STOPPING)
    health = world.health["n1"]
    (found,) = health.status.findings

    def showing(*findings: Finding) -> Worlds:
        status = msgspec.structs.replace(health.status, findings=list(findings))
        world.health["n1"] = msgspec.structs.replace(health, status=status)
        return world

    assert acts(look(showing())) == ["stop-gang"]
    cleared = msgspec.structs.replace(found, cleared_at=world.now, cleared_by="xid-154: recovery action none")
    assert acts(look(showing(cleared))) == ["recovery-failed"]


def test_a_fault_that_comes_back_after_that_is_recovered() -> None:
    world = faulted()
    advanced(world, Phase.STOPPING)
    released(world.later(2))
    recovering(world)
    step(world)

    recovering(world.later(30).finding(on="n1", code="xid-48"))

    assert [r.active for r in world.recoveries.values()] == [False, True]
