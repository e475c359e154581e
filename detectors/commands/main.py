"""Implements `rekindle NAME ...`: finds the command by its entry point and loads only that one."""

from __future__ import annotations

import difflib
import signal
import sys
import textwrap
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec

from detectors import __version__
from detectors.commands.extras import not_installed
from detectors.commands.standard_output import ends_with_its_reader

__all__ = ["GROUP", "is_here", "main"]

GROUP = "rekindle.commands"
EXIT_INTERRUPTED = 130
_DAEMONS = frozenset({"agent", "controller"})
"""Commands whose standard output is a log, except for the output of `agent scan`."""

_HELP = {
    "Ask a cluster": {
        "status": "Show open faults, and the actions of Rekindle.",
        "why": "Explain the state of a job or a node.",
        "incidents": "List incidents, open incidents first.",
        "doctor": "Find problems of the installation, or of a job before it fails.",
        "version": "Print the version of this command, and of the controller in the cluster.",
    },
    "Take control": {
        "pause": "Pause Rekindle for the whole cluster: it begins nothing new until the end of the pause.",
        "resume": "End a pause.",
        "hold": "Put a hold on a node or a job: Rekindle does not change that node or job.",
        "release": "End a hold.",
        "undo": "Undo the actions of Rekindle for one incident.",
    },
    "Prepare a job": {
        "enable": "Print a job's manifest with automatic recovery enabled.",
        "checkpoints": "List checkpoints, and choose the newest complete one.",
        "read-log": "Show what Rekindle reads in a training's log: steps, checkpoints, the first error.",
        "recipes": "Known issues: list and show recipes, and test a recipe on a log.",
    },
    "Try it without a cluster": {
        "demo": "Break a real training on purpose, and watch it recover.",
        "chaos": "Play a fault scenario, and judge the result.",
        "bench": "Measure the costs of Rekindle.",
    },
    "In your shell": {
        "completion": "Print a script that completes commands and options in your shell.",
    },
    "Run by the chart": {
        "controller": "Find culprits, quarantine nodes, restart gangs from their last complete checkpoint.",
        "agent": "Watch one node: its kernel log, its GPUs, the logs of its training pods.",
        "validate": "Check whether this node may be used again.",
        "reset-devices": "Reset GPUs of this node that no process uses.",
        "cleanup": "Before an uninstall: end the controllers, and undo their writes to nodes.",
        "crds": "Print the CustomResourceDefinitions.",
    },
}
_RENAMED = {"leave": "cleanup"}
"""Earlier names of commands, which still work."""
_PLAY = "chaos"
"""The package that breaks jobs on purpose. The image leaves it out."""
_HEAD = """\
Usage: rekindle COMMAND [ARGS]...

  Keep long training jobs alive on Kubernetes.

First steps:
  rekindle demo                  See it work on this machine, without a cluster.
  rekindle doctor                Show problems of Rekindle, or how to install it.
  rekindle enable -f job.yaml    Print a manifest with recovery enabled.
  rekindle doctor NAMESPACE/JOB  Find problems of a job before it fails.
  rekindle status                Show open faults, and the actions of Rekindle."""
_COLUMNS = 80


def main() -> int:
    """Runs the console script. A command is a callable that takes its arguments and returns an exit
    status."""
    commands = {point.name: point for point in entry_points(group=GROUP)}
    name, args = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else ("--help", [])
    # The first process of a container gets only signals for which it has a handler. The daemons set their
    # own.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    if name not in _DAEMONS or args[:1] == ["scan"]:
        ends_with_its_reader()
    try:
        return _answered(commands, name, args)
    finally:  # also if argparse has printed its help and ends the process
        sys.stdout.flush()


def _answered(commands: dict[str, EntryPoint], name: str, args: list[str]) -> int:
    if name == "help" and args:
        return _answered(commands, args[0], [*args[1:], "--help"])
    if name in ("-h", "--help", "help"):
        print(_overview(commands))
        return 0
    if name in ("-V", "--version"):
        print(f"rekindle {__version__}")
        return 0
    name = name if name in commands else _RENAMED.get(name, name)
    if name not in commands:
        print(_unknown(name, commands), file=sys.stderr)
        return 2
    if not is_here(commands[name]):
        print(_left_out(name), file=sys.stderr)
        return 2
    try:
        if told := not_installed(name):
            print(told, file=sys.stderr)
            return 2
        return int(commands[name].load()(args) or 0)
    except ModuleNotFoundError as error:
        if not (told := not_installed(name, error)):
            raise
        print(told, file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # while the command's modules were still being found or loaded
        return EXIT_INTERRUPTED


def _overview(commands: dict[str, EntryPoint]) -> str:
    commands = {name: point for name, point in commands.items() if is_here(point)}
    ours = {name for group in _HELP.values() for name in group}
    theirs = {name: _docstring(commands[name]) for name in sorted(commands.keys() - ours)}
    groups = {**_HELP, "From other packages": theirs}
    lines = [line for line in _HEAD.splitlines() if "demo" in commands or "rekindle demo" not in line]
    for title, group in groups.items():
        told = [_row(name, words) for name, words in group.items() if name in commands]
        lines += ["", f"{title}:", *told] if told else []
    return "\n".join([*lines, "\n`rekindle help COMMAND` explains a command."])


def _row(name: str, words: str) -> str:
    return textwrap.fill(words, _COLUMNS, initial_indent=f"  {name:<13}  ", subsequent_indent=" " * 17)


def is_here(point: EntryPoint) -> bool:
    """Whether the command is installed: the image leaves out some commands."""
    return point.module.partition(".")[0] != _PLAY or find_spec(_PLAY) is not None


def _left_out(name: str) -> str:
    return (
        f"rekindle: this installation has no command {name!r}, because the image leaves out the package\n"
        "that breaks jobs on purpose. Run the command from a clone of the repository: make install, then\n"
        f".venv/bin/rekindle {name}"
    )


def _docstring(point: EntryPoint) -> str:
    """Returns the first line of a third party's command. A command that cannot be loaded does not hide the
    others."""
    try:
        text = point.load().__doc__ or ""
    except (ImportError, AttributeError) as error:
        return f"(cannot be loaded: {error})"
    return text.strip().partition("\n")[0]


def _unknown(name: str, commands: dict[str, EntryPoint]) -> str:
    near = difflib.get_close_matches(name, commands, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"rekindle: no command {name!r}{hint}\n`rekindle --help` lists all commands."


if __name__ == "__main__":
    sys.exit(main())
