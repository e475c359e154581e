"""`rekindle doctor JOB`, `rekindle doctor -f FILE`: what will not work when a job fails, told before it does.

Changes nothing. Exit status: 0 nothing was found that will fail, 1 something was, 2 wrong usage, or a cluster
or manifest that cannot be read, 3 no such job, or several.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime
from typing import Annotated

import msgspec
import typer

from detectors.kubeapi import Credentials, KubeApi
from detectors.settings import SettingsError
from detectors.strict import BadValueError
from recover.cli import (
    CaFile,
    Context,
    Format,
    Kubeconfig,
    Namespace,
    Output,
    Server,
    TokenFile,
    print_story,
)
from recover.doctor.look import look
from recover.doctor.manifest import cases
from recover.doctor.model import Case
from recover.doctor.report import Report, examined, story
from recover.kube.auth import load_credentials
from recover.kube.rest import RestCluster
from recover.lookup import CannotTell, NotFound
from recover.manifests import ManifestError, documents, name_of, read_text
from recover.recipes.load import built_in
from recover.stories.words import Command, printable

__all__ = ["run"]

EXIT_FAILS = 1
EXIT_UNUSABLE = 2
EXIT_NOT_FOUND = 3
_EPILOG = (
    "Exit status: 0 nothing was found that will fail, 1 something was, 2 wrong usage, or a cluster or "
    "manifest that cannot be read, 3 no such job, or several"
)


def run(args: list[str]) -> int:
    """The command's exit status, see the module."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(epilog=_EPILOG)(_doctor)
    try:
        app(args, prog_name="rekindle doctor")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0


class _Answer(msgspec.Struct, frozen=True):
    jobs: tuple[Report, ...]


def _doctor(
    job: Annotated[
        str,
        typer.Argument(metavar="[JOB]", help="NAME, NAMESPACE/NAME or KIND/NAME of a job in the cluster."),
    ] = "",
    file: Annotated[
        str,
        typer.Option(
            "--file", "-f", metavar="FILE", help="A manifest before its submission; - is standard input."
        ),
    ] = "",
    namespace: Namespace = "",
    output: Format = Output.TABLE,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    server: Server = "",
    token_file: TokenFile = "",
    ca_file: CaFile = "",
) -> None:
    """Tells what will not work when a job fails, before it does, and the fix of each. Of a manifest (-f) only
    what needs no cluster is checked; the answer names the rest."""
    if bool(job) == bool(file):
        raise _failed("expected either JOB or -f FILE", EXIT_UNUSABLE)
    now = datetime.now(UTC)
    try:
        if file:
            found, notes = cases(documents(read_text(file), name_of(file)), name_of(file), built_in(), now)
        else:
            credentials = load_credentials(
                kubeconfig=kubeconfig, context=context, server=server, token_file=token_file, ca_file=ca_file
            )
            case, notes = asyncio.run(_looked(credentials, job, namespace, now))
            found = [case]
    except NotFound as error:
        raise _failed(str(error), EXIT_NOT_FOUND) from error
    except (CannotTell, SettingsError, ManifestError, BadValueError) as error:
        raise _failed(str(error), EXIT_UNUSABLE) from error
    for note in notes:
        _tell(note)
    if not found:
        raise _failed(f"{name_of(file)}: no job in it that Rekindle restarts", EXIT_NOT_FOUND)
    _print(found, file, output)


async def _looked(
    credentials: Awaitable[Credentials], job: str, namespace: str, now: datetime
) -> tuple[Case, list[str]]:
    async with KubeApi(await credentials) as api:
        return await look(RestCluster(api), job, namespace, now)


def _print(found: Sequence[Case], file: str, output: Output) -> None:
    reports = tuple(examined(case) for case in found)
    if output is Output.JSON:
        print(msgspec.json.format(msgspec.json.encode(_Answer(reports)), indent=2).decode())
    else:
        for number, (case, report) in enumerate(zip(found, reports, strict=True)):
            print("\n" * (number > 0), end="")
            print_story(story(report, _commands(case, file)))
    if any(report.fails for report in reports):
        raise typer.Exit(EXIT_FAILS)


def _commands(case: Case, file: str) -> tuple[Command, ...]:
    if file:
        return (Command(f"rekindle enable -f {file}", "the manifest with consent and envFrom"),)
    ref = case.gang.ref
    return (
        Command(f"rekindle why -n {ref.namespace} {ref.kind.lower()}/{ref.name}", "what befell it so far"),
        Command("rekindle status", "the whole cluster"),
    )


def _failed(text: str, code: int) -> typer.Exit:
    _tell(text)
    return typer.Exit(code)


def _tell(text: str) -> None:
    print(f"rekindle: {printable(text)}", file=sys.stderr)
