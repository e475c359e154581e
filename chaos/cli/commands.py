"""`rekindle demo`, `rekindle chaos` and `rekindle bench`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from chaos.scenarios.demo import perform, slowly
from chaos.scenarios.play import Verdict
from chaos.scenarios.report import plain
from chaos.scenarios.scenario import Scenario, load, packaged
from detectors.commands.arguments import told_to_choose
from detectors.commands.exit_status import Exit, closing
from detectors.service.settings import SettingsError
from recover.cli.options import HELP_NAMES, run, run_app
from recover.cli.output import JSON_HELP, Form, print_data

__all__ = ["bench", "chaos", "demo"]

_chaos = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=HELP_NAMES,
    help="Inject faults into a training on the demo cluster, and give a verdict.",
)


def demo(args: list[str]) -> int:
    """Returns the command's exit status."""
    return run(_demo, args, "demo")


def chaos(args: list[str]) -> int:
    """Returns the command's exit status."""
    try:
        return run_app(_chaos, args, "chaos")
    except SettingsError as error:
        print(f"rekindle chaos: {error}", file=sys.stderr)
        return Exit.UNUSABLE


def bench(args: list[str]) -> int:
    """Runs a measurement. Each measurement is a command with its own --help. Returns the exit status."""
    from chaos.bench import BENCHES  # noqa: PLC0415  (measuring needs its imports only when it is asked for)

    if args and args[0] in BENCHES:
        return BENCHES[args[0]].run(args[1:])
    about = "Measure the costs of Rekindle, and print the machine on which they were measured."
    return told_to_choose("bench", about, {name: bench.ABOUT for name, bench in BENCHES.items()}, args)


def _console(*, stderr: bool = False) -> Console:
    """Returns a console that reads no markup: a scenario's words, errors and paths come from others."""
    return Console(stderr=stderr, markup=False, emoji=False)


def _performed(
    scenario: Scenario, console: Console, *, keep: bool = False, quiet: bool = False
) -> Verdict | None:
    """Plays the scenario. Ctrl-C has its own exit status, independent of typer. SIGTERM has the same effect,
    even if a script's shell has started the process in the background, with SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        return perform(scenario, console, keep=keep, quiet=quiet)
    except KeyboardInterrupt:
        print("interrupted; nothing was left behind", file=sys.stderr)
        raise typer.Exit(Exit.INTERRUPTED) from None


def _demo(
    slow: Annotated[bool, typer.Option("--slow", help="Play slowly, so that people can follow.")] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the cluster running afterwards, until Ctrl-C.")
    ] = False,
    repeat: Annotated[
        int, typer.Option(min=1, metavar="N", help="Play the demo N times, and print one line for each time.")
    ] = 1,
) -> None:
    """Break a real training on purpose, and watch it recover. The training has four ranks. First a GPU is
    lost while the ranks write a checkpoint, then one rank crashes. Each time Rekindle restarts the training
    from its last complete checkpoint. At the end the command prints the time of each phase, and proves that
    the final weights equal those of an undisturbed run, bit for bit. The command needs no cluster and no
    GPU."""
    console = _console()
    scenario = packaged()["demo"]
    if slow:
        scenario = slowly(scenario)
    if repeat == 1:
        ok = _passed(_performed(scenario, console, keep=keep))
    else:
        ok = _repeated(scenario, console, repeat)
    raise typer.Exit(0 if ok else Exit.BAD)


def _passed(verdict: Verdict | None) -> bool:
    return verdict is not None and verdict.ok


def _repeated(scenario: Scenario, console: Console, times: int) -> bool:
    passed = 0
    for number in range(1, times + 1):
        verdict = _performed(scenario, console, quiet=True)
        ok = _passed(verdict)
        passed += ok
        detail = "could not be played"
        if verdict is not None:
            weights = next((c.words for c in verdict.checks if c.words.startswith("final weights")), "")
            failed = "; ".join(c.words for c in verdict.checks if not c.ok)
            detail = f"{verdict.seconds:g} s; {failed or weights}"
        console.print(
            f"{number:3} of {times}  {'ok  ' if ok else 'FAIL'}  {detail}", highlight=False, soft_wrap=True
        )
    console.print(f"{passed} passed, {times - passed} failed", highlight=False)
    return passed == times


@_chaos.command("list", epilog=closing("chaos list"), context_settings=HELP_NAMES)
def _list() -> None:
    """List the scenarios that come with Rekindle."""
    table = Table(box=None)
    for column in ("scenario", "what happens"):
        table.add_column(column)
    for scenario in packaged().values():
        table.add_row(scenario.name, scenario.about)
    _console().print(table)


@_chaos.command(
    "run", epilog=closing("chaos run", "rekindle chaos run demo -o json"), context_settings=HELP_NAMES
)
def _play(
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="The name of a scenario, or a YAML file.")
    ],
    output: Annotated[
        Form,
        typer.Option(
            "--output",
            "-o",
            metavar="FORM",
            help="How to print the answer: table (default), json or yaml. json and yaml "
            "print only the verdict.",
            show_default=False,
        ),
    ] = Form.TABLE,
    json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the cluster running afterwards, until Ctrl-C.")
    ] = False,
) -> None:
    """Play a scenario, and judge the result."""
    output = Form.JSON if json else output
    quiet = output is not Form.TABLE
    verdict = _performed(_named(scenario), _console(stderr=quiet), keep=keep, quiet=quiet)
    if quiet and verdict is not None:
        print_data(plain(verdict), output, kind="ChaosRun")
    raise typer.Exit(0 if _passed(verdict) else Exit.BAD)


@_chaos.command(
    "simulate",
    epilog=closing("chaos simulate", "rekindle chaos simulate --seeds 0..199 --jobs 2"),
    context_settings=HELP_NAMES,
)
def _simulate(
    seed: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Play the script of this seed.")
    ] = None,
    seeds: Annotated[
        str, typer.Option(metavar="A..B", help="Play the scripts of all seeds from A to B.")
    ] = "",
    script: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Play a script that --keep has written.", show_default=False),
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, metavar="J", help="Number of processes that play the seeds.")
    ] = 1,
    plays: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="P",
            help="If a script fails, look for a smaller script that fails in the same way, in at most P "
            "plays.",
        ),
    ] = 60,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write each of these smaller scripts to DIR, as JSON.", show_default=False
        ),
    ] = None,
) -> None:
    """Play random fault scripts in virtual time. The command checks, on a simulated cluster, that the
    controller stops no healthy job, quarantines no healthy node, breaks no limit, and leaves no gang waiting
    beside healthy nodes with room. The same seed gives the same run. The command prints how often each fault
    occurred, which requests were refused, and for each violation the seed and the smallest script that still
    fails."""
    from chaos.simulate.command import seeds_of, simulate, simulate_file  # noqa: PLC0415  (only what is asked for)

    if sum(one is not None and one != "" for one in (seed, seeds, script)) != 1:
        raise SettingsError("give one of --seed N, --seeds A..B and --script FILE")
    console = _console()
    if script is not None:
        ok = simulate_file(script, plays_max=plays, console=console)
    else:
        asked = range(seed, seed + 1) if seed is not None else seeds_of(seeds)
        ok = simulate(asked, jobs=jobs, plays_max=plays, folder=keep, console=console)
    raise typer.Exit(0 if ok else Exit.BAD)


def _named(name: str) -> Scenario:
    known = packaged()
    if name in known:
        return known[name]
    if Path(name).suffix in (".yaml", ".yml"):
        return load(Path(name))
    raise SettingsError(
        f"scenario {name!r}: expected one of {', '.join(sorted(known))}, or the path of a .yaml file"
    )
