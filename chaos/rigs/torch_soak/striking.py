"""Strikes a running gang: waits for the drawn moment, then sends the signal or fills the disk."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from chaos.apiserver.kinds import Object
from chaos.cluster.containers import Exit
from chaos.cluster.process_runtime import ProcessRuntime
from chaos.rigs.torch_soak.manifest import Training
from chaos.rigs.torch_soak.strikes import INDEX, Kind, Strike
from chaos.rigs.torch_soak.witness import LOOK_S, Witness
from chaos.scenarios.faults import rank_pod
from chaos.scenarios.manifests import NAMESPACE
from chaos.scenarios.stage import Stage

__all__ = ["Blow", "strike_now"]

FULL = Path("/dev/full")
"""Device on which every write fails with ENOSPC, as on a disk without room."""


class Blow(msgspec.Struct, frozen=True):
    """A strike that was executed. `saving` is the step of the checkpoint that was unfinished then."""

    at: datetime
    words: str
    saving: int | None = None
    link: Path | None = None
    """Link that leads to the full disk, until there is room again."""


async def strike_now(stage: Stage, witness: Witness, job: str, training: Training, strike: Strike) -> Blow:
    """Executes the strike. There is no time limit: a gang that no longer saves is never struck in a save."""
    await asyncio.sleep(strike.wait_s)
    if strike.kind is Kind.DISK_FULL:
        return await _fill_disk(stage, witness, training, strike)
    if strike.saving:
        await _in_a_save(witness, strike)
    pod = rank_pod(stage, job, strike.rank)
    assert pod is not None, f"rank {strike.rank} has no pod to strike"
    if strike.kind is Kind.KILL_POD:
        stage.cluster.crash_pod(pod["metadata"]["name"], Exit.by_signal(signal.SIGKILL), NAMESPACE)
    else:
        number = signal.SIGSTOP if strike.kind is Kind.FREEZE else signal.SIGKILL
        os.kill(_training_process(stage, pod), number)
    at = datetime.now(UTC)
    saving = _unfinished(stage, witness, strike.rank)
    during = f" while step-{saving} is saved" if saving else ""
    return Blow(at, f"{strike.kind}, rank {strike.rank}{during}", saving)


async def _in_a_save(witness: Witness, strike: Strike) -> None:
    """Waits until the drawn share of a save has passed. If the save is over by then, waits in the next
    save."""
    while True:
        witness.look()
        instance = witness.current(strike.rank)
        assert instance is not None
        if instance.saving is not None and instance.saving_since is not None:
            step = instance.saving
            gone_s = (datetime.now(UTC) - instance.saving_since).total_seconds()
            await asyncio.sleep(max(0.0, strike.share * witness.save_s() - gone_s))
            witness.look()
            if instance.saving == step:
                return
        await asyncio.sleep(LOOK_S)


async def _fill_disk(stage: Stage, witness: Witness, training: Training, strike: Strike) -> Blow:
    """Makes the save after the next one fail, because one of its files finds no room."""
    writer = 0 if strike.file == INDEX else strike.file
    instance = witness.current(writer)
    assert instance is not None
    step = (instance.last_step // training.checkpoint_every + 2) * training.checkpoint_every
    folder = stage.folder / "checkpoints" / f"step-{step}"
    folder.mkdir(exist_ok=True)
    # DCP writes to these names: the index gets its final name by a rename at the very end.
    link = folder / (".metadata.tmp" if strike.file == INDEX else f"__{writer}_0.distcp")
    link.unlink(missing_ok=True)
    link.symlink_to(FULL)
    while instance.saving != step:
        await asyncio.sleep(LOOK_S)
        witness.look()
    assert instance.saving_since is not None
    return Blow(instance.saving_since, f"{strike.kind}: no room for step-{step}/{link.name}", step, link)


def _unfinished(stage: Stage, witness: Witness, rank: int) -> int | None:
    """Returns the step of the rank's save that has no index yet. Returns None if there is no unfinished
    save."""
    witness.look()
    instance = witness.current(rank)
    if instance is None or instance.saving is None:
        return None
    index = stage.folder / "checkpoints" / f"step-{instance.saving}" / ".metadata"
    return None if index.exists() else instance.saving


def _training_process(stage: Stage, pod: Object) -> int:
    """Returns the process of the rank itself: the pod's process that is not torchrun."""
    runtime = stage.cluster.runtime
    assert isinstance(runtime, ProcessRuntime)
    pids = runtime.processes(pod["metadata"]["uid"])
    (found,) = [
        pid for pid in pids if b"torch.distributed.run" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    return found
