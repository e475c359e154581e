"""Prints the answer of a command: `-o table` and `-o wide` for people, `-o json`, `-o yaml` and `-o name` for
programs. All commands print their answers in this way; detectors/text/answers.py defines the form of an
answer."""

from __future__ import annotations

import argparse
from enum import StrEnum
from typing import Any

import msgspec

from detectors.text.answers import ANSWERS_VERSION, Answer

__all__ = ["JSON_HELP", "OUTPUT_HELP", "Form", "Output", "add_output", "print_answer", "print_data"]

OUTPUT_HELP = "How to print the answer: table (default), wide, json, yaml or name."
JSON_HELP = "The same as -o json."


class Output(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"

    @property
    def for_people(self) -> bool:
        return self in (Output.TABLE, Output.WIDE)


class Form(StrEnum):
    """Output forms of commands that measure or play something: their answers name no objects."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def add_output(parser: argparse.ArgumentParser, forms: type[Output | Form] = Form) -> None:
    """Adds `--output` to a command that uses argparse, and `--json`, which is older and means the same as -o
    json."""
    names = [one.value for one in forms]
    parser.add_argument(
        "-o",
        "--output",
        choices=names,
        default=Output.TABLE.value,
        metavar="FORM",
        help=f"How to print the answer: table (default), {', '.join(names[1:-1])} or {names[-1]}.",
    )
    parser.add_argument("--json", dest="output", action="store_const", const=Form.JSON.value, help=JSON_HELP)


def print_answer(answer: Answer, output: Output | str) -> None:
    """Prints an answer for programs."""
    if output == Output.NAME:
        for name in answer.names():
            print(name)
    else:
        _print(answer, output)


def print_data(answer: Any, output: Output | Form | str, kind: str = "") -> None:
    """Prints data whose type is not Answer: an object of the API, or, with `kind`, a struct or dict of
    figures."""
    if kind:
        answer = {"kind": kind, "apiVersion": ANSWERS_VERSION, **msgspec.to_builtins(answer, str_keys=True)}
    _print(answer, output)


def _print(answer: Any, output: Output | Form | str) -> None:
    if output == Output.JSON:
        print(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())
        return
    import yaml  # noqa: PLC0415  (the scan pod starts sooner without yaml)

    plain = msgspec.to_builtins(answer, str_keys=True)
    print(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=110), end="")
