"""Tests the limit of 3 attempts "for one cause without step progress"."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from detectors.wire.contract import Fault
from detectors.wire.training import Edge, LogError
from recover.api import CheckpointChoice, Phase, PhaseTime
from recover.api.reasons import Reason
from recover.model import Pod, Template
from recover.recovery.advance import advance
from recover.triage.attempts import attempts_without_progress
from tests.acting import acts, apply, end_pods, only_recovery, recovering, scanned, start_pods, step
from tests.builders import Worlds, cluster, gang
from tests.facts import names
from tests.recover.recovery.phase_cases import CLAIM, choice


def test_four_gpus_that_die_on_four_nodes_in_a_day_are_no_crash_loop_of_a_job_with_unreadable_steps() -> None:
    """The job ran for four hours after each fault. Its log has a progress bar without a name."""
    world = cluster(nodes=400).running(gang(ranks=4), stepping=False)
    first = 0
    for fault in range(4):
        before = set(world.recoveries)
        recovering(world.finding(on=f"n{first}"))
        (name,) = set(world.recoveries) - before
        first += 4
        for _ in range(12):
            recovery = world.recoveries[name]
            if recovery.status.phase is Phase.VERIFYING or not recovery.active:
                break
            found = advance(recovery, world.world(), world.settings, world.now)
            apply(world, found)
            if "stop-gang" in acts(found):
                end_pods(world)
            if "start-gang" in acts(found):
                start_pods(world.later(2), first_node=first)
        status = world.recoveries[name].status
        assert status.phase is Phase.VERIFYING, (fault, status.reason, status.message)
        world.later(world.settings.timing.verify_deadline_s + 1)
        apply(world, advance(world.recoveries[name], world.world(), world.settings, world.now))
        assert world.recoveries[name].status.phase is Phase.SUCCEEDED
        recovering(world.later(4 * 3600))


def test_faults_of_four_classes_on_four_nodes_are_not_one_cause() -> None:
    world = recovering(cluster(nodes=400).running(gang(ranks=4)).finding(on="n1"))
    first = 4
    later = [("xid-74", Fault.NVLINK), ("xid-119", Fault.DRIVER), ("xid-95", Fault.MEMORY_DEGRADED), None]
    for fault in later:
        while only_recovery(world).status.phase not in (Phase.VERIFYING, Phase.ESCALATED):
            wrote = step(world)
            if "stop-gang" in wrote:
                end_pods(world)
            if "start-gang" in wrote:
                start_pods(world.later(2), first_node=first)
                first += 4
        if fault is not None:
            world.later(100).finding(on=f"n{first - 4}", code=fault[0], fault=fault[1])
            recovering(world)
            step(world)
    status = only_recovery(world).status
    assert status.phase is Phase.VERIFYING, (status.reason, status.message)


def test_ten_crashes_with_a_newer_checkpoint_between_each_are_no_loop_though_nobody_reads_the_steps() -> None:
    """The job's steps are unreadable, so it stays in Verifying, and all crashes are attempts of one
    recovery."""
    annotations = {"rekindle.dev/checkpoint": "/ckpt"}
    templates = {"": Template(volumes=(CLAIM,))}
    world = cluster(nodes=8).running(gang(annotations=annotations, templates=templates), stepping=False)
    recovering(world.crash(rank=1))
    for crash in range(10):
        for _ in range(12):
            status = only_recovery(world).status
            if status.phase in (Phase.VERIFYING, Phase.ESCALATED):
                break
            if status.phase is Phase.CHOOSING and world.scans:
                scanned(world, choice(100 + 10 * crash))
            wrote = step(world)
            if "stop-gang" in wrote:
                end_pods(world)
            if "start-gang" in wrote:
                start_pods(world.later(2), first_node=0)
        assert only_recovery(world).status.phase is Phase.VERIFYING, (crash, status.reason, status.message)
        recovering(world.later(600).crash(rank=1))
        step(world)
    assert only_recovery(world).status.attempt == 11


def test_a_start_without_a_checkpoint_after_starts_from_one_is_no_progress() -> None:
    """The last step in the log is above the checkpoint's step, and was made before all these starts."""
    world = recovering(cluster(nodes=8).running(gang(ranks=4)).crash(rank=1))
    recovery = only_recovery(world)
    starts = [
        PhaseTime(phase=Phase.RESUMING, attempt=attempt, at=world.now, step=10) for attempt in range(1, 4)
    ]
    unverified = CheckpointChoice(attempt=4, verified=False)
    status = msgspec.structs.replace(
        recovery.status, attempt=4, phases=starts, last_step=29, checkpoint=unverified
    )
    now = msgspec.structs.replace(recovery, status=status)
    day_ago = world.now - timedelta(days=1)
    later = msgspec.structs.replace(status, checkpoint=msgspec.structs.replace(unverified, step=20))

    assert attempts_without_progress([now], now, status, day_ago) == 4
    assert attempts_without_progress([now], now, later, day_ago) == 1


