"""Arguments that several benches take."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

from recover.cli.output import add_output
from recover.kube.arguments import HELP

__all__ = ["access_of", "add_cluster", "add_count"]


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Which throwaway control plane, which settings, which output."""
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        default=os.environ.get("KUBECONFIG"),
        required="KUBECONFIG" not in os.environ,
        help="A kubeconfig of the throwaway control plane, whose user has a token (default: $KUBECONFIG).",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="GROUP.FIELD=VALUE",
        help="One setting of the controller; may be repeated.",
    )
    add_output(parser)


def access_of(options: argparse.Namespace) -> list[str]:
    """The options of `add_connection` as they were given, for another command of ours."""
    found = []
    for name in HELP:
        given = getattr(options, name)
        option = f"--{name.replace('_', '-')}"
        found += [option] if given is True else [option, str(given)] if given else []
    return found


def add_count(
    parser: argparse.ArgumentParser, name: str, what: str, *, least: int, most: int, default: int
) -> None:
    """A whole number within these limits."""
    text = f"{what} (default: %(default)s)."
    parser.add_argument(name, type=_count(least, most), default=default, metavar="N", help=text)


def _count(least: int, most: int) -> Callable[[str], int]:

    def parsed(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text}: expected a number, {least} to {most}")
        return int(text)

    return parsed
