"""Lists what a person can do next about a job: steps for each reason, as the job is now. Pure.

A reason comes from a record of an Incident (the job was not restarted) or from a Recovery (why it waits, or
how it ended). Commands are in backticks and complete. No step is proposed that the state of the job makes
pointless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

import msgspec

from detectors.text.printing import one_line
from recover.api import Act, ActionRecord, Incident, Recovery
from recover.api.reasons import Reason
from recover.checkpoints.annotation import ANNOTATION
from recover.k8s.kinds import JOBS, JOBSETS
from recover.model import PodPhase
from recover.policy.commands import UNHOLD, annotate, enabled_by, name_of, release, target_of
from recover.policy.consent import MODE, ON_TERMINAL, OptIn, held, may_recreate
from recover.policy.step_words import HANG_TIMEOUT
from recover.stories.around import Around
from recover.stories.job_state import Job
from recover.stories.node_steps import acted_on_again, take_out, to_act
from recover.stories.words import generic_step
from recover.workloads import started_by

__all__ = ["steps_for_job", "steps_for_recovery"]

_NODES_MAX = 3


class _Case(msgspec.Struct, frozen=True):
    job: Job
    said: str
    """The message that was recorded with the reason."""
    around: Around
    now: datetime
    incident: Incident | None = None
    recovery: Recovery | None = None


def steps_for_job(
    record: ActionRecord, incident: Incident, job: Job, around: Around, now: datetime
) -> tuple[str, ...]:
    """Returns steps for a restart that was refused, or that would be made in another mode."""
    case = _Case(job, one_line(record.message), around, now, incident=incident)
    if record.action == Act.APPLY_RECIPE:
        return (f"Make that change in the template of {job.ref}: {case.said}.",)
    return _steps(record.reason, case)


def steps_for_recovery(recovery: Recovery, job: Job, around: Around, now: datetime) -> tuple[str, ...]:
    """Returns steps for a recovery that waits or has ended, and for its conditions."""
    status = recovery.status
    told = {status.reason: status.message}
    for condition in status.conditions:
        told.setdefault(condition.reason, condition.message)
    found: list[str] = []
    for reason, said in told.items():
        case = _Case(job, one_line(said), around, now, recovery=recovery)
        found += _steps(reason, case)
    return tuple(dict.fromkeys(found))


def _steps(reason: str, case: _Case) -> tuple[str, ...]:
    if case.job.is_gone and reason not in _EVEN_IF_GONE:
        return ()  # there is nothing left to act on
    known = next((steps for one, steps in _BY_REASON.items() if one == reason), None)
    return tuple(known(case)) if known is not None else generic_step(reason)


# --- reasons why the job was not restarted ----------------------------------------------------------------


def _enable(case: _Case) -> Iterator[str]:
    if case.job.consent is OptIn.ENABLED:
        yield (
            "Automatic recovery was enabled after this failure. Rekindle restarts the job after its "
            "next failure."
        )
        return
    for command in enabled_by(case.job.ref, case.job.gang):
        yield f"To let Rekindle restart the job: `{command}`."


def _observed(case: _Case) -> Iterator[str]:
    ref = case.job.ref
    if case.job.consent is OptIn.OBSERVE:
        for command in enabled_by(ref, case.job.gang):
            yield f"The job is set to observe. To let Rekindle restart the job: `{command}`."
    space = case.around.namespaces.get(ref.namespace)
    if space is not None and space.annotations.get(MODE) == "observe":
        yield (
            f"The namespace lowers the mode. To end that: `kubectl annotate namespace {space.name} {MODE}-`."
        )
    elif case.job.consent is not OptIn.OBSERVE:
        yield to_act(case.said, case.around)
    yield _by_hand(case)


def _by_hand(case: _Case) -> str:
    """Returns how a person starts the job without Rekindle."""
    if case.job.gang is not None and case.job.gang.suspended:
        return f"To start the job now: `{started_by(case.job.ref)}`."
    return "If the job does not train now, restart it by hand."


def _paused(case: _Case) -> Iterator[str]:
    ends = "`rekindle resume` ends the pause. Rekindle then restarts the job if the job is down."
    yield f"{ends} {_by_hand(case)}"


def _stale(case: _Case) -> Iterator[str]:
    incident = case.incident
    node = incident.status.blamed_node or incident.spec.node if incident is not None else ""
    if incident is not None and node:
        yield acted_on_again(incident, node)
        yield from take_out(node, case.around)
    else:
        yield f"Rekindle does not act on that failure ({case.said}). Rekindle acts on the job's next failure."
    yield _by_hand(case)


def _held(case: _Case) -> Iterator[str]:
    ref, gang = case.job.ref, case.job.gang
    space = case.around.namespaces.get(ref.namespace)
    if gang is None:
        yield (
            f"When Rekindle may act on {ref} again, remove the hold. If a person has suspended the job, "
            "start the job again."
        )
        return
    if held(gang.annotations, case.now) is not None:
        yield f"When Rekindle may act on the job again: `{release(ref)}`."
    if space is not None and held(space.annotations, case.now) is not None:
        yield (
            f"When Rekindle may act in the namespace again: `kubectl annotate namespace {space.name} "
            f"{UNHOLD}`."
        )
    if gang.suspended:
        yield f"A person has suspended the job. To resume the job: `{started_by(ref)}`."


def _no_budget(case: _Case) -> Iterator[str]:
    yield (
        "Find out why the job fails so often. To allow more recoveries, set the annotation "
        "rekindle.dev/max-recoveries on the job, or raise budgets.recoveries_per_gang_max in the "
        "controller's settings."
    )
    yield _by_hand(case)


def _brake(case: _Case) -> Iterator[str]:
    yield (
        "Look for the common cause: a driver, a network, or the detection itself. The brake ends "
        "when its window has passed. After that, Rekindle acts."
    )


def _foreign(case: _Case) -> Iterator[str]:
    yield (
        "Start and stop the job through the controller or person that the message names, or remove "
        "the job from that control."
    )
    if case.recovery is not None and not case.recovery.active:
        meta = case.recovery.metadata
        yield (
            "To let Rekindle decide again before a day has passed: "
            f"`kubectl delete recovery -n {meta.namespace} {meta.name}`."
        )


def _refused(case: _Case) -> Iterator[str]:
    yield (
        f"The API server refused the write: {case.said}. Change the policy, webhook or quota so "
        "that the API server accepts this write of the ServiceAccount rekindle-controller. Rekindle "
        "tries the write "
        "again."
    )


def _terminal(case: _Case) -> Iterator[str]:
    gang = case.job.gang
    if gang is not None and gang.terminal is not None and gang.terminal.succeeded:
        return
    yield "The framework's controller has marked the job as failed, and this is final. Submit the job again."
    if gang is None or not may_recreate(gang.annotations):
        yield (
            "To let Rekindle delete the job and create it again after such a failure: "
            f"`{annotate(case.job.ref, ON_TERMINAL, 'recreate')}`."
        )


def _ranks_ended(case: _Case) -> Iterator[str]:
    yield (
        "If the job stays stopped, submit it again, with a training script that does not exit with "
        "code 0 when it is stopped."
    )
    if case.job.gang is None or not may_recreate(case.job.gang.annotations):
        yield f"Or let Rekindle create the job again: `{annotate(case.job.ref, ON_TERMINAL, 'recreate')}`."


# --- reasons why its recovery waits, or how it ended ------------------------------------------------------


def _no_room(case: _Case) -> Iterator[str]:
    yield (
        "Add nodes, or uncordon healthy nodes: `rekindle status` lists the nodes that are out. Rekindle "
        "starts the job as soon as all ranks fit."
    )
    avoided = case.recovery.status.avoid_nodes if case.recovery is not None else []
    for name in avoided[:_NODES_MAX]:
        node = case.around.nodes.get(name)
        if node is not None and node.unschedulable:
            yield f"{name} is out of service. After its repair: `kubectl uncordon {name}`."


def _not_started(case: _Case) -> Iterator[str]:
    yield (
        f"Find out why ranks do not run: `kubectl get pods -n {case.job.ref.namespace}` and the "
        "Events there. Remove the cause. The recovery continues when all ranks run."
    )


def _loop(case: _Case) -> Iterator[str]:
    yield f"Read the failed rank's log above and correct the job. {_by_hand(case)}"


def _unverified(case: _Case) -> Iterator[str]:
    gang = case.job.gang
    if gang is not None and ANNOTATION in gang.annotations:
        yield f"To see why no checkpoint could be verified: `rekindle doctor {name_of(case.job.ref)}`."
    else:
        yield (
            f"Name the folder of the checkpoints in the annotation {ANNOTATION} on the job; "
            f"`rekindle doctor {name_of(case.job.ref)}` checks the annotation."
        )


def _older(case: _Case) -> Iterator[str]:
    choice = case.recovery.status.checkpoint if case.recovery is not None else None
    if choice is not None and choice.verified:
        yield (
            "Make the training script load the path in REKINDLE_RESUME_FROM. At this resume the path "
            f"was {choice.path}."
        )
    else:
        yield "Make the training script load its newest checkpoint when it starts."
        yield from _unverified(case)


def _unproven(case: _Case) -> Iterator[str]:
    yield (
        "Print the step in the log. If Rekindle does not read the form of the line, put an "
        'annotation with the form on the job, for example rekindle.dev/step-template: "step '
        '{step}".'
    )


def _no_steps(case: _Case) -> Iterator[str]:
    running = [pod.name for pod in case.around.pods if pod.phase is PodPhase.RUNNING]
    space = case.job.ref.namespace
    read = f"kubectl logs -n {space} {running[0]}" if running else f"kubectl get pods -n {space}"
    yield (
        f"Read the ranks' logs: `{read}`. If loading takes longer than the deadline, set "
        f"{HANG_TIMEOUT} on the job, or raise timing.verify_deadline_s in the controller's settings."
    )


def _stuck(case: _Case) -> Iterator[str]:
    space = case.job.ref.namespace
    ending = [pod.name for pod in case.around.pods if pod.deleting_since is not None][:_NODES_MAX]
    for name in ending:
        yield f"See why the pod does not end: `kubectl describe pod -n {space} {name}`."
    if not ending:
        yield f"See whether old pods are still there: `kubectl get pods -n {space}`."
    goes_on = "The recovery continues when the old pods are gone."
    then = goes_on if case.recovery is not None and case.recovery.active else _by_hand(case)
    yield f"The usual causes are finalizers and unreachable volumes. {then}"


def _fence(case: _Case) -> Iterator[str]:
    recovery = case.recovery
    if recovery is None or not recovery.active:
        return
    nodes = case.around.nodes
    silent = [name for name in recovery.nodes if name in nodes and not nodes[name].ready]
    for name in silent[:_NODES_MAX]:
        yield (
            f"Switch the machine of {name} off, then record that: `kubectl taint node {name} "
            "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute`."
        )
    if not silent:
        yield f"{case.said or 'A node does not answer'}."


def _backoff(case: _Case) -> Iterator[str]:
    yield "You need not do anything: the framework's controller creates new pods when its wait is over."
    if case.job.gang is None or not may_recreate(case.job.gang.annotations):
        yield (f"To avoid the wait at the next failure: `{annotate(case.job.ref, ON_TERMINAL, 'recreate')}`.")


def _silent_framework(case: _Case) -> Iterator[str]:
    yield (
        f"Check that the controller of {case.job.ref.kind} objects runs, and read its log. The "
        "recovery continues when that controller reacts."
    )


def _deletion_held(case: _Case) -> Iterator[str]:
    target = target_of(case.job.ref)
    yield (
        f"See which finalizer delays the deletion: `kubectl get {target} -o "
        f"jsonpath={{.metadata.finalizers}}`. The recovery continues when the job is gone."
    )


def _known_issue(case: _Case) -> Iterator[str]:
    kind = case.job.ref.kind
    if kind in (JOBS.kind, JOBSETS.kind):
        yield (
            f"Delete the {kind}, and submit it again with the change that the message names: nobody can edit "
            f"the containers of a {kind}."
        )
    else:
        yield f"Make the change that the message names in the job's template. {_by_hand(case)}"


_EVEN_IF_GONE = frozenset({Reason.NEEDS_FENCING_PROOF, Reason.NO_CAPACITY})
"""Reasons whose steps concern nodes: a person can still take these steps after the job has been deleted."""
_BY_REASON: dict[Reason, Callable[[_Case], Iterator[str]]] = {
    Reason.NOT_OPTED_IN: _enable,
    Reason.OBSERVE_MODE: _observed,
    Reason.PAUSED: _paused,
    Reason.STALE_EVIDENCE: _stale,
    Reason.HELD: _held,
    Reason.BUDGET_EXHAUSTED: _no_budget,
    Reason.FLEET_BRAKE: _brake,
    Reason.FOREIGN_OWNER: _foreign,
    Reason.WRITE_REFUSED: _refused,
    Reason.STOP_REFUSED: _refused,
    Reason.START_REFUSED: _refused,
    Reason.TERMINAL_JOB: _terminal,
    Reason.RANKS_ENDED: _ranks_ended,
    Reason.NO_CAPACITY: _no_room,
    Reason.RANKS_NOT_STARTED: _not_started,
    Reason.CRASH_LOOP: _loop,
    Reason.CHECKPOINT_UNVERIFIED: _unverified,
    Reason.RESUMED_OLDER: _older,
    Reason.RESUMED_FROM_SCRATCH: _older,
    Reason.SUCCEEDED_UNVERIFIED: _unproven,
    Reason.NO_STEPS: _no_steps,
    Reason.PODS_STUCK: _stuck,
    Reason.NEEDS_FENCING_PROOF: _fence,
    Reason.FRAMEWORK_BACKOFF: _backoff,
    Reason.FRAMEWORK_SILENT: _silent_framework,
    Reason.DELETION_HELD: _deletion_held,
    Reason.KNOWN_ISSUE: _known_issue,
}
