"""Makes scan pods of recoveries, and trouble with them, for the tests of the scan."""

from __future__ import annotations

from typing import Any

import msgspec

from recover.api import Phase
from recover.api.reasons import Reason
from recover.model.actions import Create
from tests.acting import advanced, look, only_recovery, step
from tests.builders import Worlds
from tests.recover.recovery.phase_cases import faulted


def made(world: Worlds) -> dict[str, Any]:
    """Returns the spec of the scan pod with which a recovery begins."""
    advanced(world, Phase.STOPPING)
    (found,) = [act for act in look(world).actions if isinstance(act, Create)]
    spec: dict[str, Any] = found.body["spec"]
    return spec


def choosing() -> Worlds:
    """Returns a recovery in Choosing, whose scan pod was created and whose gate was lifted."""
    world = faulted(checkpoint="/ckpt")
    advanced(world, Phase.CHOOSING)
    step(world)
    return world


def change(world: Worlds, **changes: object) -> None:
    ((key, pod),) = world.scans.items()
    world.scans[key] = msgspec.structs.replace(pod, **changes)


def why_unverified(world: Worlds) -> str:
    """Runs one reconcile pass, in which the recovery continues without a verified checkpoint. Returns the
    reason for it."""
    assert step(world)[0] == "recovery-resuming"
    status = only_recovery(world).status
    assert status.reason == Reason.CHECKPOINT_UNVERIFIED
    assert status.checkpoint is not None
    assert not status.checkpoint.verified
    assert [c.reason for c in status.conditions if c.type == "CheckpointVerified"] == ["CheckpointUnverified"]
    return status.checkpoint.reason
