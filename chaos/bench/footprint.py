"""`rekindle bench footprint`: measures what agent and controller cost while a gang trains without faults.

The bench simulates one node with one agent and four ranks that print a step each second. The agent, the
controller and the ranks are real processes. The bench counts writes where they arrive: in the API server's
audit log.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import tempfile
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from chaos.apiserver.store import Audit
from chaos.bench.figures import shown
from chaos.bench.usage import Usage, usage
from chaos.cluster.world import Shape
from chaos.processes.children import Child
from chaos.scenarios.manifests import training_job
from chaos.scenarios.scenario import Job
from chaos.scenarios.stage import CONTROLLER, Stage, StageError, raised
from chaos.training.launch import free_port
from detectors.commands.arguments import Parser
from recover.cli.output import add_output
from recover.k8s.kinds import INCIDENTS, LEASES, NODEHEALTHS

__all__ = ["ABOUT", "Footprint", "Share", "measure", "run", "tell"]

ABOUT = "Measure what agent and controller cost while a gang trains and nothing is wrong."

MIB = 1024 * 1024
RANKS = 4
TRAINING = Job(ranks=RANKS, steps=1_000_000, step_time_s=1.0, checkpoint_every=1_000_000, shard_write_s=0.0)
NODE = "n1"
START_S = 60.0
QUIET_S = 5.0
"""Time without any write by agent or controller after which the measurement begins: the start of the
processes is not idle time."""
SAMPLE_S = 1.0


class Share(msgspec.Struct, frozen=True):
    """Costs of one daemon during the measurement."""

    pss_bytes_max: int
    rss_bytes_max: int
    cpu_s: float
    ended_children_cpu_s: float
    """Part of `cpu_s` that was used by children that have ended."""
    cpu_percent_of_core: float
    writes: int
    """Number of requests that changed an object's resourceVersion, without writes of the lease."""
    lease_writes: int
    requests_without_change: int


class Goals(msgspec.Struct, frozen=True):
    """Goals for one agent. The controller's memory has a goal at 10,000 nodes only; its writes have the same
    goal as the agent's."""

    agent_pss_bytes: int = 64 * MIB
    agent_cpu_percent_of_core: float = 0.2
    writes: int = 0


class Footprint(msgspec.Struct, frozen=True):
    window_s: float
    steps: int
    """Number of steps that the gang made during the measurement."""
    cores: int
    python: str
    kernel: str
    agent: Share
    controller: Share
    goals: Goals = Goals()


def run(args: list[str]) -> int:
    """Returns the exit status. 0: measured, whether goals were met or not; 1: the measurement failed; 2:
    wrong usage."""
    options = _parser().parse_args(args)
    try:
        with tempfile.TemporaryDirectory(prefix="rekindle-") as folder:
            found = asyncio.run(measure(Path(folder) / "stage", options.seconds))
    except StageError as error:
        print(f"rekindle bench footprint: {error}", file=sys.stderr)
        return 1
    shown(found, tell, options.output)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "bench footprint",
        f"{ABOUT} The command measures memory, CPU time and API writes, while each of {RANKS} ranks prints a "
        "step each second.",
        row="bench",
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=30.0,
        metavar="S",
        help="Length of the measurement in seconds (default: %(default)g).",
    )
    add_output(parser)
    return parser


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1.0 <= value <= 86_400.0:
        raise argparse.ArgumentTypeError(f"{text}: expected a number of seconds, 1 to 86400")
    return value


# --- measuring ----------------------------------------------------------------------------------------------


async def measure(folder: Path, window_s: float) -> Footprint:
    """Sets up a stage in the empty folder, and measures there. Raises StageError if something goes wrong on
    the stage in the meantime."""
    shape = Shape(gpus_per_node=RANKS)
    async with raised(folder, nodes=1, mode="recover", shape=shape) as stage:
        await stage.cluster.apply(training_job(TRAINING, "idle", free_port()))
        await _idle(stage)
        assert stage.controller is not None
        agent, controller, audit = stage.agents[NODE], stage.controller, stage.cluster.store.audit
        first, written, loop = _steps(stage), len(audit), asyncio.get_running_loop()
        began_s = loop.time()
        samples = [_sample(agent, controller)]
        while (left_s := began_s + window_s - loop.time()) > 0:
            await asyncio.sleep(min(SAMPLE_S, left_s))
            stage.check_alive()
            samples.append(_sample(agent, controller))
        took_s = loop.time() - began_s
        steps = _steps(stage) - first
        if steps < 1 or stage.objects(INCIDENTS):
            raise StageError(
                f"{steps} steps and {len(stage.objects(INCIDENTS))} incidents, so the gang was not idle"
            )
        window = audit[written:]
        return Footprint(
            window_s=round(took_s, 2),
            steps=steps,
            cores=len(os.sched_getaffinity(0)),
            python=platform.python_version(),
            kernel=platform.release(),
            agent=_share([a for a, _ in samples], window, f"agent-{NODE}", took_s),
            controller=_share([c for _, c in samples], window, CONTROLLER, took_s),
        )


