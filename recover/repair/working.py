"""Runs the phases Resetting, Rebooting and Validating: one step is under way, and its end decides what
follows. Pure.

The step is in the Incident before its Job is created, and `askedAt` once it was created. So a Job that
somebody deletes is not created again, and a controller that starts again repeats nothing. A reboot is proven
by a new boot id, never by the end of its Job.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from detectors.wire.contract import Finding
from detectors.wire.fitting import fit, refitted
from detectors.wire.step_report import Outcome
from recover.api.reasons import Reason
from recover.api.repair_state import CheckRecord, Repair, RepairPhase, RepairStep, StepKind, StepOutcome
from recover.diagnose.coverage import silence
from recover.diagnose.goes_on import shown_at
from recover.diagnose.signals import is_of_a_signal
from recover.k8s.kinds import JOBS
from recover.model import Gang, Refusal
from recover.model.actions import ConfirmGone
from recover.policy.consent import hold_of_node
from recover.policy.driver_work import lasts_at_most
from recover.repair import outside, step_jobs
from recover.repair.for_people import look_at_job, see_to_that, then_release
from recover.repair.ladder import next_rung
from recover.repair.step_context import (
    HELD_REQUEUE_S,
    Context,
    Reconciled,
    begun,
    ended,
    handed_over,
    moved,
    waiting,
)
from recover.repair.waiting import InTheWay, in_the_way, work_on_driver

__all__ = ["is_begun", "work"]

_ASK_AGAIN_S = 10.0
"""Pause after a refusal. In a large cluster something changes all the time, and each change causes a
reconcile."""
_HEARD_S = 1.0
"""Time until the next reconcile after a request. A refusal leaves no object whose change would start a
reconcile."""
_SECOND = timedelta(seconds=1)
"""Kubernetes drops the fractions of a second of the time at which a container ended."""


def work(ctx: Context) -> Reconciled:
    step = ctx.repair.step
    if step is None:
        return _next(ctx)
    over = _end_of(ctx, step)
    if over is not None:
        return Reconciled(repair=over)
    if _has_lost_its_job(ctx, step):
        gone = ended(ctx, StepOutcome.FAILED, f"somebody deleted Job {step.job}")
        read = ConfirmGone(
            what="confirm-job-gone", resource=JOBS, name=step.job, namespace=ctx.settings.namespace
        )
        return Reconciled(writes=(read,), repair=gone)
    if ctx.expired():
        if step.kind is StepKind.VALIDATE and (work := _work_before_checks(ctx)) is not None:
            return Reconciled(repair=_does_not_count(ctx, work))
        return Reconciled(repair=ended(ctx, StepOutcome.TIMED_OUT, _too_late(ctx, step, _job(ctx, step))))
    if not is_begun(ctx, step):
        return _begin(ctx, step)
    if step.asked_at is None:  # a crash came between the Job and this note
        return Reconciled(repair=_asked(ctx, step))
    return Reconciled(requeue_after_s=ctx.left_s())


def is_begun(ctx: Context, step: RepairStep) -> bool:
    return step.asked_at is not None or step.job in ctx.world.repair_jobs


# --- begin ------------------------------------------------------------------------------------------------


def _begin(ctx: Context, step: RepairStep) -> Reconciled:
    """Checks once more, and creates the Job, or requests the reboot from the system outside."""
    if step.kind is StepKind.VALIDATE:
        work = _work_before_checks(ctx)
        if why := ctx.paused or hold_of_node(ctx.node, ctx.now) or (work.message if work else ""):
            return Reconciled(repair=ended(ctx, StepOutcome.WITHDRAWN, why))
    else:
        obstacle = in_the_way(ctx, step.kind)
        if obstacle is not None:
            return Reconciled(repair=ended(ctx, StepOutcome.WITHDRAWN, obstacle.message))
    if step.kind is StepKind.RESET and not _has_let_go(ctx, step):
        until = step.at + timedelta(seconds=ctx.rules.hands_off_s)
        return Reconciled(requeue_after_s=max(0.01, (until - ctx.now).total_seconds()))
    refusal = _refusal(ctx, step)
    if refusal is not None and (again := refusal.at + timedelta(seconds=_ASK_AGAIN_S)) > ctx.now:
        return Reconciled(
            repair=_refused(ctx, step, refusal), requeue_after_s=(again - ctx.now).total_seconds()
        )
    asked = _asked(ctx, step)
    if step.kind is StepKind.REBOOT and ctx.reboots_from_outside:
        request = outside.ask(ctx.incident, asked, step, ctx.means, ctx.node.boot_id)
        return Reconciled(writes=(request,), repair=asked, requeue_after_s=_HEARD_S)
    template = ctx.means.templates[step.kind]
    job = step_jobs.create(ctx.incident, asked, step, template, ctx.settings, ctx.allowed_s(step.kind))
    return Reconciled(writes=(job,), repair=asked, requeue_after_s=_HEARD_S)


def _refusal(ctx: Context, step: RepairStep) -> Refusal | None:
    """Returns the last refusal of the step's Job, or of its request to a system outside."""
    return next((r for name, r in ctx.world.refused.items() if name.endswith(f"/{step.job}")), None)


