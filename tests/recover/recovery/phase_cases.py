"""Makes a gang at the beginning of its recovery, and answers of its scan, for the tests of the phases."""

from __future__ import annotations

import msgspec

from recover.api import Phase
from recover.model import Mount, Template, Volume, VolumeKind
from recover.model.actions import Ensure
from recover.recovery.loading import unloadable
from tests.acting import advanced, look, only_recovery, recovering, scanned, step
from tests.builders import Worlds, cluster, gang

CLAIM = Volume(
    name="ckpt",
    kind=VolumeKind.CLAIM,
    source={"claimName": "ckpt"},
    mounts=(Mount("/ckpt"),),
)


def faulted(**annotations: str) -> Worlds:
    """Returns a gang on n0 to n3 whose node n1 lost its GPU; n4 to n7 are free, and the Recovery is
    Planned."""
    job = gang(
        annotations={f"rekindle.dev/{name.replace('_', '-')}": value for name, value in annotations.items()},
        templates={"Worker": Template(volumes=(CLAIM,))},
    )
    return recovering(cluster(nodes=8).running(job).finding(on="n1"))


def choice(step_: int = 80, path: str = "step-80", reason: str = "") -> str:
    """Returns the message of a scan that found one complete checkpoint. `reason` names the part that the
    scan did not read."""
    chosen = {
        "step": step_,
        "path": path,
        "format": "torch-dcp",
        "complete": True,
        "reason": reason,
        "bytes": 9,
    }
    return msgspec.json.encode({"chosen": chosen, "found": 1}).decode()


def excluded_in(world: Worlds) -> list[int]:
    """Returns the steps from which the only recovery's next start must not begin."""
    recovery = only_recovery(world)
    return unloadable(recovery, world.gangs[recovery.spec.gang.uid], world.world(), world.settings)


def resumed() -> Worlds:
    """Returns a gang that was started from step 80 and whose ranks all run."""
    world = faulted(checkpoint="/ckpt")
    advanced(world, Phase.CHOOSING)
    step(world)
    scanned(world, choice(80))
    advanced(world, Phase.VERIFYING)
    return world


def chosen(world: Worlds, message: str | None = None, *, wait_s: float = 0.0) -> Worlds:
    """Advances the recovery to the end of Choosing. The scan answers `message`, or nothing in time."""
    advanced(world, Phase.CHOOSING)
    step(world)
    if message is not None:
        scanned(world, message)
    assert step(world.later(wait_s))[0] == "recovery-resuming"
    return world


def environment(world: Worlds) -> dict[str, str | None]:
    (found,) = [a for a in look(world).actions if isinstance(a, Ensure)]
    data: dict[str, str | None] = found.body["data"]
    return data
