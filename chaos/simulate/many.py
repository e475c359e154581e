"""Plays the scripts of many seeds in several processes, and sums up the faults and the failures."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

import msgspec

from chaos.simulate.drawing import script_of
from chaos.simulate.script import Script
from chaos.simulate.shrinking import failure_of
from chaos.simulate.world import Simulation

__all__ = ["Played", "Sums", "play_seed", "play_seeds", "sum_up"]


class Played(msgspec.Struct, frozen=True):
    """One seed's run. `failure` is empty if all checks passed. A run that failed has no `refused` and no
    `decided`: its simulation ended with the failure."""

    seed: int
    script: Script
    failure: str
    refused: dict[str, int]
    """Requests of the controller that were refused on purpose, by reason."""
    decided: dict[str, int]
    """Decisions of the controller, by action and outcome or reason."""
    seconds: float


class Sums(msgspec.Struct, frozen=True):
    runs: int
    acts: dict[str, int]
    refused: dict[str, int]
    decided: dict[str, int]
    failed: tuple[int, ...]
    """Seeds whose run failed."""
    seconds: float


def play_seed(seed: int) -> Played:
    began, script = time.monotonic(), script_of(seed)
    refused: Counter[str] = Counter()
    decided: Counter[str] = Counter()

    def look(sim: Simulation) -> None:
        refused.update(sim.client.disturbance.refused)
        for incident in sim.incidents():
            decided.update(f"{r.action}: {r.reason or r.outcome}" for r in incident.status.actions)

    failure = failure_of(script, look)
    gc.collect()  # a run is one large cycle, and the controller switches the collector off for a while
    return Played(seed, script, failure, refused, decided, time.monotonic() - began)


def play_seeds(seeds: Sequence[int], jobs: int) -> Iterator[Played]:
    """Yields the runs in the order of the seeds."""
    if jobs == 1:
        yield from map(play_seed, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(play_seed, seeds, chunksize=4)


def sum_up(runs: Iterable[Played]) -> Sums:
    acts: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    decided: Counter[str] = Counter()
    failed, count, seconds = [], 0, 0.0
    for run in runs:
        count, seconds = count + 1, seconds + run.seconds
        acts.update(run.script.kinds)
        refused.update(run.refused)
        decided.update(run.decided)
        if run.failure:
            failed.append(run.seed)
    return Sums(count, dict(acts), dict(refused), dict(decided), tuple(failed), seconds)