def _refused(ctx: Context, step: RepairStep, refusal: Refusal) -> Repair:
    """Returns the repair with the refusal in it, at once: a refused step is not under way, and its time limit
    is long."""
    return _noted(ctx, step, refitted(step, message=f"not begun: {refusal.words}"))


def _noted(ctx: Context, step: RepairStep, noted: RepairStep) -> Repair:
    return refitted(ctx.repair, steps=[noted if s is step else s for s in ctx.repair.steps])


def _has_let_go(ctx: Context, step: RepairStep) -> bool:
    """Whether the agent reports that it has closed the devices, or has had time enough. An agent that does
    not answer may not run at all, and the reset of a device that is in use fails by itself."""
    health = ctx.health
    if health is None or health.status.hands_off == step.job:
        return True
    return ctx.now >= step.at + timedelta(seconds=ctx.rules.hands_off_s)


def _asked(ctx: Context, step: RepairStep) -> Repair:
    """Returns the repair with the note that the step was requested. The time limit of the step runs from
    now."""
    noted = _noted(ctx, step, refitted(step, asked_at=ctx.now, message=""))
    return msgspec.structs.replace(noted, deadline=ctx.now + timedelta(seconds=ctx.allowed_s(step.kind)))


# --- end --------------------------------------------------------------------------------------------------


def _end_of(ctx: Context, step: RepairStep) -> Repair | None:
    """Returns the repair with the end of the step, if the step has ended by itself, or None."""
    match step.kind:
        case StepKind.REBOOT:
            return _rebooted(ctx, step)
        case StepKind.RESET:
            return _was_reset(ctx, _job(ctx, step))
        case StepKind.VALIDATE:
            return _validated(ctx, step, _job(ctx, step))


def _job(ctx: Context, step: RepairStep) -> Gang | None:
    return ctx.world.repair_jobs.get(step.job)


def _has_lost_its_job(ctx: Context, step: RepairStep) -> bool:
    """Whether the step's Job is gone, as far as the cache shows. A reboot ends the pod of its Job, and is
    proven by the boot."""
    is_unread = ctx.world.is_unread(JOBS, ctx.settings.namespace, step.job)
    is_there = _job(ctx, step) is not None or is_unread
    return step.asked_at is not None and not is_there and step.kind is not StepKind.REBOOT


def _rebooted(ctx: Context, step: RepairStep) -> Repair | None:
    """Returns the repair with the end of the reboot, no matter who rebooted the node."""
    if not _booted_since(ctx, step) or not ctx.node.ready:
        return None
    return ended(ctx, StepOutcome.DONE, f"boot {ctx.node.boot_id}")


def _booted_since(ctx: Context, step: RepairStep) -> bool:
    """Whether the node has booted since the step began. If the earlier boot id is unknown, the answer is
    no."""
    now = fit(RepairStep, "boot_id", ctx.node.boot_id)
    return now != step.boot_id if now and step.boot_id else False


