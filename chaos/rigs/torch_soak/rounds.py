"""Plays one job and the faults that strike it, one after the other, each after the recovery from the previous
fault."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from chaos.rigs.torch_soak.manifest import FINAL_WEIGHTS, Training, torch_job
from chaos.rigs.torch_soak.strikes import Kind, Strike
from chaos.rigs.torch_soak.striking import Blow, strike_now
from chaos.rigs.torch_soak.witness import Instance, Witness
from chaos.scenarios import ledger
from chaos.scenarios.manifests import NAMESPACE
from chaos.scenarios.stage import Stage, raised
from chaos.training.launch import free_port
from recover.api import Phase, Recovery
from recover.k8s.kinds import NODES, PYTORCHJOBS, RECOVERIES

__all__ = ["Outcome", "RoundError", "play_round"]

JOB = "torch"
LOOK_S = 0.02
RECOVERY_LIMIT_S = 180.0
"""Limit in seconds of each of three waits: for the first checkpoint, for the moment of a fault, and for the
recovery from the fault."""
JOB_LIMIT_S = 300.0
"""Seconds for the steps after the last fault."""


class RoundError(Exception):
    """The round could not be played to its end. The message says what was awaited, and the state of the
    recoveries."""


class Outcome(msgspec.Struct, frozen=True):
    """One fault and its recovery. `lost_steps` counts the steps that were made twice."""

    kind: Kind
    words: str
    in_save: bool
    fault: str
    """Fault class that the Recovery names."""
    first_lost: bool | None
    """Whether the Recovery names the struck rank as the first lost one. None if the fault killed no rank, or
    the Recovery names no lost rank."""
    attempts: int
    chosen: int | None
    last_step: int
    lost_steps: int
    save_steps: int
    """Maximum number of steps that were made during one save."""
    lost_steps_max: int
    told_lost_steps: int | None
    """Number of lost steps by the Recovery."""
    phases: tuple[ledger.PhaseSpan, ...]
    """Phases of the recovery. The first span is from the fault to the stop."""
    seconds: float
    """Seconds from the fault to the first new step that a rank printed."""
    wrong: tuple[str, ...]


async def play_round(
    folder: Path,
    python: Path,
    training: Training,
    strikes: Sequence[Strike],
    tell: Callable[[Outcome], None],
) -> str:
    """Returns the SHA-256 of the final weights. `tell` is called after each recovery. Raises RoundError."""
    async with raised(folder, nodes=training.ranks + 1, mode="recover") as stage:
        witness = Witness(stage, JOB, training.ranks)
        await stage.cluster.apply(torch_job(training, JOB, free_port(), python))
        watching = asyncio.create_task(witness.run())
        try:
            await _until(stage, RECOVERY_LIMIT_S, "a first checkpoint", lambda: witness.save_steps_max() > 0)
            for number, strike in enumerate(strikes, start=1):
                tell(await _struck(stage, witness, training, strike, number))
            await _until(stage, JOB_LIMIT_S, "the job's last step", lambda: _completed(stage))
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
    return ledger.sha256(folder / "checkpoints" / FINAL_WEIGHTS)


async def _struck(stage: Stage, witness: Witness, training: Training, strike: Strike, number: int) -> Outcome:
    try:
        async with asyncio.timeout(RECOVERY_LIMIT_S):
            blow = await strike_now(stage, witness, JOB, training, strike)
    except TimeoutError:
        raise RoundError(f"fault {number}, {strike.kind}: its instant did not come; {_said(stage)}") from None
    old = [i for i in witness.instances.values() if i is witness.current(i.rank)]
    writes = _job_writes(stage)

    def recovered() -> bool:
        found = _recoveries(stage)
        return len(found) >= number and not found[-1].active and _first_new(witness, old) is not None

    await _until(stage, RECOVERY_LIMIT_S, f"the recovery from fault {number}, {blow.words}", recovered)
    if blow.link is not None:
        blow.link.unlink()  # the disk has room again before the resumed ranks save
    return _outcome(stage, witness, training, strike, blow, number, old, writes)


def _outcome(
    stage: Stage,
    witness: Witness,
    training: Training,
    strike: Strike,
    blow: Blow,
    number: int,
    old: list[Instance],
    writes_before: int,
) -> Outcome:
    recoveries, first = _recoveries(stage), _first_new(witness, old)
    recovery = recoveries[-1]
    status = recovery.status
    assert first is not None
    assert first.first_step is not None
    assert first.first_step_at is not None
    chosen = status.checkpoint.step if status.checkpoint else None
    newest = _newest_finished(stage.folder / "checkpoints", first.first_step_at)
    last_step = max(i.last_step for i in old)
    lost = last_step - first.first_step + 1
    # An interrupted save counts with the steps that were made until the fault.
    cut_off = [i.last_step - i.saving for i in old if i.saving is not None]
    save_steps = max(witness.save_steps_max(), *cut_off, 0)
    lost_max = training.checkpoint_every + save_steps + 1
    writes = _job_writes(stage) - writes_before
    cordoned = ledger.cordoned(stage.objects(NODES))
    checks = {
        f"{len(recoveries)} recoveries after {number} faults": len(recoveries) == number,
        f"the recovery ended {status.phase}: {status.message}": status.phase is Phase.SUCCEEDED,
        f"step {chosen} was chosen, step {newest} is the newest finished one": chosen == newest,
        f"the first new step is {first.first_step}, after step {chosen}": first.first_step == newest + 1,
        f"{lost} lost steps, at most {lost_max} allowed": lost <= lost_max,
        f"{writes} writes to the job in {status.attempt} attempt(s)": writes - 2 * status.attempt in (0, 1),
        f"cordoned: {', '.join(sorted(cordoned))}": not cordoned,
    }
    return Outcome(
        kind=strike.kind,
        words=blow.words,
        in_save=blow.saving is not None,
        fault=str(recovery.spec.fault),
        first_lost=_names(recovery, old, strike),
        attempts=status.attempt,
        chosen=chosen,
        last_step=last_step,
        lost_steps=lost,
        save_steps=save_steps,
        lost_steps_max=lost_max,
        told_lost_steps=status.lost_steps,
        phases=tuple(ledger.spans(recovery, blow.at)),
        seconds=(first.first_step_at - blow.at).total_seconds(),
        wrong=tuple(words for words, ok in checks.items() if not ok),
    )


def _names(recovery: Recovery, old: list[Instance], strike: Strike) -> bool | None:
    if strike.kind not in (Kind.KILL_POD, Kind.KILL_RANK) or not recovery.spec.witnesses:
        return None
    return any(i.rank == strike.rank and i.uid == recovery.spec.witnesses[0].uid for i in old)


def _first_new(witness: Witness, old: list[Instance]) -> Instance | None:
    """Returns the rank that made the first step after the resume."""
    lives = list(witness.instances.values())
    since = max(lives.index(instance) for instance in old)
    new = [i for i in lives[since + 1 :] if i.first_step_at is not None]
    return min(new, key=_first_step_at, default=None)


def _first_step_at(instance: Instance) -> datetime:
    assert instance.first_step_at is not None
    return instance.first_step_at


def _newest_finished(checkpoints: Path, at: datetime) -> int:
    """Returns the highest step whose index existed when the ranks made their first new step."""
    return max(
        int(index.parent.name.removeprefix("step-"))
        for index in checkpoints.glob("step-*/.metadata")
        if index.stat().st_mtime <= at.timestamp()
    )


def _recoveries(stage: Stage) -> list[Recovery]:
    return ledger.recoveries_of(stage.objects(RECOVERIES))


def _job_writes(stage: Stage) -> int:
    return ledger.job_writes(stage.cluster.store.audit, PYTORCHJOBS.plural, JOB)


def _completed(stage: Stage) -> bool:
    status = stage.cluster.store.read(PYTORCHJOBS, JOB, NAMESPACE).body.get("status", {})
    return any(c["type"] == "Succeeded" and c["status"] == "True" for c in status.get("conditions", []))


async def _until(stage: Stage, limit_s: float, what: str, done: Callable[[], bool]) -> None:
    try:
        async with asyncio.timeout(limit_s):
            while not done():
                stage.check_alive()
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise RoundError(f"{what}: not within {limit_s:g} s; {_said(stage)}") from None


def _said(stage: Stage) -> str:
    found = [f"{r.metadata.name}: {r.status.phase} {r.status.message}" for r in _recoveries(stage)]
    return "; ".join(found[-2:]) or "no recovery"
