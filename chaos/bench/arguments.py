"""Arguments that several benches take."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

__all__ = ["add_cluster", "add_json", "count"]


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Which throwaway control plane, which settings, which output."""
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        default=os.environ.get("KUBECONFIG", ""),
        help="of the throwaway control plane, whose user has a token (default $KUBECONFIG)",
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="GROUP.FIELD=VALUE", help="a setting of the controller"
    )
    add_json(parser)


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")


def count(least: int, most: int) -> Callable[[str], int]:
    """A type for argparse: a whole number within these limits."""

    def parsed(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text}: expected a number, {least} to {most}")
        return int(text)

    return parsed
