"""`rekindle enable -f FILE`: prints the manifest as it must be for its jobs to be restarted.

It changes nothing in a cluster. Exit status: 0 printed, 2 wrong usage or a manifest that cannot be used
(nothing is printed then), 3 no job in it (printed as it was).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from detectors.strict import BadValueError
from recover.checkpoints.annotation import LocationError, parse
from recover.enable.manifest import KINDS, enabled
from recover.enable.text import rewritten
from recover.stories.words import printable

__all__ = ["run"]

EXIT_UNUSABLE = 2
EXIT_NO_JOB = 3
_LOST = "comments and layout are lost: the change could not be written into this text as it stands"
_EPILOG = (
    "Exit status: 0 printed, 2 wrong usage or a manifest that cannot be used, "
    "3 no job in it (printed as it was)"
)


def run(args: list[str]) -> int:
    """The command's exit status, see the module."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(epilog=_EPILOG)(_enable)
    try:
        app(args, prog_name="rekindle enable")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0


class _UnusableError(Exception):
    """A manifest that is no text, or no YAML."""


def _enable(
    file: Annotated[
        str, typer.Option("--file", "-f", metavar="FILE", help="YAML or JSON; - is standard input.")
    ],
    checkpoint: Annotated[
        str,
        typer.Option(metavar="PATH[;format=NAME]", help="Where the checkpoints lie in the containers."),
    ] = "",
) -> None:
    """Prints a manifest with what its jobs need to be restarted: consent, and an envFrom that tells resumed
    ranks where to go on. All else stays as it is. Nothing in a cluster is changed.

    rekindle enable -f job.yaml --checkpoint /ckpt | kubectl create -f -
    """
    name = "standard input" if file == "-" else file
    try:
        if checkpoint:
            parse(checkpoint)
        text = _read(file, name)
        answer = enabled(_parsed(text, name), name, checkpoint)
    except (BadValueError, LocationError, _UnusableError) as error:
        _tell(str(error))
        raise typer.Exit(EXIT_UNUSABLE) from error
    for note in answer.notes:
        _tell(note)
    changed = rewritten(text, answer.documents)
    if changed is None:
        _tell(f"{name}: {_LOST}")
        changed = yaml.safe_dump_all(answer.documents, sort_keys=False, allow_unicode=True)
    print(changed, end="")
    if answer.jobs == 0:
        _tell(f"{name}: nothing to enable in it: expected one of {', '.join(KINDS)}")
        raise typer.Exit(EXIT_NO_JOB)


def _read(file: str, name: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8")
    except OSError as error:
        raise _UnusableError(f"{name}: cannot be read: {error.strerror}; expected a YAML file") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        found = error.object[error.start : error.start + 1]
        raise _UnusableError(f"{name}: line {line}: value {found!r}: expected UTF-8 text") from error


def _parsed(text: str, name: str) -> list[Any]:
    try:
        return list(yaml.safe_load_all(text))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise _UnusableError(f"{name}: line {line}: {error.problem}; expected YAML or JSON") from error
    except yaml.YAMLError as error:
        raise _UnusableError(f"{name}: {error}; expected YAML or JSON") from error


def _tell(text: str) -> None:
    print(f"rekindle: {printable(text)}", file=sys.stderr)