def _was_reset(ctx: Context, job: Gang | None) -> Repair | None:
    """Returns the repair with the end of the reset. The pod tells when a successful reset ended; without its
    pod it is a success as well, at its deadline."""
    if job is None or job.terminal is None:
        return None
    succeeded = job.terminal.succeeded
    if not step_jobs.has_told(ctx.world, job) and not (succeeded and ctx.expired()):
        return None
    if succeeded:
        at = step_jobs.pod_ended_at(ctx.world, job)
        return ended(ctx, StepOutcome.DONE, f"Job {job.ref.name} succeeded", pod_ended_at=at)
    return ended(ctx, StepOutcome.FAILED, step_jobs.ended_badly(ctx.world, job))


def _validated(ctx: Context, step: RepairStep, job: Gang | None) -> Repair | None:
    """Returns the repair with the result of the validation. The report decides, and then the findings of the
    node's agent since, because the agent watches independently."""
    if job is None or job.terminal is None:
        return None
    if (work := _work_before_checks(ctx)) is not None:
        return _does_not_count(ctx, work)
    if not step_jobs.has_told(ctx.world, job):
        return None
    report = step_jobs.report_of(ctx.world, job)
    if isinstance(report, str):
        return ended(ctx, StepOutcome.FAILED, report)
    checks, bad = step_jobs.verdict(report, ctx.rules.validation.required)
    if not job.terminal.succeeded and not bad:
        bad = [step_jobs.ended_badly(ctx.world, job)]
    told = _told_before_boot(ctx)
    bad += [f"the agent has found {code} since then" for code in _found_since(ctx) if code not in told]
    if _booted_since(ctx, step):  # the boot that was checked is over
        bad.append(f"{ctx.node.name} booted again during its validation")
    if bad:
        return ended(ctx, StepOutcome.FAILED, "; ".join(bad), checks=checks)
    if told or not _agent_reports(ctx):
        return None
    return ended(ctx, StepOutcome.DONE, _counted(checks), checks=checks)


def _does_not_count(ctx: Context, work: InTheWay) -> Repair:
    """Returns the repair with the end of a validation that ended during work on the driver, whatever its
    result: the checks met the driver of before, or none, or the work has evicted their pod."""
    return ended(ctx, StepOutcome.WITHDRAWN, f"{work.message}, so the checks do not count")


def _work_before_checks(ctx: Context) -> InTheWay | None:
    """Returns the work on the driver for which the checks and the return to service wait, or None. A driver
    that fails again and again never ends its work, and the node would keep its place among the nodes under
    repair. So Rekindle waits only for as long after the last reset or reboot as such work lasts at most."""
    steps = ctx.repair.steps
    last = next((s for s in reversed(steps) if s.kind is not StepKind.VALIDATE), steps[0])
    since = last.ended_at if last.ended_at is not None else last.at
    return work_on_driver(ctx) if ctx.now - since < lasts_at_most() else None


def _has_reported(ctx: Context) -> bool:
    """Whether the agent has reported from this boot."""
    health = ctx.health
    return health is not None and health.status.boot_id == ctx.node.boot_id


def _agent_reports(ctx: Context) -> bool:
    """Whether the agent has reported from this boot, and still does. Without its agent the node would return
    to service unwatched."""
    return _has_reported(ctx) and silence(ctx.world, ctx.node.name, ctx.now) is None


def _found_since(ctx: Context) -> list[str]:
    """Returns the codes of the findings that are open in this boot, except those that the last reset has
    repaired. A fault that never pauses is the same finding, shown later; otherwise it is a new finding."""
    health = ctx.health
    if health is None or health.status.boot_id != ctx.node.boot_id:
        return []
    last = next((s for s in reversed(ctx.repair.steps) if s.kind is not StepKind.VALIDATE), None)
    if last is None or last.kind is not StepKind.RESET or _booted_since(ctx, last):
        return sorted({finding.code for finding in ctx.found})
    return sorted({finding.code for finding in ctx.found if not _is_mended(ctx, last, finding)})


def _is_mended(ctx: Context, reset: RepairStep, finding: Finding) -> bool:
    """Whether the reset has repaired the finding: the finding is about a device that was reset, and was shown
    before. The clock of the node, which may be wrong, dates the findings; it also dates the end of the
    reset's pod, to the second."""
    devices = ctx.repair.devices
    if devices and finding.subject.device not in devices:
        return False
    if reset.pod_ended_at is not None:
        return shown_at(finding) < reset.pod_ended_at + _SECOND
    return reset.ended_at is not None and shown_at(finding) <= reset.ended_at


