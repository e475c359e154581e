"""How a command prints its answer: `-o table` for people, `-o json` and `-o yaml` for programs, with the same
fields. The same in all of them."""

from __future__ import annotations

import argparse
from enum import StrEnum
from typing import Any

import msgspec

__all__ = ["OUTPUT_HELP", "Output", "add_output", "print_data"]

OUTPUT_HELP = "How to print the answer: table (default), json or yaml."


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def add_output(parser: argparse.ArgumentParser) -> None:
    """For commands that use argparse. They had `--json` before, which means the same."""
    parser.add_argument(
        "-o",
        "--output",
        choices=[one.value for one in Output],
        default=Output.TABLE.value,
        metavar="FORM",
        help=OUTPUT_HELP,
    )
    parser.add_argument(
        "--json", dest="output", action="store_const", const=Output.JSON.value, help="The same as -o json."
    )


def print_data(answer: Any, output: Output | str) -> None:
    """For programs: what `answer` is made of, as JSON or YAML."""
    if output == Output.JSON:
        print(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())
        return
    import yaml  # noqa: PLC0415  (the scan pod starts sooner without)

    plain = msgspec.to_builtins(answer, str_keys=True)
    print(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=110), end="")
