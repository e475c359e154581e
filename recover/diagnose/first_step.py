"""Finds gangs that run and do not begin to train: no rank has printed a step since its start. Pure.

Rekindle cannot tell a hang before the first step from a log whose steps it cannot read. So Rekindle only
reports what it sees, and restarts the gang only if it read steps of that gang after the gang's last recovery.
Loading a checkpoint takes long: the limit is the limit for the first step after a recovery
(`verify_deadline_s`), or the job's own hang-timeout if that is longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from detectors.wire.contract import CoverageState, NodeHealth, Source
from recover.api import Phase
from recover.diagnose.coverage import silence
from recover.model import Gang, Pod, PodPhase, World
from recover.policy.consent import OptIn, opt_in
from recover.policy.settings import Timing
from recover.policy.step_words import hang_timeout_s

__all__ = [
    "first_step_due",
    "is_read",
    "is_unknown",
    "limit_of",
    "shows_no_step",
    "steps_are_readable",
    "steps_were_read",
]


def first_step_due(
    world: World, gang: Gang, pods: Sequence[Pod], timing: Timing, now: datetime
) -> datetime | None:
    """Returns the time by which a gang whose ranks all run should have made its first step. If an agent has
    read a line with a step, which alone proves no step, the time counts from that line.

    Returns None if the gang has made a step, if a rank is missing or has restarted, if the log of a rank is
    not read, if the owner wants no limit, or if the job's consent is `disabled` and the job has no
    hang-timeout of its own. Returns None also while a recovery is active, because a recovery has its own
    deadline. A rank may have made steps that its agent leaves out: `is_unknown` finds such ranks."""
    limit_s = limit_of(gang, timing)
    consent = opt_in(gang, world.namespaces.get(gang.ref.namespace))
    is_asked = _own_limit_s(gang) is not None or consent is not OptIn.DISABLED
    if not is_asked or limit_s is None or world.active_recovery(gang.ref.uid) is not None:
        return None
    if len(pods) < max(1, gang.size) or not all(
        _runs(pod) and is_read(world, pod, now) and _is_silent(world, pod) for pod in pods
    ):
        return None
    begins = [pod.created for pod in pods if pod.created is not None]
    if len(begins) < len(pods):
        return None
    heard = [
        told.last_step_at for pod in pods for told in world.containers(pod) if told.last_step_at is not None
    ]
    return max([*begins, *heard]) + timedelta(seconds=limit_s)


def limit_of(gang: Gang, timing: Timing) -> float | None:
    """Returns the seconds within which the gang must make its first step, or None if its owner wants no
    limit."""
    own_s = _own_limit_s(gang)
    return None if own_s == 0 else max(timing.verify_deadline_s, own_s or 0.0)


def _own_limit_s(gang: Gang) -> float | None:
    return hang_timeout_s(gang.annotations)


def steps_were_read(world: World, gang: Gang) -> bool:
    """Whether Rekindle has ever read steps of this gang, before or after an earlier recovery."""
    return any(
        recovery.status.last_step is not None or recovery.status.resumed_step is not None
        for recovery in world.history(gang.ref.uid)
    )


def steps_are_readable(world: World, gang: Gang) -> bool:
    """Whether steps of this gang were read after its last recovery; then missing steps are a hang. The answer
    is no if that recovery ended without steps: a person was called then, or nobody can read the steps of the
    gang."""
    history = world.history(gang.ref.uid)
    last = history[-1].status if history else None
    return last is not None and last.phase is Phase.SUCCEEDED and last.resumed_step is not None


def _runs(pod: Pod) -> bool:
    containers = [container for container in pod.containers if not container.beside]
    return pod.phase is PodPhase.RUNNING and all(c.running and not c.restarts for c in containers)


def shows_no_step(world: World, pod: Pod, now: datetime) -> bool:
    """Whether the pod's agent lives, reads logs, and has read no step in the log of this pod."""
    return is_read(world, pod, now) and _is_silent(world, pod) and not world.may_be_left_out(pod)


def is_unknown(world: World, pod: Pod) -> bool:
    """Whether the agent of the pod's node publishes no step of the pod, and may leave the pod out. The agent
    of a dead node will not report more."""
    node = world.nodes.get(pod.node)
    is_gone = node is not None and not node.ready
    return not is_gone and _is_silent(world, pod) and world.may_be_left_out(pod)


def _is_silent(world: World, pod: Pod) -> bool:
    progress = world.progress(pod)
    return progress is None or progress.first_step is None


def is_read(world: World, pod: Pod, now: datetime) -> bool:
    """Whether the agent of the pod's node lives and reads the logs of pods."""
    health = world.health.get(pod.node)
    return (
        health is not None
        and silence(world, pod.node, now) is None
        and (world.agents_are_pods or _has_written_since(health, pod))
        and any(
            row.source is Source.LOGS and row.state is CoverageState.COVERED for row in health.status.coverage
        )
    )


def _has_written_since(health: NodeHealth, pod: Pod) -> bool:
    """Whether the agent has written since the pod was created. If agents are not pods, only their writes show
    that they live: an agent that promises regular writes must have kept that promise after the pod was
    created."""
    at = health.status.observed_at
    return not health.status.refresh_s or at is None or pod.created is None or at >= pod.created
