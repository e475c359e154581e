"""`rekindle enable -f FILE`: prints the manifest as it must be for its jobs to be restarted.

It changes nothing in a cluster. Exit status: 0 printed, 2 wrong usage or a manifest that cannot be used
(nothing is printed then), 3 no job in it (printed as it was).
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer
import yaml

from detectors.strict import BadValueError
from recover.checkpoints.annotation import LocationError, parse
from recover.enable.manifest import KINDS, enabled
from recover.enable.text import rewritten
from recover.manifests import ManifestError, documents, name_of, read_text
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
    name = name_of(file)
    try:
        if checkpoint:
            parse(checkpoint)
        text = read_text(file)
        answer = enabled(documents(text, name), name, checkpoint)
        changed = rewritten(text, answer.documents)
    except (BadValueError, LocationError, ManifestError) as error:
        _tell(str(error))
        raise typer.Exit(EXIT_UNUSABLE) from error
    except RecursionError as error:
        _tell(f"{name}: nested too deeply, or a part that contains itself; expected YAML or JSON of a job")
        raise typer.Exit(EXIT_UNUSABLE) from error
    for note in answer.notes:
        _tell(note)
    if changed is None:
        _tell(f"{name}: {_LOST}")
        changed = yaml.safe_dump_all(answer.documents, sort_keys=False, allow_unicode=True)
    print(changed, end="")
    if answer.jobs == 0:
        _tell(f"{name}: nothing to enable in it: expected one of {', '.join(KINDS)}")
        raise typer.Exit(EXIT_NO_JOB)


def _tell(text: str) -> None:
    print(f"rekindle: {printable(text)}", file=sys.stderr)
