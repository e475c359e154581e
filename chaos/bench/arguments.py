"""Arguments that several benches take."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import msgspec

from recover.cli.access import Access
from recover.cli.output import add_output
from recover.kube.arguments import HELP, add_connection

__all__ = ["access_of", "add_cluster", "add_count", "as_arguments"]


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Adds the options for the throwaway control plane, the settings and the output."""
    add_connection(parser)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="GROUP.FIELD=VALUE",
        help="One setting of the controller; you can repeat this option.",
    )
    add_output(parser)


def access_of(options: argparse.Namespace) -> Access:
    """Returns the values of the options that `add_connection` added."""
    return Access(**{name: getattr(options, name) for name in HELP})


def as_arguments(access: Access) -> list[str]:
    """Returns the same options as arguments for another command of Rekindle."""
    found = []
    for name, given in msgspec.structs.asdict(access).items():
        option = f"--{name.replace('_', '-')}"
        found += [option] if given is True else [option, str(given)] if given else []
    return found


def add_count(
    parser: argparse.ArgumentParser, name: str, what: str, *, least: int, most: int, default: int
) -> None:
    """Adds an option that takes a whole number within these limits."""
    text = f"{what} (default: %(default)s)."
    parser.add_argument(name, type=_count(least, most), default=default, metavar="N", help=text)


def _count(least: int, most: int) -> Callable[[str], int]:

    def parsed(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text}: expected a number, {least} to {most}")
        return int(text)

    return parsed
