"""Mutants of a recovery's phases: the stop, the checkpoint, the places, the start, the proof."""

from __future__ import annotations

from tests.mutants.model import Mutant, of

__all__ = ["PHASES"]

_STOP = of(
    "recover/recovery/stop.py",
    (
        "old pods are not awaited",
        "    if not living:\n        return Step(status=old_pods_ended(ctx))",
        "    if living is not None:\n        return Step(status=old_pods_ended(ctx))",
        "two attempts write the same checkpoint",
    ),
    (
        "a cause is not looked at again before the stop",
        "    if ctx.status.attempt == 1 and (gone := are_gone(ctx)):",
        "    if ctx.status.attempt < 1 and (gone := are_gone(ctx)):",
        "a job that trains is stopped for a fault that a person has released",
    ),
    (
        "consent is not asked again before the stop",
        "    verdict = _may_stop(ctx)\n    if isinstance(verdict, Denied):\n"
        "        return Step(status=moved(ctx, Phase.FAILED, verdict.message, reason=verdict.reason))\n"
        "    if ctx.status.attempt",
        "    if ctx.status.attempt",
        "a job that people hold meanwhile is stopped",
    ),
)

_FENCE = of(
    "recover/recovery/fence.py",
    (
        "silence is a proof for any volume",
        "return all(volume.kind in _SAFE_VOLUMES for volume in pod.volumes)",
        "return bool(_SAFE_VOLUMES)",
        "two writers meet on one volume",
    ),
    (
        "silence is a proof at once",
        "return silent_since + timedelta(seconds=ctx.timing.fence_wait_s)",
        "return silent_since",
        "a node that comes back finds its job running twice",
    ),
)

_CHOOSE = of(
    "recover/recovery/choose.py",
    (
        "crash loops do not end",
        "    if attempts > limit:\n",
        "    if attempts > 1000 * limit:\n",
        "a broken program is started for ever",
    ),
    (
        "one attempt too few",
        "    if attempts > limit:\n",
        "    if attempts >= limit:\n",
        "a job is given up that might have come back",
    ),
    (
        "an open verdict does not hold the start",
        "    if open_until is not None:\n        return Step(requeue_after_s=open_until)\n",
        "",
        "a gang is started on a node whose fault is about to be known",
    ),
)

_SCAN = of(
    "recover/checkpoints/scan.py",
    (
        "an incomplete newer checkpoint is chosen",
        "        if may_be_chosen and verdict.complete:\n            chosen = checkpoint",
        "        if may_be_chosen:\n            chosen = checkpoint",
        "the job fails to load, or trains on from half a state",
    ),
    (
        "the oldest complete checkpoint is chosen",
        "may_be_chosen = chosen is None and step not in exclude and step != STEP_UNKNOWN",
        "may_be_chosen = step not in exclude and step != STEP_UNKNOWN",
        "days of training are lost",
    ),
    (
        "checkpoints that do not load are chosen again",
        "may_be_chosen = chosen is None and step not in exclude and step != STEP_UNKNOWN",
        "may_be_chosen = chosen is None and step != STEP_UNKNOWN",
        "the job fails to load until it is given up",
    ),
)

_LOADING = of(
    "recover/recovery/loading.py",
    (
        "one failure condemns a checkpoint",
        "if fruitless.count(step) >= needed",
        "if fruitless.count(step) >= 1",
        "a good checkpoint is passed over for an older one",
    ),
)

_AVOID = of(
    "recover/recovery/avoid.py",
    (
        "broken nodes are not kept out",
        "hosts = [n for n in sorted(required) if n not in closed and (n in broken or is_tolerant)]",
        "hosts = [n for n in sorted(required) if n not in closed and is_tolerant]",
        "a gang is started on a dead GPU that no budget let be cordoned",
    ),
    (
        "a suspicion is required",
        "    required = {**silent, **{",
        "    required = {**silent, **_suspects(ctx, status), **{",
        "a gang waits beside a sound node",
    ),
    (
        "suspects are forgotten",
        "    suspects = dict(islice(doubtful.items(), SUSPECTS_MAX))\n",
        "    suspects = dict(islice(doubtful.items(), 0))\n",
        "a gang goes back to the node where it failed though others are free",
    ),
)

_RESUME = of(
    "recover/recovery/resume.py",
    (
        "a gang is started without room",
        "    if waiting is not None:\n        return waiting\n",
        "",
        "ranks exit at their rendezvous, and the job is given up",
    ),
    (
        "a held gang is started",
        "    if held is not None:\n        return held\n",
        "",
        "a job starts that people hold",
    ),
    (
        "started over old pods",
        "    if living:\n        return Step(requeue_after_s=ctx.left_s())\n",
        "",
        "two attempts write the same checkpoint",
    ),
    (
        "the start is called good before all ranks run",
        "    if running and running + ended >= gang.size:\n",
        "    if running:\n",
        "a gang that waits for a rank is taken for one that trains",
    ),
)

_VERIFY = of(
    "recover/recovery/verify.py",
    (
        "a gang whose steps nobody reads is stopped",
        "is_read = all(shows_no_step(ctx.world, pod, ctx.now) for pod in ctx.living())",
        "is_read = True",
        "a job that trains on a node without an agent is stopped",
    ),
    (
        "no step within the deadline is taken for success",
        "if limit_s is None or _last_step(ctx) is None or not is_read:",
        "if limit_s is None or ctx.expired() or not is_read:",
        "a gang that hangs from its start is left alone",
    ),
)

_LOOK = of(
    "recover/recovery/advance.py",
    (
        "the checkpoint is not taken back",
        "    return () if is_refused else undone\n",
        "    return () if is_refused or undone else undone\n",
        "an in-place restart goes back hours",
    ),
    (
        "the affinity is not taken back",
        "lifts = tuple(workload_of(gang).lift(gang)) if may_write(gang, world, now) else ()",
        "lifts: tuple[Action, ...] = ()",
        "a suspicion of long ago keeps a gang off a node",
    ),
    (
        "later causes do not begin another attempt",
        "    acting = affecting(ctx, fresh)\n",
        "    acting = affecting(ctx, fresh)[:0]\n",
        "a gang that fails right after its start stays down",
    ),
)

_CAUSES = of(
    "recover/recovery/causes.py",
    (
        "a fault elsewhere stops the gang once more",
        "return [cause for cause in fresh if cause.blame is not Blame.NODE or cause.node in used]",
        "return fresh",
        "a gang that was just started away from a node is stopped for that node",
    ),
)

_CONTEXT = of(
    "recover/recovery/context.py",
    (
        "the status is written whatever its version",
        '        version=recovery.metadata.resource_version,\n        subresource="status",\n',
        '        subresource="status",\n',
        "a decision of another controller, or a person's, is overwritten unseen",
    ),
)

PHASES: tuple[Mutant, ...] = (
    *_STOP,
    *_FENCE,
    *_CHOOSE,
    *_SCAN,
    *_LOADING,
    *_AVOID,
    *_RESUME,
    *_VERIFY,
    *_LOOK,
    *_CAUSES,
    *_CONTEXT,
)
