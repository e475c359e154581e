"""Plays a scenario on a stage: applies the job, injects the faults, waits for the end, and gives the verdict.

Each line about the agents and the controller comes from the API objects, and never from the controller's log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from chaos.scenarios import ledger
from chaos.scenarios.faults import inject, wait_for
from chaos.scenarios.ledger import Check, PhaseSpan
from chaos.scenarios.manifests import NAMESPACE, training_job
from chaos.scenarios.scenario import Scenario
from chaos.scenarios.stage import Stage
from chaos.scenarios.watching import Told, Watcher
from chaos.training.launch import free_port, run_reference
from detectors.wire.resource import Resource
from recover.api import Phase, Recovery
from recover.k8s.kinds import INCIDENTS, NODES, PODS, RECOVERIES
from recover.model.modes import Mode
from recover.workloads import WORKLOADS

__all__ = ["Struck", "Verdict", "play"]

JOB = "llm"
QUIET_S = 2.0


class Struck(msgspec.Struct, frozen=True):
    """A fault that was injected."""

    at: datetime
    node: str
    words: str


class Verdict(msgspec.Struct, frozen=True):
    """`recoveries` and `phases` have the same order, with one entry for each recovery."""

    scenario: str
    checks: tuple[Check, ...]
    recoveries: tuple[Recovery, ...]
    phases: tuple[tuple[PhaseSpan, ...], ...]
    struck: tuple[Struck, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        return ledger.all_ok(self.checks)


async def play(scenario: Scenario, stage: Stage, tell: Callable[[Told], None]) -> Verdict:
    """Plays the scenario. Raises TimeoutError, which names what is still missing, when `limit_s` has
    passed."""
    began = datetime.now(UTC)
    watcher = Watcher(stage, tell, began, job=JOB, steps_apart=scenario.job.checkpoint_every)
    reference = asyncio.create_task(_reference(scenario, stage))
    watching = asyncio.create_task(watcher.run())
    struck: list[Struck] = []
    try:
        async with asyncio.timeout(scenario.limit_s):
            await stage.cluster.apply(training_job(scenario.job, JOB, free_port()))
            await _ranks_run(stage, scenario)
            watcher.say("job", f"{scenario.job.kind} {NAMESPACE}/{JOB}: {scenario.job.ranks} ranks run")
            for number, fault in enumerate(scenario.faults):
                await _recovered(stage, number if scenario.expect.recoveries else 0)
                await wait_for(stage, JOB, fault.when)
                at = datetime.now(UTC)
                node, words = inject(stage, JOB, fault)
                struck.append(Struck(at, node, words))
                watcher.say("FAULT", words)
            await _ended(stage, scenario)
            undisturbed = await reference
    except TimeoutError as error:
        missing = "; ".join(c.words for c in _checks(scenario, stage, struck, "") if not c.ok)
        raise TimeoutError(f"not ended within {scenario.limit_s:g} s: {missing}") from error
    finally:
        for task in (reference, watching):
            task.cancel()
        await asyncio.gather(reference, watching, return_exceptions=True)
    watcher.look()
    return _verdict(scenario, stage, struck, undisturbed, (datetime.now(UTC) - began).total_seconds())


async def _reference(scenario: Scenario, stage: Stage) -> str:
    folder = stage.folder / "undisturbed"
    folder.mkdir()
    job = scenario.job
    return await run_reference(
        steps=job.steps, world_size=job.ranks, checkpoint_dir=folder, checkpoint_every=job.checkpoint_every
    )


async def _ranks_run(stage: Stage, scenario: Scenario) -> None:
    while sum(1 for p in stage.objects(PODS) if p["status"].get("phase") == "Running") < scenario.job.ranks:
        stage.check_alive()
        await asyncio.sleep(0.02)


async def _recovered(stage: Stage, count: int) -> None:
    """Waits until `count` recoveries have succeeded: the next fault strikes a job that has recovered from the
    earlier ones."""
    while sum(1 for r in _recoveries(stage) if r.status.phase is Phase.SUCCEEDED) < count:
        stage.check_alive()
        await asyncio.sleep(0.02)


async def _ended(stage: Stage, scenario: Scenario) -> None:
    """Waits until the job has completed. If it is not expected to complete, waits until the recoveries are
    over and no object changes any more."""
    if scenario.expect.completes:
        while not _completed(stage, scenario):
            stage.check_alive()
            await asyncio.sleep(0.05)
        await _recovered(stage, scenario.expect.recoveries)
        return
    await _recovered(stage, scenario.expect.recoveries)
    version = -1
    while version != stage.cluster.store.version:
        version = stage.cluster.store.version
        await asyncio.sleep(QUIET_S)


def _completed(stage: Stage, scenario: Scenario) -> bool:
    job = stage.cluster.store.read(_resource(scenario), JOB, NAMESPACE).body
    conditions = job.get("status", {}).get("conditions", [])
    return any(c["type"] in ("Succeeded", "Complete") and c["status"] == "True" for c in conditions)


def _resource(scenario: Scenario) -> Resource:
    return next(w.resource for w in WORKLOADS if w.resource.kind == scenario.job.kind)


def _recoveries(stage: Stage) -> list[Recovery]:
    return ledger.recoveries_of(stage.objects(RECOVERIES))


# --- the verdict --------------------------------------------------------------------------------------------


def _verdict(
    scenario: Scenario, stage: Stage, struck: list[Struck], undisturbed: str, seconds: float
) -> Verdict:
    recoveries = _recoveries(stage)
    # A recovery begins with the last fault that struck before it.
    begins = [
        max((s.at for s in struck if s.at <= r.status.phases[0].at), default=r.spec.detected_at)
        for r in recoveries
        if r.status.phases
    ]
    return Verdict(
        scenario=scenario.name,
        checks=tuple(_checks(scenario, stage, struck, undisturbed)),
        recoveries=tuple(recoveries),
        phases=tuple(tuple(ledger.spans(r, began)) for r, began in zip(recoveries, begins, strict=False)),
        struck=tuple(struck),
        seconds=round(seconds, 1),
    )


def _checks(scenario: Scenario, stage: Stage, struck: list[Struck], undisturbed: str) -> list[Check]:
    expect, recoveries = scenario.expect, _recoveries(stage)
    succeeded = [r for r in recoveries if r.status.phase is Phase.SUCCEEDED]
    checks = [
        Check(
            len(succeeded) == len(recoveries) == expect.recoveries,
            f"{len(succeeded)} of {len(recoveries)} recoveries succeeded, {expect.recoveries} expected",
        ),
        *(ledger.resumed_where_chosen(r) for r in recoveries),
        _stops(scenario, stage, recoveries),
        _cordons(scenario, stage, struck),
        _refusals(scenario, stage),
    ]
    if scenario.mode == Mode.OBSERVE:
        kinds = (NODES, PODS, *(w.resource for w in WORKLOADS))
        writes = ledger.writes_to(stage.cluster.store.audit, [kind.plural for kind in kinds])
        checks.append(Check(writes == 0, f"{writes} writes to nodes, jobs and pods in observe mode"))
    if expect.completes:
        checks.append(_weights(scenario, stage, undisturbed))
    return checks


def _stops(scenario: Scenario, stage: Stage, recoveries: list[Recovery]) -> Check:
    writes = ledger.job_writes(stage.cluster.store.audit, _resource(scenario).plural, JOB)
    attempts = sum(r.status.attempt for r in recoveries)
    cleaned = max(0, writes - 2 * attempts)
    return Check(
        2 * attempts <= writes <= 2 * attempts + len(recoveries),
        f"{writes} writes to the job: {attempts} stops, {attempts} starts and {cleaned} clean-ups, which "
        f"remove Rekindle's node affinity and annotation (expected: at most one clean-up for each recovery)",
    )


def _cordons(scenario: Scenario, stage: Stage, struck: list[Struck]) -> Check:
    expected = {
        s.node
        for s, fault in zip(struck, scenario.faults, strict=False)
        if fault.xid is not None and fault.xid.rank in scenario.expect.cordoned_ranks
    }
    found = ledger.cordoned(stage.objects(NODES))
    names = ", ".join(sorted(found)) or "none"
    return Check(found == expected, f"cordoned: {names}; expected: {', '.join(sorted(expected)) or 'none'}")


def _refusals(scenario: Scenario, stage: Stage) -> Check:
    found = ledger.refused(stage.objects(INCIDENTS))
    expected = sorted(set(scenario.expect.refused))
    if not found and not expected:
        return Check(True, "Rekindle refused no action, as expected")
    words = (
        f"reasons of refused actions: {', '.join(found) or 'none'}; expected: {', '.join(expected) or 'none'}"
    )
    return Check(found == expected, words)


def _weights(scenario: Scenario, stage: Stage, undisturbed: str) -> Check:
    weights = stage.folder / "checkpoints" / "final-weights.npy"
    found = ledger.sha256(weights) if weights.exists() else "none"
    return Check(
        _completed(stage, scenario) and found == undisturbed,
        f"final weights {found[:16]}, of an undisturbed run {undisturbed[:16] or 'not known yet'}",
    )
