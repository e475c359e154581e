"""`rekindle doctor`: names what does not work in the installation, before it is needed. `rekindle doctor JOB`
and `rekindle doctor -f FILE` name what will not work when the job fails.

The command changes nothing.
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
from recover.checkpoints.annotation import ANNOTATION
from recover.cli.access import Access, with_access
from recover.cli.options import Format, Json
from recover.cli.options import run as run_command
from recover.cli.output import Output, print_answer
from recover.cli.telling import print_story
from recover.doctor.case import Case, Severity
from recover.doctor.environment import enabling
from recover.doctor.folders import with_sharers
from recover.doctor.installation import inspect as installation
from recover.doctor.installation import told as installation_report
from recover.doctor.installation.installed import Installation
from recover.doctor.look import look
from recover.doctor.manifest import cases
from recover.doctor.permission import NOT_OPTED_IN
from recover.doctor.report import Examined, JobsAnswer, examined, story
from recover.kube.rest import RestCluster
from recover.policy.commands import why
from recover.policy.consent import AUTO_RECOVERY
from recover.recipes.load import built_in
from recover.snapshot.find import NotFound
from recover.snapshot.manifests import (
    NO_DOCUMENT,
    ManifestError,
    documents,
    in_yaml_words,
    name_of,
    read_text,
)
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
    """Returns the exit status."""
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
        list[str] | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="A manifest that is not submitted yet; - is standard input. You can repeat this option.",
        ),
    ] = None,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAME",
            help="Only a job of this namespace. Without JOB: the namespace in which Rekindle is installed.",
        ),
    ] = "",
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Also exit with 1 if there are only warnings (risks), for example in CI.",
        ),
    ] = False,
    output: Format = Output.TABLE,
    json: Json = False,
    *,
    access: Access,
) -> None:
    """Find problems in the installation, in a JOB, or in a manifest (-f) before a fault occurs, and name the
    fix for each. For a manifest the command reads no cluster, and makes only the checks that need no cluster.
    The command changes nothing. If you have no permission to read an object, the command names the object and
    makes the other checks."""
    output = Output.JSON if json else output
    if job and file:
        raise _failed("expected JOB or -f FILE, not both", Exit.UNUSABLE)
    if job.endswith((".yaml", ".yml", ".json")):
        raise _failed(
            f"{job!r} is no name of a job; to check a file: rekindle doctor -f {job}", Exit.UNUSABLE
        )
    try:
        if file:
            found = with_sharers([one for name in file for one in _in_file(name)])
            _tell_jobs(found, output, strict=strict)
            return
        if job:
            case, notes = asyncio.run(_job(access, job, namespace, datetime.now(UTC)))
            for note in notes:
                _tell(note)
            _tell_jobs([case], output, strict=strict)
        else:
            _tell_installation(asyncio.run(_installation(access, namespace)), output, strict=strict)
    except installation.NotInstalled as error:
        raise _failed(f"{error}. To install it:\n{INSTALL}", Exit.NO_ANSWER) from error
    except (NotFound, CannotTell) as error:
        raise _failed(str(error), Exit.NO_ANSWER) from error
    except BadValueError as error:
        raise _failed(str(in_yaml_words(error)), Exit.UNUSABLE) from error
    except (SettingsError, ManifestError) as error:
        raise _failed(str(error), Exit.UNUSABLE) from error


def _in_file(file: str) -> list[Case]:
    """Returns the jobs of a file. Raises ManifestError, BadValueError, and typer.Exit for a file without a
    job."""
    text, name = read_text(file), name_of(file)
    every = documents(text, name)
    found, notes = cases(every, name, built_in(), datetime.now(UTC))
    for note in notes:
        _tell(note)
    if not found:
        kinds = ", ".join(sorted({workload.resource.kind for workload in WORKLOADS}))
        why = f"this file has no job that Rekindle restarts. Rekindle restarts these kinds: {kinds}"
        is_empty = all(document is None for document in every)
        raise _failed(f"{name}: {NO_DOCUMENT if is_empty else why}", Exit.NO_ANSWER)
    return found


async def _installation(access: Access, namespace: str) -> Installation:
    async with KubeApi(await access.credentials()) as api:
        return await installation.look(api, namespace)


def _tell_installation(seen: Installation, output: Output, *, strict: bool) -> None:
    report = installation_report.examined(seen)
    if output.for_people:
        print_story(installation_report.story(report, seen.now, wide=output is Output.WIDE))
    else:
        print_answer(installation_report.InstallationAnswer(installation=report), output)
    _end([report], strict=strict)


async def _job(access: Access, job: str, namespace: str, now: datetime) -> tuple[Case, list[str]]:
    credentials = await access.credentials()
    async with KubeApi(credentials) as api:
        return await look(RestCluster(api), job, namespace, now, default_namespace=credentials.namespace)


def _tell_jobs(found: Sequence[Case], output: Output, *, strict: bool) -> None:
    reports = [examined(case) for case in found]
    if not output.for_people:
        print_answer(JobsAnswer(jobs=reports), output)
    else:
        for number, (case, report) in enumerate(zip(found, reports, strict=True)):
            print("\n" * (number > 0), end="")
            print_story(story(report, _commands(case, report), wide=output is Output.WIDE))
    _end(reports, strict=strict)


def _end(reports: Sequence[Examined], *, strict: bool) -> None:
    if any(report.fails or (strict and report.count(Severity.RISKS)) for report in reports):
        raise typer.Exit(Exit.BAD)
    if any(report.refused for report in reports):
        raise typer.Exit(Exit.PARTLY)


_ENABLED = {
    NOT_OPTED_IN: "automatic recovery enabled",
    "environment-not-read": "the envFrom",
    "environment-not-optional": "the envFrom",
    "no-checkpoint-annotation": f"the annotation {ANNOTATION}",
}
"""Findings that `rekindle enable` repairs, each with what the command adds. It does not add a label or
annotation that the job has under a wrong name."""
_WRITES = {NOT_OPTED_IN: AUTO_RECOVERY, "no-checkpoint-annotation": ANNOTATION}
"""Labels and annotations that `rekindle enable` writes. If the job has one under a wrong name, the command
would write a second one beside it."""


def _commands(case: Case, report: Examined) -> tuple[Command, ...]:
    ref = case.gang.ref
    if case.is_file:
        name = f"{ref.namespace}/{ref.name}"
        check = Command(
            f"rekindle doctor {name}", "after the submission, to add the checks that need the cluster"
        )
        found = {one.name for one in report.findings if not case.misnamed(_WRITES.get(one.name, ""))}
        if not ref.name:  # a generated name has no ConfigMap that the manifest can name
            found -= {"environment-not-read"}
        added = " and ".join(dict.fromkeys(what for name, what in _ENABLED.items() if name in found))
        path = " --checkpoint PATH" if "no-checkpoint-annotation" in found else ""
        enable = Command(f"{enabling(case)}{path}", f"to print the manifest with {added}")
        return (*([enable] if added else []), *([check] if ref.name else []))
    return (
        Command(why(ref), "to see what has happened to the job"),
        Command("rekindle status", "to see the whole cluster"),
    )


def _failed(text: str, code: Exit) -> typer.Exit:
    _tell(text)
    return typer.Exit(code)


def _tell(text: str) -> None:
    print(f"rekindle: {printable(text)}", file=sys.stderr)
