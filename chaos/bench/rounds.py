"""The rounds of `rekindle bench loop`: a round injects a fault, records what the observer saw of it, and
undoes everything."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping

import msgspec

from chaos.bench.figures import Goal
from chaos.bench.gangs import Gang, RecoveryTimes, crash, indexed_job, pytorchjob, recovery_times, runs
from chaos.bench.seen import Seen
from chaos.bench.throwaway import NAMESPACE, Throwaway
from chaos.scenarios.stage import StageError
from detectors.wire.resource import Resource
from recover.k8s.kinds import INCIDENTS, JOBS, NODEHEALTHS, NODES, PODS, PYTORCHJOBS, RECOVERIES

__all__ = ["FELL_OFF", "RANKS", "ROUNDS", "ROWS", "Round", "undone"]

RANKS = 4
GANG = "llm"
FELL_OFF = "GPU has fallen off the bus."
REST_S = 1.0
"""Seconds between two rounds: the effects of a round are over, and the agent's limit (20 writes in 10 s) is
not reached."""
SETTLE_S = 2.0
"""Seconds for which a gang runs before its fault. The training-operator may send 20 requests a second, and
the job's creation has used up its reserve of 30."""

ROWS: Mapping[str, tuple[str, Goal]] = {
    "finding": ("kernel line -> finding in the API", Goal(20, 100)),
    "cordon": ("kernel line, Xid 79 -> cordon and taint", Goal(30, 250)),
    "crash stop": ("PyTorchJob, pod Failed -> stop issued", Goal(30)),
    "crash running": ("  the same -> gang running again", Goal(240)),
    "crash ours": ("  of it our own: the next two lines", Goal(30)),
    "crash our stop": ("    failed pod visible -> stop visible", Goal()),
    "crash our resume": ("    last old pod gone -> resume visible", Goal()),
    "crash gone": ("  framework: stop -> last old pod gone", Goal()),
    "crash started": ("  framework: resume -> new pods running", Goal()),
    "node stop": ("Indexed Job, Xid 79 -> stop issued", Goal()),
    "node running": ("  the same -> gang running elsewhere", Goal()),
    "node ours": ("  of it our own: the next two lines", Goal()),
    "node our stop": ("    finding visible -> stop visible", Goal()),
    "node our resume": ("    last old pod gone -> resume visible", Goal()),
    "node gone": ("  framework: stop -> last old pod gone", Goal()),
    "node started": ("  framework: resume -> new pods running", Goal()),
}
"""Label and goal of each row. A goal that the design states for 10,000 nodes is shown at any size."""
_OUT = {"cordoned", "tainted", "quarantined", "closed"}
"""Facts that a node no longer has once its quarantine has ended: the cordon, Rekindle's taint and annotation,
any taint with the effect NoSchedule."""


class Round(msgspec.Struct, frozen=True):
    began_s: float
    """Moment at which the fault was injected, by this machine's wall clock."""
    times_s: Mapping[str, float]
    """Seconds by row, in the order of ROWS."""


async def _kernel(stage: Throwaway) -> Round:
    stage.sight.forget()
    began_s = time.time()
    stage.strike(79, FELL_OFF)
    found_s = await stage.sight.moment("finding", NODEHEALTHS.plural, stage.struck, "xid-79")
    out_s = await stage.sight.moment("cordon", NODES.plural, stage.struck, "cordoned", "tainted")
    return Round(began_s, {"finding": found_s - began_s, "cordon": out_s - began_s})


async def _crashed(stage: Throwaway) -> Round:
    """Plays a round in which one worker of a PyTorchJob fails permanently."""
    gang = pytorchjob(GANG, RANKS)
    old = await _settled(stage, gang)
    failed = max(old.values(), key=lambda seen: seen.name)
    began_s = time.time()
    await crash(stage, failed)
    visible_s = await stage.sight.moment("failed pod", PODS.plural, failed.name, "Failed")
    return Round(began_s, _stretches("crash", began_s, visible_s, await recovery_times(stage, gang, old)))


async def _struck(stage: Throwaway) -> Round:
    """Plays a round in which the GPU of one rank of an Indexed Job falls off the bus."""
    gang = indexed_job(GANG, RANKS, preferred=stage.struck, pool=True)
    old = await _settled(stage, gang)
    if stage.struck not in {seen.node for seen in old.values()}:
        raise StageError(f"no rank was placed on {stage.struck}, though it was free and preferred")
    began_s = time.time()
    stage.strike(79, FELL_OFF)
    visible_s = await stage.sight.moment("finding", NODEHEALTHS.plural, stage.struck, "xid-79")
    return Round(began_s, _stretches("node", began_s, visible_s, await recovery_times(stage, gang, old)))


async def _settled(stage: Throwaway, gang: Gang) -> Mapping[str, Seen]:
    old = await runs(stage, gang)
    await asyncio.sleep(SETTLE_S)
    stage.sight.forget()
    return old


def _stretches(kind: str, began_s: float, visible_s: float, times: RecoveryTimes) -> dict[str, float]:
    ours = (times.stop_s - visible_s, times.resume_s - times.gone_s)
    return {
        f"{kind} stop": times.stop_s - began_s,
        f"{kind} running": times.running_s - began_s,
        f"{kind} ours": sum(ours),
        f"{kind} our stop": ours[0],
        f"{kind} our resume": ours[1],
        f"{kind} gone": times.gone_s - times.stop_s,
        f"{kind} started": times.running_s - times.resume_s,
    }


async def undone(stage: Throwaway) -> None:
    """Removes everything of the round. The struck node is then as new: it has another boot id, and the bench
    has ended its quarantine as a person does, by an uncordon."""
    sight = stage.sight
    for resource in (PYTORCHJOBS, JOBS):
        if any(seen.name == GANG for seen in sight.all(resource.plural)):
            await stage.delete(resource, GANG, NAMESPACE)
    await sight.until("end of the gang's pods", lambda: not sight.all(PODS.plural))
    await _deleted(stage, RECOVERIES)
    if any("cordoned" in seen.facts for seen in sight.all(NODES.plural)):
        await stage.boot()
        await stage.patch(NODES, stage.struck, {"spec": {"unschedulable": None}})
        await sight.until("release", lambda: not any({*s.facts} & _OUT for s in sight.all(NODES.plural)))
    await _deleted(stage, INCIDENTS)
    await asyncio.sleep(REST_S)
    await _deleted(stage, INCIDENTS)


async def _deleted(stage: Throwaway, resource: Resource) -> None:
    """Deletes all objects of a kind, including objects that the controller creates in the meantime."""
    while there := {seen.uid: seen.name for seen in stage.sight.all(resource.plural)}:
        for name in there.values():
            await stage.delete(resource, name, NAMESPACE if resource.namespaced else "")
        await _unseen(stage, resource, there)


async def _unseen(stage: Throwaway, resource: Resource, uids: Iterable[str]) -> None:
    gone = set(uids)

    def none_left() -> bool:
        return gone.isdisjoint(seen.uid for seen in stage.sight.all(resource.plural))

    await stage.sight.until(f"end of {resource.plural}", none_left)


ROUNDS: Mapping[str, Callable[[Throwaway], Awaitable[Round]]] = {
    "kernel": _kernel,
    "pytorchjob": _crashed,
    "job": _struck,
}
