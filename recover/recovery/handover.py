"""Writes the ConfigMap that the ranks read at their start, and later removes the checkpoint from it. Pure.

REKINDLE_RESUME_FROM and REKINDLE_RESUME_STEP are in the ConfigMap from the start of the gang until the
recovery leaves its active phases, however it ends. Otherwise a container that its framework starts weeks
later would go back to that checkpoint.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from recover.api import Phase, Recovery
from recover.api.reasons import EventReason
from recover.k8s.kinds import CONFIGMAPS
from recover.model import Gang, World
from recover.model.actions import Ensure, Plan
from recover.policy.consent import may_recreate
from recover.recovery import known_issues
from recover.recovery.context import Context
from recover.workloads.patches import environment_of, old_environment_of, reads_old_environment
from recover.workloads.resume_variables import CHECKPOINT_VARIABLES, without_checkpoint

__all__ = ["handed_over", "may_read_old", "names", "taken_back", "taken_back_later"]

REFUSED_FOR_GOOD_AGAIN_S = 600.0
"""Pause until the removal of the checkpoint is tried again after a refusal that a later try is not expected
to change, for example of a policy."""


def names(ctx: Context) -> list[str]:
    """Returns the names of the ConfigMaps that the gang's ranks read. A job from before the kind was part of
    the name may read the ConfigMap with the old name. If another job of that name could read the old
    ConfigMap too, Rekindle does not write it."""
    ref = ctx.gang.ref
    place = (ref.namespace, ref.name)
    is_shared = any(
        (other.ref.namespace, other.ref.name) == place and other.ref.uid != ref.uid
        for other in ctx.world.gangs.values()
    )
    old = reads_old_environment(ctx.gang) and not is_shared
    return [environment_of(ref), *([old_environment_of(ref)] if old else [])]


def may_read_old(world: World, gang: Gang) -> bool:
    """Whether the gang's template, or one of its pods, reads the ConfigMap with the old name. Admission added
    that ConfigMap to pods, too."""
    old = old_environment_of(gang.ref)
    return reads_old_environment(gang) or any(old in pod.environments for pod in world.pods(gang.ref.uid))


def handed_over(ctx: Context) -> tuple[Ensure, ...]:
    """Returns the writes of the ConfigMaps: the name of the recovery, the variables that known issues need,
    and, only for a verified checkpoint, REKINDLE_RESUME_FROM and REKINDLE_RESUME_STEP."""
    choice = ctx.status.checkpoint
    verified = choice is not None and choice.verified
    path, step = (choice.path, str(choice.step)) if choice is not None and verified else (None, None)
    data = known_issues.handed_over(ctx) | {"REKINDLE_RECOVERY": ctx.recovery.metadata.name}
    data |= dict(zip(CHECKPOINT_VARIABLES, (path, step), strict=True))
    return tuple(_written(ctx, name, data) for name in names(ctx))


def taken_back(recovery: Recovery) -> tuple[Ensure, ...]:
    """Returns the writes that take the checkpoint back once the recovery is over."""
    has_started = any(entered.phase is Phase.RESUMING for entered in recovery.status.phases)
    return without_checkpoint(recovery.spec.gang) if has_started else ()


def taken_back_later(recovery: Recovery, world: World, now: datetime) -> Plan:
    """Returns the writes of `taken_back` that the API server refused when the recovery ended, once it is time
    to try them again. A later recovery of the gang replaces the checkpoint or removes it."""
    history = world.history(recovery.gang_uid)
    is_last = bool(history) and history[-1].metadata.uid == recovery.metadata.uid
    if not is_last or recovery.gang_uid not in world.gangs:
        return Plan()
    waits: list[tuple[Ensure, float]] = []
    for action in taken_back(recovery):
        refusal = world.refusal(action.resource, action.name, action.namespace)
        if refusal is not None:
            pause_s = refusal.again_s if refusal.may_pass else REFUSED_FOR_GOOD_AGAIN_S
            waits.append((action, msgspec.structs.replace(refusal, again_s=pause_s).left_s(now)))
    due = tuple((action,) for action, left_s in waits if left_s <= 0)
    return Plan(due, min((left_s for _, left_s in waits if left_s > 0), default=None))


def _written(ctx: Context, name: str, data: dict[str, str | None]) -> Ensure:
    """Returns the write of one ConfigMap. The write leaves only our variables: a person who may write
    ConfigMaps could otherwise put variables there that run code in the ranks, for example LD_PRELOAD."""
    namespace = ctx.gang.ref.namespace
    told = (
        f"somebody else had put these variables into ConfigMap {name}, which the containers of "
        f"{ctx.gang.ref} read. Rekindle removed the variables before the start. Find out who may "
        f"write ConfigMaps in namespace {namespace}, and put your own variables into the job's "
        "template"
    )
    return Ensure(
        what="write-environment",
        resource=CONFIGMAPS,
        name=name,
        namespace=namespace,
        body={
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace, "ownerReferences": _owners(ctx.gang)},
            "data": data,
        },
        foreign=ctx.event(EventReason.VARIABLES_REMOVED, told, warning=True, key=name),
    )


def _owners(gang: Gang) -> list[dict[str, str]] | None:
    """Returns the owner of the ConfigMap, so that the API server deletes the ConfigMap with its job:
    otherwise a new job of that name would begin where this job was resumed. A job that Rekindle may create
    again does not own its ConfigMap, because the pods of its successor read the ConfigMap as they start."""
    if may_recreate(gang.annotations):
        return None
    ref = gang.ref
    return [{"apiVersion": ref.api_version, "kind": ref.kind, "name": ref.name, "uid": ref.uid}]
