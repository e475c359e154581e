"""`rekindle enable -f FILE`: prints the manifest with its jobs' consent, and with what their ranks read.

The command changes nothing in a cluster. If the file or an option cannot be used (exit status 2), the command
prints no manifest. A file without a job is printed unchanged (exit status 3).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
import yaml

from detectors.commands.exit_status import Exit
from detectors.text.printing import printable
from detectors.text.strict import BadValueError
from recover.checkpoints.annotation import LocationError, parse
from recover.cli.enable_manifest import KINDS, enabled
from recover.cli.enable_text import rewritten
from recover.cli.options import run as run_command
from recover.doctor.case import Severity
from recover.doctor.manifest import cases
from recover.doctor.report import examined
from recover.recipes.load import built_in
from recover.snapshot.manifests import ManifestError, documents, in_yaml_words, name_of, read_text

__all__ = ["run"]

_LOST = "comments and layout are lost: the change could not be written into this text as it stands"


def run(args: list[str]) -> int:
    """Returns the exit status."""
    example = "rekindle enable -f job.yaml --checkpoint /ckpt | kubectl create -f -"
    return run_command(_enable, args, "enable", example)


def _enable(
    files: Annotated[
        list[str],
        typer.Option("--file", "-f", metavar="FILE", help="The manifest, YAML or JSON; - is standard input."),
    ],
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="PATH[;format=NAME][;marker=FILE][;digests=check]",
            help="The path of the checkpoints in the containers, and their format.",
        ),
    ] = None,
) -> None:
    """Print a manifest in which each job allows automatic restarts (the label rekindle.dev/auto-recovery:
    enabled) and, if it is a Job or JobSet, has an envFrom by which resumed ranks read the path of their
    checkpoint. The rest of the manifest stays as it is,
    and the command changes nothing in a cluster. The command checks the jobs as `rekindle doctor` does, and
    prints the problems that remain, which you must correct yourself, to standard error."""
    if len(files) > 1:
        _tell(f"-f is given {len(files)} times: expected one file, because one manifest is printed")
        raise typer.Exit(Exit.UNUSABLE)
    (file,) = files
    name = name_of(file)
    try:
        if checkpoint is not None:
            parse(checkpoint)
        text = read_text(file)
        answer = enabled(documents(text, name), name, checkpoint or "")
        changed = rewritten(text, answer.documents)
    except LocationError as error:
        _tell(f"--checkpoint {error.why}. The manifest is not printed.")
        raise typer.Exit(Exit.UNUSABLE) from error
    except BadValueError as error:
        _tell(str(in_yaml_words(error)))
        raise typer.Exit(Exit.UNUSABLE) from error
    except ManifestError as error:
        _tell(str(error))
        raise typer.Exit(Exit.UNUSABLE) from error
    except RecursionError as error:
        _tell(f"{name}: nested too deeply, or a part that contains itself; expected YAML or JSON of a job")
        raise typer.Exit(Exit.UNUSABLE) from error
    for note, *details in (*((note,) for note in answer.notes), *_doubts(answer.documents, name)):
        _tell(note)
        for detail in details:
            print(f"  {printable(detail)}", file=sys.stderr)
    if changed is None:
        _tell(f"{name}: {_LOST}")
        changed = yaml.safe_dump_all(answer.documents, sort_keys=False, allow_unicode=True)
    print(changed, end="")
    if answer.jobs == 0:
        _tell(f"{name}: this file has nothing to enable: expected one of {', '.join(KINDS)}")
        raise typer.Exit(Exit.NO_ANSWER)


def _doubts(documents: list[Any], name: str) -> Iterator[tuple[str, ...]]:
    """Yields the problems that doctor finds in the changed jobs, without advice: for each, the problem, its
    field, its consequence and its fix."""
    try:
        found, _ = cases(documents, name, built_in(), datetime.now(UTC))
    except BadValueError as error:  # the API server refuses the manifest as well
        yield (f"{in_yaml_words(error)}; this command cannot tell what will not work",)
        return
    for case in found:
        for finding in examined(case).findings:
            if finding.severity is not Severity.ADVICE:
                problem = f"{name}: {case.called}: {finding.what}"
                field = ": ".join(part for part in (finding.where.field, finding.where.value) if part)
                yield (problem, f"where: {field}", f"then: {finding.means}", f"fix: {finding.fix}")


def _tell(text: str) -> None:
    print(f"rekindle: {printable(text)}", file=sys.stderr)
