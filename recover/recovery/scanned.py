"""Turns the answer of a scan into the choice that a recovery keeps. Pure; for choose.py and verify.py.

The scan pod is in the tenant's namespace and may say anything: its answer is checked before it is used.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import PurePosixPath

from detectors.text.printing import one_line, printable
from detectors.wire.fitting import fit, fitted, refitted
from recover.api import CheckpointChoice, Phase, RejectedCheckpoint
from recover.checkpoints.annotation import REPAIR
from recover.checkpoints.scan_result import STEP_END, Checkpoint, ScanMessage, decode_message
from recover.model import Pod
from recover.recovery import scan_trouble
from recover.recovery.accounting import last_save
from recover.recovery.context import Context
from recover.recovery.loading import unloadable
from recover.recovery.scan_spec import CONTAINER

__all__ = ["begins_from", "choice_of", "entered", "unverified", "waited_s"]

_NUMBERED_APART = 1


def choice_of(ctx: Context, scan: Pod, root: str) -> CheckpointChoice:
    """Returns the choice of a scan that has ended. `root` is the annotation's path."""
    text = next((c.message for c in scan.containers if c.name == CONTAINER and c.message), "")
    if not text:
        return unverified(ctx, scan_trouble.of_ended(scan), scan_s=waited_s(ctx))
    try:
        message = decode_message(text)
    except ValueError as error:
        return unverified(ctx, str(error), scan_s=waited_s(ctx))
    return _choice(ctx, message, root)


def _choice(ctx: Context, message: ScanMessage, root: str) -> CheckpointChoice:
    if message.error:
        return unverified(ctx, message.error, scan_s=waited_s(ctx))
    rejected = [
        fitted(RejectedCheckpoint, step=c.step, path=c.path, reason=one_line(c.reason))
        for c in message.rejected
        if not _unusable(c, str(PurePosixPath(root) / c.path))
    ]
    if message.chosen is None:
        none = unverified(ctx, _none_complete(message), scan_s=waited_s(ctx))
        return refitted(none, rejected=rejected, unfound=_unfound(ctx, None, root))
    path = str(PurePosixPath(root) / message.chosen.path)
    unusable = _unusable(message.chosen, path)
    if unusable:
        none = unverified(ctx, unusable, scan_s=waited_s(ctx))
        return refitted(none, rejected=rejected)
    return fitted(
        CheckpointChoice,
        attempt=ctx.status.attempt,
        verified=True,
        step=message.chosen.step,
        path=path,
        format=message.chosen.format,
        reason=one_line(message.chosen.reason),
        rejected=rejected,
        scan_s=waited_s(ctx),
        idle_gpu_s=_idle_gpu_s(ctx, waited_s(ctx)),
        excluded=_excluded(ctx),
        repaired=[one_line(line) for line in message.repaired],
        tracker=one_line(message.tracker),
        digests=one_line(message.digests),
        unfound=_unfound(ctx, message.chosen.step, root),
    )


def _unusable(found: Checkpoint, path: str) -> str:
    """Returns why the scan cannot have found such a checkpoint; empty if it can. The path becomes a variable
    of the ranks and part of what people read. A path with a character that would begin a line, be invisible,
    or end the variable is therefore refused."""
    if not 0 <= found.step < STEP_END:
        return f"the scan chose step {found.step}, which is not a step"
    parts = PurePosixPath(found.path).parts
    fits = fitted(CheckpointChoice, attempt=1, verified=True, path=path, format=found.format)
    is_cut = (fits.path, fits.format) != (path, found.format)
    is_plain = all(t.isprintable() and t == printable(t) for t in (found.path, found.format))
    if not parts or found.path.startswith("/") or ".." in parts or is_cut or not is_plain:
        return f"the scan chose {found.path[:80]!a}, which is not a path below the folder of the annotation"
    return ""


def _unfound(ctx: Context, chosen: int | None, root: str) -> str:
    """Returns the words that the log reports a later checkpoint than the scan found; empty if not. Frameworks
    differ by one in how they number steps, and a checkpoint that was passed over was found."""
    found = last_save(ctx.world, ctx.recovery)
    if found is None or (step := found[1].step) is None:
        return ""
    if step in _excluded(ctx) or (chosen is not None and step <= chosen + _NUMBERED_APART):
        return ""
    saved, at = found[0], f"{found[1].at:%Y-%m-%d %H:%M:%S} UTC"
    return one_line(
        f"the log of {saved.name} says that step {step} was saved at {at}, but the scan found no "
        f"complete checkpoint of that step in {root}: it is in another place, or its upload was "
        "still in progress"
    )


def _none_complete(message: ScanMessage) -> str:
    if message.found:
        return f"none of the {message.found} checkpoints is complete"
    return "there is no checkpoint yet"


def unverified(ctx: Context, why: str, *, scan_s: float | None = None) -> CheckpointChoice:
    """Returns the choice that leaves the decision to the framework's own logic. `scan_s` is how long the
    recovery waited for a scan, if there was one."""
    return fitted(
        CheckpointChoice,
        attempt=ctx.status.attempt,
        verified=False,
        reason=one_line(why),
        scan_s=scan_s,
        idle_gpu_s=_idle_gpu_s(ctx, scan_s),
        excluded=_excluded(ctx),
    )


def _excluded(ctx: Context) -> list[int]:
    return fit(CheckpointChoice, "excluded", unloadable(ctx.recovery, ctx.gang, ctx.world, ctx.settings))


def begins_from(choice: CheckpointChoice) -> str:
    """Returns from where the gang begins, and what its own logic would do otherwise."""
    if not choice.verified:
        return "the checkpoint that the framework chooses"
    found = f"checkpoint {choice.path} (step {choice.step})"
    advice = f"the annotation {REPAIR}: tracker on the job lets Rekindle correct that file"
    return f"{found} ({choice.tracker}; {advice})" if choice.tracker else found


def entered(ctx: Context) -> datetime:
    """Returns when the old pods had ended, and the gang began to wait for the scan alone."""
    return next((t.at for t in reversed(ctx.status.phases) if t.phase is Phase.CHOOSING), ctx.now)


def waited_s(ctx: Context) -> float:
    return round((ctx.now - entered(ctx)).total_seconds(), 3)


def _idle_gpu_s(ctx: Context, scan_s: float | None) -> float | None:
    return round(scan_s * ctx.spec.gpus, 3) if scan_s is not None else None
