"""`rekindle demo`, `rekindle chaos` and `rekindle bench`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from chaos.demo import perform, slowly
from chaos.play import Verdict
from chaos.report import as_json
from chaos.scenario import Scenario, load, packaged
from detectors.settings import SettingsError

__all__ = ["bench", "chaos", "demo"]

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

_chaos = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Injects faults into a training on the demo cluster, and gives a verdict.",
    epilog="Exit status: 0 passed, 1 failed, 2 wrong usage or scenario, 130 interrupted.",
)
_demo = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def demo(args: list[str]) -> int:
    return _run(_demo, "rekindle demo", args)


def chaos(args: list[str]) -> int:
    return _run(_chaos, "rekindle chaos", args)


def bench(args: list[str]) -> int:
    """Measurements, each a subcommand with its own --help."""
    from chaos.bench import BENCHES  # noqa: PLC0415  (measuring needs its imports only when it is asked for)

    if args and args[0] in BENCHES:
        return BENCHES[args[0]].run(args[1:])
    wanted = "-h" in args or "--help" in args
    print(
        f"usage: rekindle bench {{{','.join(BENCHES)}}} [--help]", file=sys.stdout if wanted else sys.stderr
    )
    return 0 if wanted else EXIT_USAGE


def _run(app: typer.Typer, name: str, args: list[str]) -> int:
    try:
        app(args, prog_name=name)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except SettingsError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return EXIT_USAGE
    return 0


def _performed(
    scenario: Scenario, console: Console, *, keep: bool = False, quiet: bool = False
) -> Verdict | None:
    """Ctrl-C has its own exit status, whatever typer makes of it. SIGTERM is the same, also where a script's
    shell has started us in the background, with SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        return perform(scenario, console, keep=keep, quiet=quiet)
    except KeyboardInterrupt:
        print("interrupted; nothing was left behind", file=sys.stderr)
        raise typer.Exit(EXIT_INTERRUPTED) from None


@_demo.command(
    help="A real 4-rank training loses a GPU while a checkpoint is being written, then crashes by itself. "
    "Rekindle restarts it each time from its last complete checkpoint. Ends with the time of each phase and "
    "the proof that the final weights equal an undisturbed run's, bit for bit.",
    epilog="Exit status: 0 both stories ended well, 1 not, 130 interrupted.",
)
def _demo_command(
    slow: Annotated[bool, typer.Option("--slow", help="At a pace that people can follow.")] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the cluster up afterwards, until Ctrl-C.")
    ] = False,
    repeat: Annotated[int, typer.Option(min=1, metavar="N", help="Play it N times; one line each.")] = 1,
) -> None:
    console = Console()
    scenario = packaged()["demo"]
    if slow:
        scenario = slowly(scenario)
    if repeat == 1:
        ok = _passed(_performed(scenario, console, keep=keep))
    else:
        ok = _repeated(scenario, console, repeat)
    raise typer.Exit(0 if ok else EXIT_FAILED)


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


@_chaos.command("list", help="The scenarios that come with Rekindle.")
def _list() -> None:
    table = Table(box=None)
    for column in ("scenario", "what happens"):
        table.add_column(column)
    for scenario in packaged().values():
        table.add_row(scenario.name, scenario.about)
    Console().print(table)


@_chaos.command("run", help="Plays SCENARIO, a name from `rekindle chaos list` or a YAML file.")
def _play(
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO")],
    json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON and nothing else.")] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the cluster up afterwards, until Ctrl-C.")
    ] = False,
) -> None:
    verdict = _performed(_named(scenario), Console(stderr=json), keep=keep, quiet=json)
    if json and verdict is not None:
        print(as_json(verdict))
    raise typer.Exit(0 if _passed(verdict) else EXIT_FAILED)


def _named(name: str) -> Scenario:
    known = packaged()
    if name in known:
        return known[name]
    if Path(name).suffix in (".yaml", ".yml"):
        return load(Path(name))
    raise SettingsError(
        f"scenario {name!r}: expected one of {', '.join(sorted(known))}, or the path of a .yaml file"
    )
