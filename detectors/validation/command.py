"""Implements `rekindle validate`: runs the checks one after the other, prints a table, and leaves the report
for the controller in the container's termination message. No typer, no rich."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from detectors.commands.arguments import Parser
from detectors.rules.catalogues import Catalogues
from detectors.service.settings import Catalogue
from detectors.validation.checks import CHECKS
from detectors.validation.node_check import Node, Result
from detectors.validation.run import of_check, of_command
from detectors.wire.step_report import (
    CHECKS_MAX,
    NAME,
    NAME_CHARS_MAX,
    Check,
    Outcome,
    ValidationReport,
    encode,
)

__all__ = ["TERMINATION_LOG", "leave", "run"]

TERMINATION_LOG = Path("/dev/termination-log")
_EXTRA_DEADLINE_S = 300.0
_DEADLINE_S_MAX = 86400.0
_EXIT_TOLD = 128 + signal.SIGTERM


class _Wanted(msgspec.Struct, frozen=True):
    """One check of this run."""

    name: str
    run: Callable[[], Result]


def run(args: list[str]) -> int:
    """Runs the command. Returns the exit status."""
    given = _parser().parse_args(args)
    try:
        wanted = _wanted(given)
    except ValueError as error:
        print(f"rekindle validate: {error}", file=sys.stderr)
        return 2
    if given.list:
        _print_list()
        return 0
    for problem in Catalogues.load(Catalogue(extra=given.catalogue)).problems:
        print(f"rekindle validate: --catalogue: not used, the rest is: {problem}", file=sys.stderr)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(_EXIT_TOLD))
    return _run_all(wanted, given.termination_log)


def _run_all(wanted: list[_Wanted], termination_log: Path) -> int:
    """Runs all checks. Before each check, leaves the report that is correct if that check ends this
    process."""
    found: list[Check] = []
    width = max(len(check.name) for check in wanted)
    for number, check in enumerate(wanted):
        left = [Check(c.name, Outcome.NOT_RUN, "not reached") for c in wanted[number + 1 :]]
        fatal = Check(check.name, Outcome.FAILED, "the pod ended while this check ran")
        leave(ValidationReport(checks=(*found, fatal, *left)), termination_log)
        begin_s = time.monotonic()
        result = check.run()
        took_s = time.monotonic() - begin_s
        found.append(Check(check.name, result.outcome, result.message))
        print(f"{check.name:<{width}}  {result.outcome:<7}  {took_s:6.1f} s  {result.message}", flush=True)
    report = ValidationReport(checks=tuple(found))
    leave(report, termination_log)
    counts = {outcome: sum(check.outcome is outcome for check in found) for outcome in Outcome}
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    return 1 if report.failed else 0


def leave(report: ValidationReport, path: Path) -> None:
    """Leaves the report for the program that started this pod. If a person runs the command, there is no such
    file, and none is created."""
    if not path.exists():
        return
    try:
        path.write_bytes(encode(report))
    except OSError as error:
        print(f"rekindle: {path}: the report cannot be left there: {error.strerror}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "validate",
        "Check whether this node may be used again after a repair. Run it as root on the node, or in a pod "
        "that sees its devices.",
        example="rekindle validate --expected-devices 8 --checks devices,kernel-log",
    )
    parser.add_argument(
        "--checks", default="", metavar="NAME,...", help="Run only these checks (default: all)."
    )
    parser.add_argument("--list", action="store_true", help="List the checks, and run none.")
    parser.add_argument(
        "--extra-command",
        action="append",
        default=[],
        metavar="NAME=COMMAND",
        help="Your own check: exit status 0 means passed, 77 not run, anything else failed; you can "
        "repeat this option.",
    )
    parser.add_argument(
        "--deadline",
        action="append",
        default=[],
        metavar="NAME=SECONDS",
        help="Time limit of one packaged check or of your own check; you can repeat this option.",
    )
    parser.add_argument(
        "--host-root",
        metavar="DIR",
        type=Path,
        default=Path("/"),
        help="The folder with the node's proc and dev (default: /).",
    )
    parser.add_argument(
        "--expected-devices",
        default=os.environ.get("REKINDLE_EXPECTED_DEVICES", ""),
        metavar="COUNT",
        help="Number of GPUs that the node must have, or 0 if unknown (default: $REKINDLE_EXPECTED_DEVICES).",
    )
    parser.add_argument(
        "--devices",
        default=os.environ.get("REKINDLE_DEVICES", ""),
        metavar="UUID,...",
        help="GPUs that were repaired (default: $REKINDLE_DEVICES).",
    )
    parser.add_argument(
        "--incident",
        default=os.environ.get("REKINDLE_INCIDENT", ""),
        metavar="NAME",
        help="The Incident of the repair: the check kernel-log accepts only a reset for this Incident "
        "(default: $REKINDLE_INCIDENT).",
    )
    parser.add_argument(
        "--catalogue",
        default="",
        metavar="FILE",
        help="A TOML file with further rows of the agent's catalogue.",
    )
    parser.add_argument(
        "--termination-log",
        metavar="FILE",
        type=Path,
        default=TERMINATION_LOG,
        help="The file for the report, if the file exists (default: %(default)s).",
    )
    return parser


def _wanted(given: argparse.Namespace) -> list[_Wanted]:
    """Returns the checks in the order of the registration, the caller's own last. Raises `ValueError`."""
    if given.catalogue and not Path(given.catalogue).is_file():
        raise ValueError(f"--catalogue {given.catalogue}: no such file")
    commands = _commands(given.extra_command)
    ours = [check.name for check in CHECKS]
    chosen = _names(given.checks) or ours
    for name in chosen:
        _must_be_among(ours, name, "--checks")
    deadlines = _deadlines(given.deadline, [*chosen, *commands])
    node = Node(
        host_root=str(given.host_root),
        devices=tuple(_names(given.devices)),
        incident=given.incident,
        devices_expected=_count(given.expected_devices),
        catalogue=given.catalogue,
    )
    wanted = []
    for check in CHECKS:
        if check.name in chosen:
            deadline_s = deadlines.get(check.name, check.deadline_s)
            wanted.append(_Wanted(check.name, partial(of_check, check, node, deadline_s)))
    for name, words in commands.items():
        wanted.append(_Wanted(name, partial(of_command, words, deadlines.get(name, _EXTRA_DEADLINE_S))))
    if len(wanted) > CHECKS_MAX:
        raise ValueError(f"{len(wanted)} checks do not fit into one report: expected at most {CHECKS_MAX}")
    return wanted


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _count(text: str) -> int:
    text = text.strip()
    if text and not (text.isascii() and text.isdigit() and len(text) <= 4):
        raise ValueError(f"--expected-devices {text!r}: expected a count, for example 8")
    return int(text or 0)


