"""`rekindle bench loop`: measures the times of the loop on a real control plane, from a fault until the gang
runs again.

The API server, its controllers, the shipped controller and the shipped agent are separate processes. The
observer (observer.py) is a separate process, too, and notes the time at which each change became visible.
KWOK simulates the nodes' kubelets. Each round is undone outside the measured time, so that rounds are
independent and budgets stay as shipped.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from chaos.bench.arguments import access_of, add_cluster, add_count
from chaos.bench.figures import Machine, Row, answered, machine, percentile, row, table
from chaos.bench.rounds import RANKS, ROUNDS, ROWS, Round, undone
from chaos.bench.seen import POKE
from chaos.bench.throwaway import NAMESPACE, Throwaway, is_served, raised
from chaos.scenarios.stage import StageError
from detectors.commands.arguments import Parser
from recover.cli.access import Access
from recover.k8s.kinds import NAMESPACES, PYTORCHJOBS

__all__ = ["ABOUT", "Hop", "Loop", "measure", "run", "tell"]

ABOUT = "Measure the times on a throwaway control plane from a fault until the gang runs again."

POKES = 50
LOGGED_S = 0.2
"""Seconds to wait for the controller's log: the observer may see a write before the controller has logged the
reply."""


class Hop(msgspec.Struct, frozen=True):
    """One write of the controller, and the time from the fault until the API server's reply, by the
    controller's own log."""

    rounds_of: str
    what: str
    p50_ms: float


class Loop(msgspec.Struct, frozen=True):
    nodes: int
    settings: tuple[str, ...]
    """Settings of the controller that differ from its defaults."""
    rows: tuple[Row, ...]
    hops: tuple[Hop, ...]
    not_measured: tuple[str, ...]
    machine: Machine


def run(args: list[str]) -> int:
    """Returns the exit status. 0: measured, whether goals were met or not; 1: the measurement failed; 2:
    wrong usage."""
    options = _parser().parse_args(args)
    settings = ("mode=recover", *options.set)

    def measured() -> Loop:
        with tempfile.TemporaryDirectory(prefix="rekindle-") as folder:
            measuring = measure(
                access_of(options), Path(folder), options.nodes, options.rounds, settings, options.only
            )
            return asyncio.run(measuring)

    return answered("bench loop", measured, tell, options.output)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "bench loop",
        f"{ABOUT} The control plane needs KWOK. The command measures the times from a kernel line to "
        "the finding "
        "and to the cordon, and from the failure of a rank until its gang is stopped and runs again. If the "
        "cluster has any other node or job, the command refuses to start.",
        row="bench",
    )
    add_cluster(parser)
    add_count(parser, "--nodes", "Number of nodes", least=RANKS + 1, most=10_000, default=250)
    add_count(parser, "--rounds", "Number of rounds of each kind", least=1, most=10_000, default=50)
    parser.add_argument(
        "--only",
        action="append",
        choices=ROUNDS,
        default=[],
        metavar="KIND",
        help=f"Play only rounds of this kind, one of {', '.join(ROUNDS)}; you can repeat this option.",
    )
    return parser


# --- measuring ----------------------------------------------------------------------------------------------


async def measure(
    access: Access,
    folder: Path,
    nodes: int,
    rounds: int,
    settings: Sequence[str],
    only: Sequence[str] = (),
) -> Loop:
    """Raises StageError, ApiError or ReplyLost if the measurement fails."""
    load_before = os.getloadavg()[0]
    rows: list[Row] = []
    hops: list[Hop] = []
    not_measured = []
    async with raised(access, folder, nodes=nodes, settings=settings) as stage:
        rows += await _yardsticks(stage)
        for kind in only or ROUNDS:
            if kind == "pytorchjob" and not await is_served(stage.api, PYTORCHJOBS):
                not_measured.append("PyTorchJob: the training-operator is not installed")
                continue
            times, writes, failure = await _rounds(stage, ROUNDS[kind], rounds)
            if failure:
                not_measured.append(f"{kind}: {failure}")
            rows += [
                row(name, words, times[name], goal) for name, (words, goal) in ROWS.items() if name in times
            ]
            hops += [Hop(kind, what, round(1000 * percentile(at, 50), 1)) for what, at in writes.items()]
    if not hops:
        raise StageError("; ".join(not_measured))
    return Loop(nodes, tuple(settings), tuple(rows), tuple(hops), tuple(not_measured), machine(load_before))


async def _yardsticks(stage: Throwaway) -> list[Row]:
    """Measures what one write costs on this machine, and how much later than its writer the observer sees the
    write. A row contains the cost of a write once for each write that the loop makes in a row. A row that
    begins with the fault also contains the observer's delay once; a row between two moments that the observer
    saw contains the delay at both ends, where it mostly cancels out."""
    writes, delays = [], []
    for number in range(POKES):
        sent_s = time.time()
        await stage.patch(NAMESPACES, NAMESPACE, {"metadata": {"annotations": {POKE: str(number)}}})
        answered_s = time.time()
        seen_s = await stage.sight.moment("poke", NAMESPACES.plural, NAMESPACE, str(number))
        writes.append(answered_s - sent_s)
        delays.append(seen_s - answered_s)
    return [
        row("write", "one bare write, sent -> answered", writes),
        row("observer", "  answered -> the observer sees it", delays),
    ]


async def _rounds(
    stage: Throwaway, play: Callable[[Throwaway], Awaitable[Round]], rounds: int
) -> tuple[dict[str, list[float]], dict[str, list[float]], str]:
    """Returns the times of all rounds by row, and the times of the controller's writes by what they wrote,
    without writes that happen in at most half of the rounds. If a round fails, the rounds before it count,
    and the third value says why there are no more."""
    times: dict[str, list[float]] = {}
    writes: dict[str, list[float]] = {}
    failure = ""
    for number in range(rounds):
        before = len(stage.written())
        try:
            played = await play(stage)
        except StageError as error:
            failure = f"round {number + 1}: {error}"
            break
        for name, value_s in played.times_s.items():
            times.setdefault(name, []).append(value_s)
        await asyncio.sleep(LOGGED_S)
        for what, at_s in stage.written()[before:]:
            writes.setdefault(what, []).append(at_s - played.began_s)
        await undone(stage)
    often = {what: at_s for what, at_s in writes.items() if len(at_s) > rounds / 2}
    return times, dict(sorted(often.items(), key=lambda item: percentile(item[1], 50))), failure


# --- telling ------------------------------------------------------------------------------------------------


def tell(console: Console, found: Loop) -> None:
    console.print(table(f"The loop on {found.nodes} nodes", found.rows))
    for kind in dict.fromkeys(hop.rounds_of for hop in found.hops):
        steps = ", ".join(f"{hop.what} {hop.p50_ms:g}" for hop in found.hops if hop.rounds_of == kind)
        console.print(
            f"Writes in the {kind} rounds, answered so many ms after the fault (p50): {steps}.",
            highlight=False,
        )
    for words in found.not_measured:
        console.print(f"Not measured: {words}.", highlight=False)
    console.print(
        f"Settings of the controller: {', '.join(found.settings)}, all else as shipped; the Incidents and "
        f"Recoveries of a round are deleted after it. {found.machine.words()}.",
        highlight=False,
    )
