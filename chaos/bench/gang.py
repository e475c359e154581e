"""`rekindle bench gang`: measures times, writes and sizes of one recovery of one large gang on a throwaway
control plane.

The bench shows what grows with the gang: the objects that the controller keeps about the gang, the writes
that it makes, and the CPU time that it takes. The set-up is the same as for `rekindle bench loop`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from chaos.bench.arguments import access_of, add_cluster, add_count
from chaos.bench.figures import Machine, answered, machine
from chaos.bench.gangs import Gang, indexed_job, jobset, paddlejob, pytorchjob, recovery_times, runs
from chaos.bench.rounds import FELL_OFF
from chaos.bench.throwaway import GPUS_PER_NODE, NAMESPACE, Throwaway, raised
from chaos.bench.usage import Usage, usage
from chaos.scenarios.stage import StageError
from detectors.commands.arguments import Parser
from recover.cli.access import Access
from recover.k8s.kinds import EVENTS, INCIDENTS, NODEHEALTHS, NODES, RECOVERIES

__all__ = ["ABOUT", "Large", "measure", "run", "tell"]

ABOUT = "Measure one recovery of one large gang on a throwaway control plane."

LIMIT_S = 1800.0
"""Limit in seconds of each of the two waits until all ranks run. Kubernetes' own controllers send 20 requests
a second, so thousands of pods take minutes."""
QUIET_S = 5.0
MIB = 1024 * 1024
FRAMEWORKS = {"job": indexed_job, "jobset": jobset, "paddlejob": paddlejob, "pytorchjob": pytorchjob}


class Large(msgspec.Struct, frozen=True):
    framework: str
    ranks: int
    nodes: int
    settings: tuple[str, ...]
    times_s: Mapping[str, float]
    """Seconds from one moment to the next, as the observer saw them. Rekindle has no part in the first time,
    from the creation of the job until all ranks run."""
    writes: Mapping[str, int]
    """Number of the controller's writes from the fault until the Recovery verifies the start, by the object
    written, and the number of all Events of the controller, by reason."""
    sizes_bytes: Mapping[str, int]
    controller_cpu_s: float
    controller_pss_bytes: int
    machine: Machine


def run(args: list[str]) -> int:
    """Returns the exit status. 0: measured; 1: the measurement failed; 2: wrong usage."""
    options = _parser().parse_args(args)
    settings = ("mode=recover", *options.set)

    def measured() -> Large:
        with tempfile.TemporaryDirectory(prefix="rekindle-") as folder:
            return asyncio.run(
                measure(access_of(options), Path(folder), options.framework, options.ranks, settings)
            )

    return answered("bench gang", measured, tell, options.output)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "bench gang",
        f"{ABOUT} The control plane needs KWOK. Ranks with one GPU each fill the nodes, {GPUS_PER_NODE} on "
        "each node; one more node is a spare, and one node fails. If the cluster has any other node or "
        "job, the "
        "command refuses to start.",
        row="bench",
    )
    add_cluster(parser)
    add_count(
        parser, "--ranks", "Number of ranks of the gang", least=GPUS_PER_NODE, most=20_000, default=2000
    )
    parser.add_argument(
        "--framework",
        choices=FRAMEWORKS,
        default="job",
        metavar="NAME",
        help=f"Kind of the job, one of {', '.join(FRAMEWORKS)} (default: %(default)s).",
    )
    return parser


# --- measuring ----------------------------------------------------------------------------------------------


async def measure(
    access: Access, folder: Path, framework: str, ranks: int, settings: tuple[str, ...]
) -> Large:
    """Raises StageError, ApiError or ReplyLost if the measurement fails."""
    load_before = os.getloadavg()[0]
    nodes = -(-ranks // GPUS_PER_NODE) + 1
    async with raised(access, folder, nodes=nodes, settings=settings) as stage:
        gang = FRAMEWORKS[framework]("large", ranks, gpus=1, preferred=stage.struck)
        began_s = asyncio.get_running_loop().time()
        old = await runs(stage, gang, LIMIT_S)
        created_s = asyncio.get_running_loop().time() - began_s
        if stage.struck not in {seen.node for seen in old.values()}:
            raise StageError(f"no rank was placed on {stage.struck}, though it was free and preferred")
        await asyncio.sleep(QUIET_S)
        stage.sight.forget()
        before, written = usage(stage.children["controller"].pid), len(stage.written())
        stage.strike(79, FELL_OFF)
        found_s = await stage.sight.moment("finding", NODEHEALTHS.plural, stage.struck, "xid-79")
        out_s = await stage.sight.moment("cordon", NODES.plural, stage.struck, "cordoned", "tainted")
        after_fault = await recovery_times(stage, gang, old, LIMIT_S)
        await stage.sight.until("Verifying", lambda: _is_verifying(stage))
        after = usage(stage.children["controller"].pid)
        return Large(
            framework=framework,
            ranks=ranks,
            nodes=nodes,
            settings=settings,
            times_s={
                "created -> all ranks run": round(created_s, 1),
                "finding -> cordon": round(out_s - found_s, 3),
                "finding -> stop": round(after_fault.stop_s - found_s, 3),
                "stop -> last old pod gone": round(after_fault.gone_s - after_fault.stop_s, 3),
                "last old pod gone -> resume": round(after_fault.resume_s - after_fault.gone_s, 3),
                "resume -> all ranks run": round(after_fault.running_s - after_fault.resume_s, 3),
            },
            writes={**Counter(what for what, _ in stage.written()[written:]), **await _events(stage)},
            sizes_bytes=await _sizes(stage, gang),
            controller_cpu_s=round(after.cpu_s - before.cpu_s, 2),
            controller_pss_bytes=_larger(before, after),
            machine=machine(load_before),
        )


def _is_verifying(stage: Throwaway) -> bool:
    return any("Verifying" in seen.facts for seen in stage.sight.all(RECOVERIES.plural))


async def _events(stage: Throwaway) -> dict[str, int]:
    answer = msgspec.json.decode(await stage.api.request("GET", EVENTS.path()))
    ours = (e for e in answer["items"] if e.get("reportingController") == "rekindle.dev/controller")
    return {f"Event {reason}": number for reason, number in Counter(e["reason"] for e in ours).items()}


async def _sizes(stage: Throwaway, gang: Gang) -> dict[str, int]:
    """Returns the largest size that an object of each kind had, and the size of Rekindle's annotations of the
    job."""
    sizes = {
        resource.kind: max(s.size_bytes for s in stage.sight.events if s.kind == resource.plural)
        for resource in (RECOVERIES, INCIDENTS, NODEHEALTHS)
    }
    path = gang.resource.path(gang.name, NAMESPACE)
    job: Any = msgspec.json.decode(await stage.api.request("GET", path))
    ours = {k: v for k, v in job["metadata"].get("annotations", {}).items() if k.startswith("rekindle.dev/")}
    return {**sizes, "annotations of the job": len(msgspec.json.encode(ours))}


def _larger(*samples: Usage) -> int:
    return max(sample.pss_bytes for sample in samples)


# --- telling ------------------------------------------------------------------------------------------------


def tell(console: Console, found: Large) -> None:
    table = Table(
        title=f"One recovery of {found.ranks} ranks ({found.framework}) on {found.nodes} nodes",
        title_justify="left",
    )
    table.add_column("", no_wrap=True)
    table.add_column("", justify="right", no_wrap=True)
    for words, value_s in found.times_s.items():
        table.add_row(words, f"{value_s:g} s")
    table.add_section()
    for words, size_bytes in found.sizes_bytes.items():
        table.add_row(f"size of {words}", f"{size_bytes} bytes")
    table.add_section()
    for what, number in found.writes.items():
        table.add_row(f"writes: {what}", str(number))
    table.add_section()
    table.add_row("CPU time of the controller", f"{found.controller_cpu_s:g} s")
    table.add_row("its memory, PSS", f"{found.controller_pss_bytes / MIB:.1f} MiB")
    console.print(table)
    console.print(
        f"From the fault until the gang runs again. Settings of the controller: {', '.join(found.settings)}, "
        f"all else as shipped. {found.machine.words()}.",
        highlight=False,
    )
