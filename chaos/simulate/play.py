"""Plays a story in virtual time and judges the run by the invariants, by the controller's own errors, and by
whether everything comes to rest once the faults have stopped."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterator, MutableMapping
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from chaos.apiserver.disturbance import ON_PURPOSE
from chaos.cluster.virtual import Clock, run
from chaos.simulate.leftovers import left_behind
from chaos.simulate.liveness import is_unseen, left_in_service, silent_repairs, wrongly_waiting
from chaos.simulate.world import Simulation, simulation
from chaos.simulated.setup import Setup
from detectors.client.kubeapi import ApiError
from recover.api import Outcome, Phase

__all__ = ["START", "Story", "comes_to_rest", "play"]

START = datetime(2026, 11, 21, 9, tzinfo=UTC)
QUIET_S = 1800.0
_LOOK_EVERY_S = 60.0

Story = Callable[[Simulation], Coroutine[Any, Any, None]]


def play(story: Story, setup: Setup | None = None) -> Simulation:
    """Plays the story. Raises AssertionError with the first ten violations and errors, even if the story
    itself passes."""
    errors: list[str] = []

    async def main(clock: Clock) -> Simulation:
        async with simulation(setup or Setup(), clock) as sim:
            try:
                await story(sim)
            finally:
                found = [*sim.invariants.violations, *dict.fromkeys(errors)]
                assert not found, "\n".join([*found[:10], sim.tell()])
            sim.cluster.check()
        return sim

    with _errors_only(errors):
        return run(main, start=START)


async def comes_to_rest(sim: Simulation, within_s: float = 6 * 3600.0) -> None:
    """Waits for half an hour without a write of the controller. Then every gang must train, or stand still
    for a stated reason that the truth confirms, and no broken node may take pods.

    Raises AssertionError if the writes never end, or one of these conditions is not met.
    """
    ends_at = sim.clock.now() + timedelta(seconds=within_s)
    began_at = sim.clock.now()
    steps: dict[str, int] = {}
    while _quiet_s(sim, began_at) < QUIET_S or _deadline_runs(sim):
        assert sim.clock.now() < ends_at, f"the controller writes on and on: {sim.tell()}"
        steps = {name: gang.step for name, gang in sim.gangs.items()}
        await sim.passes(_LOOK_EVERY_S)
    await sim.passes(max([_LOOK_EVERY_S, *(2 * gang.job.step_s for gang in sim.gangs.values())]))
    wrong = [*left_in_service(sim), *left_behind(sim), *silent_repairs(sim)]
    for name, gang in sim.gangs.items():
        if gang.step == steps[name]:
            wrong.append(wrongly_waiting(sim, name))
            if _is_ours(sim, name) and not is_unseen(sim, name) and not _stated_reason(sim, name):
                wrong.append(f"{name} stands still, and nobody says why")
    assert not any(wrong), "\n".join([*filter(None, wrong), sim.tell()])


def _is_ours(sim: Simulation, job: str) -> bool:
    """Whether the job has trained or was recovered, and no person has started it since."""
    recoveries = sim.recoveries(job)
    if job in sim.truth.decided_by_people:
        return bool(recoveries) and recoveries[-1].status.phase is not Phase.SUCCEEDED
    return bool(recoveries) or sim.gangs[job].step > 0


def _quiet_s(sim: Simulation, began_at: datetime) -> float:
    last = max(began_at, sim.invariants.last_write_at or began_at)
    return (sim.clock.now() - last).total_seconds()


def _deadline_runs(sim: Simulation) -> bool:
    """Whether a recovery waits for something, and will act if that does not happen in time."""
    recoveries = [recovery for name in sim.gangs for recovery in sim.recoveries(name)]
    return any(r.active and r.status.deadline is not None for r in recoveries)


def _stated_reason(sim: Simulation, job: str) -> str:
    """Returns the stated reason why that job does not train. Returns an empty string if there is none."""
    resource, about = sim.resource(job), sim.gangs[job].job
    try:
        body = sim.cluster.store.read(resource, about.name, about.namespace).body
    except ApiError:
        return "the job is gone"
    conditions = body.get("status", {}).get("conditions", [])
    for over in ("Succeeded", "Complete", "Completed", "Failed"):
        if any(c["type"] == over and c["status"] == "True" for c in conditions):
            return f"the job is {over}"
    last = max(sim.recoveries(job), key=lambda r: r.spec.number, default=None)
    if last is not None and last.status.phase is not Phase.SUCCEEDED and last.status.reason:
        return last.status.reason
    refusals = [
        record.reason
        for incident in sim.incidents()
        for record in incident.status.actions
        if record.outcome is not Outcome.DONE and record.target.endswith(f"{about.namespace}/{about.name}")
    ]
    return refusals[-1] if refusals else ""


@contextlib.contextmanager
def _errors_only(sink: list[str]) -> Iterator[None]:
    """Drops the controller's log, except for errors. Each error that the controller logs is a defect, unless
    it is a refusal that the story wanted."""

    def keep(_: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        is_wanted = ON_PURPOSE in str(event.get("why", ""))
        if method in ("error", "exception", "critical") and not is_wanted:
            error = sys.exc_info()[1]
            where = "".join(traceback.format_exception(error, limit=-2)) if error is not None else ""
            sink.append(f"the controller logged: {dict(event)}\n{where}")
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[keep], cache_logger_on_first_use=False)
    try:
        yield
    finally:
        structlog.configure(**before)