def crashed(world: Worlds) -> None:
    world.crash(rank=0)


def drained(world: Worlds) -> None:
    """Lets the first pod be deleted. Its log shows the signal."""
    pod = first_pod(world)
    deleted = msgspec.structs.replace(pod, deleting_since=world.now - timedelta(seconds=5))
    world.pods["llm-uid"][pod.uid] = deleted
    signal = LogError(code="py-signal", at=world.now, text="SignalException: got signal: 15")
    world.progress(pod, Edge.ENDED, at=world.now, first_error=signal)


def shut_down(world: Worlds) -> None:
    """Ends the first pod as the kubelet of a machine does that its cloud reclaims."""
    world.crash(rank=0, exit_code=143)
    pod = first_pod(world)
    why = "Terminated: Pod was terminated in response to imminent node shutdown."
    world.pods["llm-uid"][pod.uid] = msgspec.structs.replace(pod, failure=why)


def loses_ranks(world: Worlds, loses_a_rank: Callable[[Worlds], None], *, times: int) -> int:
    """Loses a rank every five minutes, until the recovery gives the gang up. Returns the number of losses."""
    for time in range(times):
        loses_a_rank(world)
        recovering(world)
        for _ in range(12):
            wrote = step(world)
            if only_recovery(world).status.phase is Phase.ESCALATED:
                return time + 1
            if only_recovery(world).status.phase is Phase.VERIFYING:
                break
            if "stop-gang" in wrote:
                end_pods(world)
            if "start-gang" in wrote:
                start_pods(world.later(2), first_node=4 * time + 4)
        world.later(300)
    return times


def first_pod(world: Worlds) -> Pod:
    return min(world.pods["llm-uid"].values(), key=lambda pod: pod.name)


@pytest.mark.parametrize(
    ("loses_a_rank", "ends"),
    [(crashed, Phase.ESCALATED), (drained, Phase.VERIFYING), (shut_down, Phase.VERIFYING)],
)
def test_a_gang_whose_nodes_are_drained_or_reclaimed_one_by_one_is_in_no_loop(
    loses_a_rank: Callable[[Worlds], None], ends: Phase
) -> None:
    """All losses occur between two checkpoints."""
    world = cluster(nodes=40).running(gang(ranks=4), stepping=False)
    loses_ranks(world, loses_a_rank, times=6)

    assert only_recovery(world).status.phase is ends, only_recovery(world).status.message


def test_drains_without_end_are_a_loop_too() -> None:
    world = cluster(nodes=400).running(gang(annotations={"rekindle.dev/max-recoveries": "5"}), stepping=False)
    assert loses_ranks(world, drained, times=7) == 6

    status = only_recovery(world).status
    assert status.reason == Reason.CRASH_LOOP
    assert names(status.message, 5, "deleted")