def _commands(given: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for text in given:
        name, equals, line = text.partition("=")
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise ValueError(f"--extra-command {text!r}: {error}") from error
        if not equals or not words:
            raise ValueError(f"--extra-command {text!r}: expected NAME=COMMAND")
        if not re.fullmatch(NAME, name) or len(name) > NAME_CHARS_MAX:
            raise ValueError(
                f"--extra-command {text!r}: name {name!r}: expected up to {NAME_CHARS_MAX} of a-z, 0-9 and -"
            )
        if name in found or name in [check.name for check in CHECKS]:
            raise ValueError(f"--extra-command {text!r}: there is a check {name} already")
        found[name] = words
    return found


def _deadlines(given: list[str], known: list[str]) -> dict[str, float]:
    found = {}
    for text in given:
        name, _, seconds = text.partition("=")
        _must_be_among(known, name, "--deadline")
        try:
            found[name] = float(seconds)
        except ValueError:
            found[name] = 0.0
        if not 0 < found[name] <= _DEADLINE_S_MAX:
            raise ValueError(f"--deadline {text!r}: expected NAME=SECONDS, at most {_DEADLINE_S_MAX:g}")
    return found


def _must_be_among(known: list[str], name: str, flag: str) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise ValueError(f"{flag}: no check {name!r}{hint}: expected one of {', '.join(known)}")


def _print_list() -> None:
    for check in CHECKS:
        print(f"{check.name} (at most {check.deadline_s:g} s)")
        print(f"    proves: {check.proves}")
        print(f"    needs:  {check.needs}")
