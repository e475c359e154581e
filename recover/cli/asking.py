"""How commands that only read ask a cluster: one connection, and one line for each way to get no answer."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import typer

from detectors.client.credentials import Credentials
from detectors.client.kubeapi import KubeApi
from detectors.commands.exit_status import Exit
from detectors.service.settings import SettingsError
from detectors.text.printing import one_line
from recover.cli.access import Access
from recover.kube.cluster import Cluster
from recover.kube.rest import RestCluster
from recover.snapshot.find import NotFound
from recover.snapshot.read import CannotTell, Snapshot

__all__ = ["Question", "asked", "note_missing"]

T = TypeVar("T")
Question = Callable[[Cluster, Credentials], Awaitable[T]]


def asked(question: Question[T], access: Access) -> T:
    """The answer of the API server; the command ends where there is none."""

    async def connected() -> T:
        credentials = await access.credentials()
        async with KubeApi(credentials) as api:
            return await question(RestCluster(api), credentials)

    try:
        return asyncio.run(connected())
    except (CannotTell, NotFound) as error:
        raise _failed(error, Exit.NO_ANSWER) from error
    except SettingsError as error:
        raise _failed(error, Exit.UNUSABLE) from error


def note_missing(snapshot: Snapshot) -> None:
    """What is missing goes to standard error, so that -o json stays clean."""
    for note in snapshot.notes:
        print(f"rekindle: {one_line(note)}", file=sys.stderr)


def _failed(error: Exception, code: Exit) -> typer.Exit:
    print(f"rekindle: {error}", file=sys.stderr)
    return typer.Exit(code)