def _sample(agent: Child, controller: Child) -> tuple[Usage, Usage]:
    return usage(agent.pid), usage(controller.pid)


async def _idle(stage: Stage) -> None:
    """Waits until all ranks step and both daemons have written nothing for a while."""
    audit = stage.cluster.store.audit
    try:
        async with asyncio.timeout(START_S):
            while _stepping(stage) < RANKS:
                stage.check_alive()
                await asyncio.sleep(0.1)
            seen = -1
            while seen != len(_ours(audit)):
                seen = len(_ours(audit))
                await asyncio.sleep(QUIET_S)
    except TimeoutError as error:
        raise StageError(
            f"not idle within {START_S:g} s: {_stepping(stage)} of {RANKS} ranks step"
        ) from error


def _stepping(stage: Stage) -> int:
    """Returns the number of ranks for which the agent has published a first step."""
    pods = [pod for health in stage.objects(NODEHEALTHS) for pod in health.get("status", {}).get("pods", [])]
    return sum(1 for pod in pods if pod.get("firstStep") is not None)


def _ours(audit: list[Audit]) -> list[Audit]:
    return [entry for entry in audit if _is_write(entry) and entry.user in (f"agent-{NODE}", CONTROLLER)]


def _is_write(entry: Audit) -> bool:
    return entry.changed and entry.resource != LEASES


def _steps(stage: Stage) -> int:
    """Returns the number of steps that the gang has made. The number comes from the ranks' own logs, because
    the agent is what the bench measures."""
    logs = (stage.cluster.hosts[NODE].root / "var/log/pods").glob("*/*/*.log")
    return max((log.read_bytes().count(b" step ") for log in logs), default=0)


def _share(samples: list[Usage], window: list[Audit], user: str, took_s: float) -> Share:
    cpu_s = samples[-1].cpu_s - samples[0].cpu_s
    requests = [entry for entry in window if entry.user == user]
    changes = [entry for entry in requests if entry.changed]
    writes = sum(1 for entry in changes if _is_write(entry))
    return Share(
        pss_bytes_max=max(sample.pss_bytes for sample in samples),
        rss_bytes_max=max(sample.rss_bytes for sample in samples),
        cpu_s=round(cpu_s, 2),
        ended_children_cpu_s=round(samples[-1].ended_children_cpu_s - samples[0].ended_children_cpu_s, 2),
        cpu_percent_of_core=round(100 * cpu_s / took_s, 3),
        writes=writes,
        lease_writes=len(changes) - writes,
        requests_without_change=len(requests) - len(changes),
    )


# --- telling ------------------------------------------------------------------------------------------------


def tell(console: Console, found: Footprint) -> None:
    agent, controller, goals = found.agent, found.controller, found.goals
    table = Table(title="Footprint while a gang trains and nothing is wrong", title_justify="left")
    for column in ("", "agent with its children", "goal", "controller"):
        table.add_column(column, justify="left" if not column else "right")
    table.add_row(
        "memory, PSS",
        _judged(_mib(agent.pss_bytes_max), met=agent.pss_bytes_max <= goals.agent_pss_bytes),
        f"<= {_mib(goals.agent_pss_bytes)}",
        _mib(controller.pss_bytes_max),
    )
    table.add_row("memory, RSS", _mib(agent.rss_bytes_max), "", _mib(controller.rss_bytes_max))
    table.add_row(
        "CPU, of one core",
        _judged(
            f"{agent.cpu_percent_of_core:.2f} %",
            met=agent.cpu_percent_of_core <= goals.agent_cpu_percent_of_core,
        ),
        f"<= {goals.agent_cpu_percent_of_core:g} %",
        f"{controller.cpu_percent_of_core:.2f} %",
    )
    children = [100 * share.ended_children_cpu_s / found.window_s for share in (agent, controller)]
    table.add_row("  of it by ended children", f"{children[0]:.2f} %", "", f"{children[1]:.2f} %")
    table.add_row(
        "writes that changed an object",
        _judged(str(agent.writes), met=agent.writes <= goals.writes),
        str(goals.writes),
        _judged(str(controller.writes), met=controller.writes <= goals.writes),
    )
    table.add_row("  besides: renewals of the lease", "", "", str(controller.lease_writes))
    console.print(table)
    console.print(
        f"Measured over {found.window_s:g} s, in which {RANKS} ranks made {found.steps} steps each, with "
        "real processes on a simulated cluster of one node. Memory was sampled once a second, and the "
        "largest sample is shown. "
        f"Machine: {found.cores} cores, Linux {found.kernel}, Python {found.python}.",
        highlight=False,
    )


def _judged(words: str, *, met: bool) -> str:
    return f"[green]{words}[/]" if met else f"[red]{words}, missed[/]"


def _mib(value_bytes: int) -> str:
    return f"{value_bytes / MIB:.1f} MiB"
