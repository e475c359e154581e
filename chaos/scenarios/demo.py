"""Sets a stage in a temporary folder, plays a scenario on it, and cleans up."""

from __future__ import annotations

import asyncio
import errno
import shutil
import sys
import tempfile
from pathlib import Path

import msgspec
from rich.console import Console

from chaos.scenarios.manifests import NAMESPACE
from chaos.scenarios.play import JOB, Verdict, play
from chaos.scenarios.report import print_line, print_verdict
from chaos.scenarios.scenario import Scenario
from chaos.scenarios.stage import Stage, StageError, raised
from chaos.scenarios.watching import Told

__all__ = ["perform", "slowly"]

SLOW_FACTOR = 4
ROOM_MB = 50
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES})


def slowly(scenario: Scenario) -> Scenario:
    """Returns the same scenario at a pace that people can follow."""
    job = msgspec.structs.replace(
        scenario.job,
        step_time_s=scenario.job.step_time_s * SLOW_FACTOR,
        shard_write_s=scenario.job.shard_write_s * SLOW_FACTOR,
    )
    return msgspec.structs.replace(scenario, job=job, limit_s=scenario.limit_s * SLOW_FACTOR)


def perform(
    scenario: Scenario, console: Console, *, keep: bool = False, quiet: bool = False
) -> Verdict | None:
    """Plays the scenario and prints it. Returns None if it could not be played; the reason was then printed.

    If something went wrong, the folder with the logs of agents, controller and nodes stays, and its name is
    printed.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix="rekindle-"))
    except OSError as error:
        console.print(_no_room(scenario, error), style="bold red", highlight=False, soft_wrap=True)
        return None
    verdict: Verdict | None = None
    interrupted = False
    try:
        verdict = asyncio.run(_perform(scenario, console, folder / "stage", keep=keep, quiet=quiet))
    except (StageError, TimeoutError) as error:
        console.print(f"{scenario.name}: {error}", style="bold red", highlight=False)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        console.print(_no_room(scenario, error), style="bold red", highlight=False, soft_wrap=True)
    except (KeyboardInterrupt, SystemExit):  # rich exits if its reader is gone, as in `rekindle demo | head`
        interrupted = True
        raise
    finally:
        if interrupted or (verdict is not None and verdict.ok):
            shutil.rmtree(folder, ignore_errors=True)
        else:
            console.print(f"The logs are in {folder / 'stage'}", soft_wrap=True, highlight=False)
    return verdict


def _no_room(scenario: Scenario, error: OSError) -> str:
    return (
        f"{scenario.name}: cannot write to {error.filename or tempfile.gettempdir()}: "
        f"{error.strerror or error}. The scenario needs {ROOM_MB} MB in the folder for temporary files. "
        "To use another folder, set TMPDIR to its path."
    )


async def _perform(scenario: Scenario, console: Console, folder: Path, *, keep: bool, quiet: bool) -> Verdict:
    def tell(told: Told) -> None:
        if not quiet:
            print_line(console, told)

    say = _silent if quiet else console.print
    say(scenario.about, style="bold", highlight=False, soft_wrap=True)
    say(
        f"{scenario.nodes} simulated nodes with one GPU each; the agents, the controller (mode "
        f"{scenario.mode}) and the {scenario.job.ranks} training ranks are real processes.",
        style="dim",
        highlight=False,
        soft_wrap=True,
    )
    say("Starting the processes takes a few seconds.", style="dim", highlight=False)
    async with raised(folder, nodes=scenario.nodes, mode=scenario.mode) as stage:
        verdict = await play(scenario, stage, tell)
        if not quiet:
            print_verdict(console, verdict)
        if keep:
            await _keep(stage, console)
    return verdict


def _silent(*_: object, **__: object) -> None:
    pass


async def _keep(stage: Stage, console: Console) -> None:
    """Waits until Ctrl-C, which is no interruption here: the verdict stays valid."""
    rekindle = _command()
    console.print(
        f"\nThe cluster stays up until Ctrl-C. In another terminal:\n"
        f"  export KUBECONFIG={stage.kubeconfig}\n"
        f"  {rekindle} status\n"
        f"  {rekindle} why {NAMESPACE}/{JOB}",
        soft_wrap=True,
        highlight=False,
    )
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()


def _command() -> Path:
    """Returns the command with its folder: the other terminal may be in another folder, and without this
    environment."""
    return Path(sys.argv[0]).absolute()
