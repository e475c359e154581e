"""`rekindle bench scale`: reads the arguments, runs the measurements and prints the table."""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from chaos.bench.arguments import access_of, add_cluster, add_count, as_arguments
from chaos.bench.figures import answered, machine
from chaos.bench.scale.course import Pace, at_size
from chaos.bench.scale.figures import AtSize, Scale, tell
from chaos.bench.scale.in_process import InProcess
from chaos.bench.scale.size import Size, sizes_of
from chaos.bench.throwaway import GPUS_PER_NODE
from detectors.client.kubeapi import KubeApi
from detectors.commands.arguments import Parser

__all__ = ["ABOUT", "measure_in_process", "run"]

ABOUT = "Measure what the size of a cluster costs the controller, and how each figure grows."

NODES_MAX, PODS_MAX = 20_000, 500_000


def run(args: list[str]) -> int:
    """Returns the exit status. 0: measured; 1: the measurement failed; 2: wrong usage."""
    parser = _parser()
    options = parser.parse_args(args)
    nodes = options.sizes or [options.nodes]
    sizes = sizes_of(nodes, options.pods, options.ranks)
    for size in sizes:
        if size.ranks > size.ranks_max:
            parser.error(
                f"--ranks: {size.ranks} of {size.pods} pods on {size.nodes} nodes; expected at most "
                f"{size.ranks_max}, since {size.free} nodes have none, and each of the others has "
                f"{GPUS_PER_NODE} GPUs"
            )

    def measured() -> Scale:
        if options.in_process:
            return measure_in_process(sizes, options.rounds)
        return asyncio.run(_measured(options, sizes))

    return answered("bench scale", measured, tell, options.output)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "bench scale",
        f"{ABOUT} The command fills a throwaway API server with nodes, NodeHealths, pods and gangs, starts "
        "the controller, and then removes exactly these objects. The API server needs no scheduler and no "
        "controllers. If the API server has any other node or job, the command refuses to start. With "
        "--in-process the command needs no API server, and measures only the decisions.",
        row="bench",
    )
    add_cluster(parser)
    parser.add_argument(
        "--in-process", action="store_true", help="Measure only the decisions, in this process, by CPU time."
    )
    parser.add_argument(
        "--sizes",
        type=_sizes,
        metavar="N,N,...",
        help="Measure clusters with these numbers of nodes, and print how each figure grows.",
    )
    add_count(parser, "--nodes", "Number of nodes", least=5, most=NODES_MAX, default=100)
    for name, words in (("--pods", "ten for each node"), ("--ranks", "two for each node")):
        parser.add_argument(
            name,
            type=_count,
            metavar="N",
            help=f"Number of {name[2:]} of the largest cluster (default: {words}); smaller clusters have "
            "proportionally fewer.",
        )
    add_count(
        parser,
        "--runs",
        "How often the command measures each filled cluster; it prints the medians of these runs",
        least=1,
        most=9,
        default=1,
    )
    add_count(
        parser, "--rounds", "How often the command makes each single change", least=1, most=1000, default=20
    )
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or not 2 <= int(text) <= PODS_MAX:
        raise argparse.ArgumentTypeError(f"{text}: expected a number, 2 to {PODS_MAX}")
    return int(text)


def _sizes(text: str) -> list[int]:
    found = [int(part) for part in text.split(",") if part.isdecimal() and 5 <= int(part) <= NODES_MAX]
    if len(found) != len(text.split(",")) or found != sorted(set(found)):
        raise argparse.ArgumentTypeError(
            f"{text}: expected rising numbers of nodes, 5 to {NODES_MAX}, with commas between them"
        )
    return found


def measure_in_process(sizes: Sequence[Size], rounds: int) -> Scale:
    load_before = os.getloadavg()[0]
    found = [AtSize(size, tuple(InProcess(size).measure(rounds))) for size in sizes]
    return Scale("decisions alone, in process", ("mode=recover",), tuple(found), (), machine(load_before))


async def _measured(options: argparse.Namespace, sizes: Sequence[Size]) -> Scale:
    load_before = os.getloadavg()[0]
    settings = ("mode=recover", *options.set)
    access = access_of(options)
    credentials = await access.credentials()
    pace = Pace(runs=options.runs, rounds=options.rounds)
    found = []
    with tempfile.TemporaryDirectory(prefix="rekindle-") as folder:
        async with KubeApi(credentials, timeout_s=60.0) as api:
            for size in sizes:
                at = await at_size(api, as_arguments(access), Path(folder), size, settings, pace)
                found.append(at)
    notes = (
        "CPU is the controller's own, with its whole process; idle time is taken off what changes cost. The "
        "turns of its event loop are by CPU time, too.",
        *([f"Each figure but the first is the median of {options.runs} runs."] if options.runs > 1 else []),
    )
    return Scale("on an API server", settings, tuple(found), notes, machine(load_before))
