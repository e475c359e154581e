"""`rekindle doctor`: what does not work of the installation, told before it is needed. `rekindle doctor JOB`,
`rekindle doctor -f FILE`: what will not work when that job fails.

Changes nothing.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from detectors import __version__
from detectors.client.kubeapi import KubeApi
from detectors.commands.exit_status import Exit
from detectors.service.settings import SettingsError
from detectors.text.printing import printable
from detectors.text.strict import BadValueError
from recover.cli.access import Access, with_access
from recover.cli.options import Format, Json
from recover.cli.options import run as run_command
from recover.cli.output import Output, print_answer
from recover.cli.telling import print_story
from recover.doctor.case import Case
from recover.doctor.installation import inspect as installation
from recover.doctor.installation import told as installation_report
from recover.doctor.installation.installed import Installation
from recover.doctor.look import look
from recover.doctor.manifest import cases
from recover.doctor.report import Examined, JobsAnswer, examined, story
from recover.kube.rest import RestCluster
from recover.policy.commands import why
from recover.recipes.load import built_in
from recover.snapshot.find import NotFound
from recover.snapshot.manifests import ManifestError, documents, name_of, read_text
from recover.snapshot.read import CannotTell
from recover.stories.words import Command
from recover.workloads import WORKLOADS

__all__ = ["run"]

INSTALL = f"""\
docker build --tag REGISTRY/rekindle:{__version__} . && docker push REGISTRY/rekindle:{__version__}
kubectl create namespace rekindle-system
kubectl label namespace rekindle-system pod-security.kubernetes.io/enforce=privileged
helm install rekindle charts/rekindle --namespace rekindle-system --set image.registry=REGISTRY
docs/install.md says more."""


def run(args: list[str]) -> int:
    """The command's exit status."""
    return run_command(with_access(_doctor), args, "doctor", "rekindle doctor, or rekindle doctor team/llm")


def _doctor(
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB",
            help="The job, as NAME, NAMESPACE/NAME or KIND/NAME. Without a job: the installation of "
            "Rekindle.",
        ),
    ] = "",
    file: Annotated[
        str,
        typer.Option(
            "--file", "-f", metavar="FILE", help="A manifest that is not submitted yet; - is standard input."
        ),
    ] = "",
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAME",
            help="Only a job of this namespace; without a JOB, the namespace of Rekindle.",
        ),
    ] = "",
    output: Format = Output.TABLE,
    json: Json = False,
    *,
    access: Access,
) -> None:
    """Tell what will not work, before it is needed, with the fix of each: of Rekindle as it is installed, of
    a JOB when it fails, or of a manifest (-f), of which only what needs no cluster is checked. Nothing is
    changed. What you may not read is named, and the rest is checked."""
    output = Output.JSON if json else output
    if job and file:
        raise _failed("expected JOB or -f FILE, not both", Exit.UNUSABLE)
    try:
        if file:
            text, name = read_text(file), name_of(file)
            found, notes = cases(documents(text, name), name, built_in(), datetime.now(UTC))
            _tell_jobs(found, notes, file, output)
            return
        if job:
            case, notes = asyncio.run(_job(access, job, namespace, datetime.now(UTC)))
            _tell_jobs([case], notes, file, output)
        else:
            _tell_installation(asyncio.run(_installation(access, namespace)), output)
    except installation.NotInstalled as error:
        raise _failed(f"{error}. To install it:\n{INSTALL}", Exit.NO_ANSWER) from error
    except (NotFound, CannotTell) as error:
        raise _failed(str(error), Exit.NO_ANSWER) from error
    except (SettingsError, ManifestError, BadValueError) as error:
        raise _failed(str(error), Exit.UNUSABLE) from error


async def _installation(access: Access, namespace: str) -> Installation:
    async with KubeApi(await access.credentials()) as api:
        return await installation.look(api, namespace)


def _tell_installation(seen: Installation, output: Output) -> None:
    report = installation_report.examined(seen)
    if output.for_people:
        print_story(installation_report.story(report, seen.now, wide=output is Output.WIDE))
    else:
        print_answer(installation_report.InstallationAnswer(installation=report), output)
    _end([report])


async def _job(access: Access, job: str, namespace: str, now: datetime) -> tuple[Case, list[str]]:
    credentials = await access.credentials()
    async with KubeApi(credentials) as api:
        return await look(RestCluster(api), job, namespace, now, usual=credentials.namespace)


def _tell_jobs(found: Sequence[Case], notes: Sequence[str], file: str, output: Output) -> None:
    for note in notes:
        _tell(note)
    if not found:
        kinds = ", ".join(sorted({workload.resource.kind for workload in WORKLOADS}))
        raise _failed(
            f"{name_of(file)}: this file has no job that Rekindle restarts. Rekindle restarts these "
            f"kinds: {kinds}",
            Exit.NO_ANSWER,
        )
    reports = [examined(case) for case in found]
    if not output.for_people:
        print_answer(JobsAnswer(jobs=reports), output)
    else:
        for number, (case, report) in enumerate(zip(found, reports, strict=True)):
            print("\n" * (number > 0), end="")
            print_story(story(report, _commands(case, file), wide=output is Output.WIDE))
    _end(reports)


def _end(reports: Sequence[Examined]) -> None:
    if any(report.fails for report in reports):
        raise typer.Exit(Exit.BAD)
    if any(report.refused for report in reports):
        raise typer.Exit(Exit.PARTLY)


def _commands(case: Case, file: str) -> tuple[Command, ...]:
    if file:
        return (Command(f"rekindle enable -f {file}", "to print the manifest with consent and envFrom"),)
    ref = case.gang.ref
    return (
        Command(why(ref), "to see what has happened to the job"),
        Command("rekindle status", "to see the whole cluster"),
    )


def _failed(text: str, code: Exit) -> typer.Exit:
    _tell(text)
    return typer.Exit(code)


def _tell(text: str) -> None:
    print(f"rekindle: {printable(text)}", file=sys.stderr)
