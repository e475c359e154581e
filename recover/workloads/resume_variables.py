"""The variables that tell ranks where to resume, and how they are taken back. Pure."""

from __future__ import annotations

from recover.api import GangRef
from recover.k8s.kinds import CONFIGMAPS
from recover.model.actions import Ensure
from recover.workloads.patches import environment_of, old_environment_of

__all__ = ["CHECKPOINT_VARIABLES", "without_checkpoint"]

CHECKPOINT_VARIABLES = ("REKINDLE_RESUME_FROM", "REKINDLE_RESUME_STEP")


def without_checkpoint(ref: GangRef) -> tuple[Ensure, ...]:
    """Where no ConfigMap is left, as where it went with its job, none is made."""
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