def _told_before_boot(ctx: Context) -> list[str]:
    """Returns the codes of other controllers' signals that began before the last reboot ended. Such a
    controller may start later than the checks end, and withdraws its signal only then."""
    last = next((s for s in reversed(ctx.repair.steps) if s.kind is not StepKind.VALIDATE), None)
    if last is None or last.kind is not StepKind.REBOOT or last.ended_at is None:
        return []
    return sorted({f.code for f in ctx.found if is_of_a_signal(f.id) and f.first_seen <= last.ended_at})


def _counted(checks: list[CheckRecord]) -> str:
    passed = sum(1 for check in checks if check.outcome is Outcome.PASSED)
    skipped = [check.name for check in checks if check.outcome is Outcome.NOT_RUN]
    return f"{passed} checks passed" + (f"; did not run: {', '.join(skipped)}" if skipped else "")


def _too_late(ctx: Context, step: RepairStep, job: Gang | None) -> str:
    minutes = f"{(ctx.now - step.at).total_seconds() / 60:.0f} min"
    refused = _refusal(ctx, step)
    if step.asked_at is None:
        return f"Rekindle could not begin the step within {minutes}" + (
            f": {refused.words}" if refused else ""
        )
    if step.kind is StepKind.REBOOT:
        return f"after {minutes} {_not_rebooted(ctx, step, job)}"
    if job is None:
        return f"after {minutes} Rekindle cannot read Job {step.job}"
    if job.terminal is None:
        return f"after {minutes} {step_jobs.not_ended(ctx.world, job)}"
    if not step_jobs.has_told(ctx.world, job):
        return f"after {minutes} Job {step.job} has ended, and the report of its pod cannot be read"
    if told := _told_before_boot(ctx):
        return f"after {minutes} another controller still reports {', '.join(told)}, as before the reboot"
    silent = silence(ctx.world, ctx.node.name, ctx.now)
    if _has_reported(ctx) and silent is not None:
        return f"after {minutes} {silent.why}"
    return f"after {minutes} the agent has not reported from this boot"


def _not_rebooted(ctx: Context, step: RepairStep, job: Gang | None) -> str:
    if not ctx.node.ready:
        return "the node is NotReady"
    if not step.boot_id or not ctx.node.boot_id:
        return "the node has no boot id, so Rekindle does not know whether it has booted again"
    why = ""
    if job is not None:  # otherwise a system outside was asked
        why = step_jobs.ended_badly(ctx.world, job) if job.terminal else step_jobs.not_ended(ctx.world, job)
    return "the node has not booted again" + (f"; {why}" if why else "")


# --- what follows -----------------------------------------------------------------------------------------


def _next(ctx: Context) -> Reconciled:
    if ctx.paused:
        return waiting(ctx, Reason.PAUSED, ctx.paused, HELD_REQUEUE_S)
    if why := hold_of_node(ctx.node, ctx.now):
        return waiting(ctx, Reason.HELD, why, HELD_REQUEUE_S)
    last = ctx.repair.steps[-1]
    name = ctx.node.name
    if last.outcome is StepOutcome.WITHDRAWN and last.kind is not StepKind.VALIDATE:
        return _wait_for(ctx, last.kind, f"the {last.kind} was postponed: {last.message}")
    is_unchecked = last.outcome is StepOutcome.WITHDRAWN or (
        last.outcome is StepOutcome.DONE and last.kind is not StepKind.VALIDATE
    )
    work = _work_before_checks(ctx)
    if is_unchecked and work is not None:
        return waiting(ctx, work.reason, work.message, work.requeue_after_s)
    if is_unchecked:
        return _driver_starts(ctx) or _begin_validation(
            ctx, f"Rekindle checks {name} before the node returns to service"
        )
    if last.outcome is StepOutcome.DONE and _booted_since(ctx, last):
        return _driver_starts(ctx) or _begin_validation(
            ctx, f"{name} booted again after its validation: Rekindle checks the node once more"
        )
    if last.outcome is StepOutcome.DONE and work is not None:
        return _begin_validation(ctx, f"{work.message}: Rekindle checks {name} again afterwards")
    if last.outcome is StepOutcome.DONE and not _agent_reports(ctx):
        return _begin_validation(ctx, f"the agent of {name} does not report: Rekindle checks the node again")
    found = _found_since(ctx) if last.outcome is StepOutcome.DONE else []
    if last.outcome is StepOutcome.DONE and not found:
        message = f"{name} was repaired and validated: {last.message}. The node takes pods again"
        return Reconciled(repair=moved(ctx, RepairPhase.RETURNED, message), closes=True)
    why = (
        f"{name} was validated, but the agent has found {', '.join(found)} since then"
        if found
        else _failed(last)
    )
    rung = next_rung(ctx.repair.rung)
    if rung is not None:
        return _wait_for(ctx, rung, f"{why}; next, Rekindle tries a {rung}")
    return handed_over(ctx, _why(last), why, _to_do(ctx, last))


