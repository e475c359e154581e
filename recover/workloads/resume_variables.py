"""Names the variables that tell ranks where to resume, and removes their values. Pure."""

from __future__ import annotations

from recover.api import GangRef
from recover.k8s.kinds import CONFIGMAPS
from recover.model.actions import Ensure
from recover.workloads.patches import environment_of, old_environment_of

__all__ = ["CHECKPOINT_VARIABLES", "without_checkpoint"]

CHECKPOINT_VARIABLES = ("REKINDLE_RESUME_FROM", "REKINDLE_RESUME_STEP")


def without_checkpoint(ref: GangRef) -> tuple[Ensure, ...]:
    """Returns the writes that remove the variables from the job's ConfigMaps. They create no ConfigMap if
    none exists, for example if it was deleted together with its job."""
    return tuple(
        Ensure(
            what="take-checkpoint-back",
            resource=CONFIGMAPS,
            name=name,
            namespace=ref.namespace,
            body={"data": dict.fromkeys(CHECKPOINT_VARIABLES)},
            creates=False,
        )
        for name in (environment_of(ref), old_environment_of(ref))
    )
