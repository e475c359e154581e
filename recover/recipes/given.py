"""Turns a person's options about a failure into Evidence, for `rekindle recipes`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, TypeVar

from detectors.text.log_template import Template
from detectors.text.sizes import parse_size
from detectors.wire.contract import Fault
from recover.api.recipe_spec import Framework
from recover.k8s.quantities import parse_count
from recover.recipes.match import Evidence, LogLine
from recover.recipes.values import FACTS, Measure, parse_version

__all__ = ["InputError", "evidence"]

_PIECE_BYTES_MAX = 32 * 1024
_LINES_MAX = 10_000

E = TypeVar("E", bound=StrEnum)


class InputError(Exception):
    """An option that cannot be used. The message names the option, its value, and what was expected."""


def evidence(
    *,
    templates: Iterable[Template],
    logs: Iterable[str],
    exit_codes: Iterable[int],
    requests: Iterable[str],
    env: Iterable[str],
    facts: Iterable[str],
    labels: Iterable[str],
    faults: Iterable[str],
    signals: Iterable[str],
    framework: str,
) -> Evidence:
    """Returns the evidence from the options. Of the logs (`-` is standard input) it keeps only lines that
    match one of the templates. Raises `InputError`."""
    kept = tuple(templates)
    return Evidence(
        lines=tuple(line for log in logs for line in _lines_of(log, kept)),
        exit_codes=frozenset(exit_codes),
        faults=frozenset(_word("--fault", fault, Fault) for fault in faults),
        signals=frozenset(signals),
        framework=_word("--framework", framework, Framework) if framework else None,
        requests=dict(_request(text) for text in requests),
        env=dict(_pair("--env", text, "NAME=VALUE") for text in env),
        labels=dict(_pair("--label", text, "NAME=VALUE") for text in labels),
        facts=dict(_fact(text) for text in facts),
    )


def _pair(option: str, text: str, form: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise InputError(f"{option}: value {text!r}: expected {form}")
    return name, value


def _request(text: str) -> tuple[str, int]:
    name, value = _pair("--request", text, "RESOURCE=COUNT, as tencent.com/vcuda-core=30")
    count = parse_count(value)
    if count is None:
        raise InputError(f"--request: value {text!r}: expected a whole number after {name}=")
    return name, count


def _fact(text: str) -> tuple[str, str]:
    name, value = _pair("--fact", text, "NAME=VALUE, as cuda.driver=12.4")
    fact = FACTS.get(name)
    if fact is None:
        raise InputError(f"--fact: value {text!r}: expected one of {', '.join(FACTS)}")
    read = parse_version(value) if fact.measure is Measure.VERSION else parse_size(value)
    if read is None:
        example = "12.4" if fact.measure is Measure.VERSION else "16GiB"
        raise InputError(f"--fact: value {text!r}: expected {fact.measure.value} such as {example}")
    return name, value


def _word(option: str, text: str, choices: type[E]) -> E:
    try:
        return choices(text)
    except ValueError as error:
        raise InputError(f"{option}: value {text!r}: expected one of {', '.join(choices)}") from error


def _lines_of(log: str, templates: tuple[Template, ...]) -> Iterator[LogLine]:
    if log == "-":
        yield from _kept(sys.stdin.buffer, "standard input", templates)
        return
    try:
        with Path(log).open("rb") as file:
            yield from _kept(file, log, templates)
    except OSError as error:
        raise InputError(f"--log: value {log!r}: cannot be read: {error.strerror}") from error


def _kept(file: BinaryIO, name: str, templates: tuple[Template, ...]) -> Iterator[LogLine]:
    """Yields the lines that match, with line numbers as an editor counts. A log of any size and line length
    is read in pieces.

    The carriage returns of a progress bar separate lines, as they do on a terminal.
    """
    number, kept = 1, 0
    while piece := file.readline(_PIECE_BYTES_MAX):
        for text in piece.decode("utf-8", errors="replace").rstrip("\n").split("\r"):
            if any(template.match(text) is not None for template in templates):
                if kept == _LINES_MAX:
                    expected = f"expected at most {_LINES_MAX} lines of interest: give a part of it"
                    raise InputError(f"--log: value {name!r}: {expected}")
                yield LogLine(text=text, number=number, file=name)
                kept += 1
        number += piece.endswith(b"\n")
