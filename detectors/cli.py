"""`rekindle NAME ...`: finds the command by its entry point and loads only that one."""

from __future__ import annotations

import difflib
import sys
from importlib.metadata import EntryPoint, entry_points

from detectors import __version__

__all__ = ["GROUP", "main"]

GROUP = "rekindle.commands"
EXIT_INTERRUPTED = 130

_HELP = {
    "agent": "watch one node: kernel log, GPUs, logs of its training pods",
    "controller": "find culprits, quarantine nodes, restart gangs from their last complete checkpoint",
    "status": "what is broken, and what is being done",
    "why": "why a job or a node is in the state it is in",
    "enable": "print a job's manifest as it must be for the job to be restarted",
    "doctor": "what will not work when a job fails, told before it does, with the fix",
    "checkpoints": "which checkpoints are complete, and which one would be resumed from",
    "recipes": "known issues: list them, write your own, try one on a log",
    "crds": "print the custom resource definitions",
    "demo": "break a real training on purpose, and watch it recover",
    "chaos": "run a fault scenario and judge the outcome",
    "bench": "measure what Rekindle itself costs",
}


def main() -> int:
    """The console script. A command is a callable that takes its arguments and returns an exit status."""
    commands = {point.name: point for point in entry_points(group=GROUP)}
    name, args = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else ("--help", [])
    if name in ("-h", "--help", "help"):
        print(_overview(commands))
        return 0
    if name in ("-V", "--version"):
        print(f"rekindle {__version__}")
        return 0
    if name not in commands:
        print(_unknown(name, commands), file=sys.stderr)
        return 2
    try:
        return int(commands[name].load()(args) or 0)
    except KeyboardInterrupt:  # while the command's modules were still being loaded
        return EXIT_INTERRUPTED


def _overview(commands: dict[str, EntryPoint]) -> str:
    order = [*(name for name in _HELP if name in commands), *sorted(commands.keys() - _HELP.keys())]
    lines = [f"  {name:<12} {_HELP.get(name) or _docstring(commands[name])}" for name in order]
    return "\n".join(["Usage: rekindle COMMAND [ARGS]", "", *lines, "", "rekindle COMMAND --help says more."])


def _docstring(point: EntryPoint) -> str:
    """First line of a third party's command; one that cannot be loaded does not hide the others."""
    try:
        text = point.load().__doc__ or ""
    except (ImportError, AttributeError) as error:
        return f"(cannot be loaded: {error})"
    return text.strip().partition("\n")[0]


def _unknown(name: str, commands: dict[str, EntryPoint]) -> str:
    near = difflib.get_close_matches(name, commands, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"rekindle: no command {name!r}{hint}\n`rekindle --help` lists them all."


if __name__ == "__main__":
    sys.exit(main())