def _driver_starts(ctx: Context) -> Reconciled | None:
    """Returns that the checks wait for the driver, if the node has booted during this repair and nobody shows
    a device yet; None if the checks may begin.

    The GPU Operator loads the driver from a container, and often builds the driver first, after the node is
    Ready. Until then the checks would find no device, and Rekindle would hand a healthy node over.
    """
    first, last = ctx.repair.steps[0], ctx.repair.steps[-1]
    if not ctx.repair.devices_expected or not _booted_since(ctx, first) or _shows_devices(ctx):
        return None
    if ctx.repair.reason == Reason.DRIVER_STARTS and ctx.repair.deadline is not None:
        until = ctx.repair.deadline  # a node that boots again and again gets no more time
    else:
        # The clock of a node that has just booted may be ahead by hours.
        known = (at for at in (last.ended_at, ctx.node.ready_since) if at is not None and at <= ctx.now)
        until = max(known, default=last.at) + timedelta(seconds=ctx.rules.driver_wait_s)
    if ctx.now >= until:
        return None
    message = (
        f"{ctx.node.name} has booted, and neither its agent nor its kubelet shows a GPU yet, so the driver "
        f"may still be starting; the checks begin at {until:%H:%M:%S} UTC at the latest"
    )
    ctx = msgspec.structs.replace(ctx, repair=refitted(ctx.repair, deadline=until))
    return waiting(ctx, Reason.DRIVER_STARTS, message, ctx.left_s())


def _shows_devices(ctx: Context) -> bool:
    """Whether the driver runs: the agent shows a device, or the kubelet offers one. After a boot the kubelet
    offers no device before the device plugin has registered, which needs the driver. Of accelerators of other
    vendors the agent shows none."""
    by_agent = _has_reported(ctx) and ctx.health is not None and bool(ctx.health.status.devices)
    return by_agent or any(ctx.node.allocatable.values())


def _begin_validation(ctx: Context, message: str) -> Reconciled:
    return Reconciled(repair=refitted(begun(ctx, StepKind.VALIDATE, message), checks=[]))


def _wait_for(ctx: Context, rung: StepKind, message: str) -> Reconciled:
    within_s = ctx.rules.wait_for_others_s
    return Reconciled(repair=moved(ctx, RepairPhase.WAITING, message, within_s=within_s, rung=rung))


def _to_do(ctx: Context, last: RepairStep) -> str:
    """Returns what the person should do. A validation without a report says nothing about the machine."""
    if last.kind is StepKind.VALIDATE and last.outcome is StepOutcome.TIMED_OUT:
        return see_to_that(ctx.node)
    if last.kind is StepKind.VALIDATE and last.outcome is StepOutcome.FAILED and not ctx.repair.checks:
        return look_at_job(last.job, ctx.node)
    return then_release(ctx.incident.fault, ctx.node)


def _failed(step: RepairStep) -> str:
    words = "the validation" if step.kind is StepKind.VALIDATE else f"the {step.kind}"
    how = "was not done in time" if step.outcome is StepOutcome.TIMED_OUT else "failed"
    return f"{words} {how}: {step.message}"


def _why(step: RepairStep) -> Reason:
    return Reason.VALIDATION_FAILED if step.kind is StepKind.VALIDATE else Reason.REPAIR_FAILED
