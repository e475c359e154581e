"""Parses the arguments of commands that must start without typer: the daemons, the commands on nodes, the
scan pod.

Their help looks like typer's, which the other commands have.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Mapping
from textwrap import indent
from typing import NoReturn

from detectors.commands.exit_status import KEPT, Exit, closing

__all__ = ["Parser", "plain_error", "told_to_choose"]


class Parser(argparse.ArgumentParser):
    """The parser of `rekindle COMMAND`. `about` begins with one imperative sentence; each option's help is a
    sentence, too."""

    def __init__(
        self, command: str, about: str, *, positional: str = "", example: str = "", row: str = ""
    ) -> None:
        """Takes the texts of the help. `row` is the key in MEANINGS if several commands share a row."""
        super().__init__(
            prog=f"rekindle {command}",
            usage=f"%(prog)s [OPTIONS] {positional}".rstrip(),
            description=about,
            epilog=closing(row or command, example),
            formatter_class=_Help,
            add_help=False,
        )
        self._optionals.title = "Options"
        self._positionals.title = "Arguments"
        self.add_argument("-h", "--help", action="help", help="Show this message and exit.")

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(Exit.UNUSABLE, f"Try '{self.prog} -h' for help.\n\nError: {plain_error(message)}\n")


_PLAIN = (
    (r"^argument (\S+): ", r"\1: "),
    (r"^Invalid value for (?:'[^']*' / )*'([^']*)': ", r"\1: "),
    (r"Value error, ", ""),
    (r"invalid choice: ('[^']*') \(choose from (.*)\)", r"\1: expected one of \2"),
    (r"('[^']*') is not one of ('.*')", r"\1: expected one of \2"),
    (r"Input should be a valid integer.*", "expected a whole number"),
    (r"Input should be a valid number.*", "expected a number"),
    (r"Input should be greater than or equal to (\S+)", r"expected \1 or more"),
    (r"Input should be less than or equal to (\S+)", r"expected \1 or less"),
    (r"invalid (?:int|float) value: (.*)", r"\1: expected a number"),
    (r"^the following arguments are required: (.*)", r"Missing argument '\1'"),
    (r"^unrecognized arguments: (-.*)", r"No such option: \1"),
    (r"^unrecognized arguments: (.*)", r"One argument too many: \1"),
)
"""Errors that argparse, and the library below typer, print for a wrong call, with our words for each."""


def plain_error(message: str) -> str:
    """Returns one sentence about a wrong call, without words of a library."""
    for pattern, words in _PLAIN:
        message = re.sub(pattern, words, message)
    head, expected, choices = message.partition("expected one of ")
    message = head + expected + choices.replace("'", "")
    return message if message.endswith(".") else f"{message}."


class _Help(argparse.HelpFormatter):
    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[argparse._MutuallyExclusiveGroup],
        prefix: str | None = None,
    ) -> None:
        super().add_usage(usage, actions, groups, prefix or "Usage: ")

    def _format_text(self, text: str) -> str:
        """Formats each paragraph separately."""
        self._indent()
        paragraphs = [self._paragraph(paragraph) for paragraph in text.split("\n\n")]
        self._dedent()
        return "".join(paragraphs)

    def _paragraph(self, text: str) -> str:
        if not text.startswith(KEPT):
            return super()._format_text(text)
        return f"{indent(text.removeprefix(KEPT), ' ' * self._current_indent)}\n\n"

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """Prints the value once, after all names of the option."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, action.dest.upper())
        return f"{', '.join(action.option_strings)} {value}"


def told_to_choose(command: str, about: str, commands: Mapping[str, str], args: list[str]) -> int:
    """Prints the help of a command that only has subcommands, or the error that no subcommand has the given
    name. Returns the exit status."""
    asked = args[:1] in (["-h"], ["--help"])
    width = max(len(name) for name in commands)
    lines = [
        f"Usage: rekindle {command} [OPTIONS] COMMAND [ARGS]...",
        f"\n  {about}\n",
        "Options:",
        "  -h, --help  Show this message and exit.\n",
        "Commands:",
        *(f"  {name:<{width}}  {told}" for name, told in commands.items()),
    ]
    if args and not asked:
        lines = [lines[0], f"\nError: No such command {args[0]!r}: expected one of {', '.join(commands)}."]
    print("\n".join(lines), file=sys.stdout if asked else sys.stderr)
    return Exit.GOOD if asked else Exit.UNUSABLE
