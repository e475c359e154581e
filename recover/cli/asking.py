"""Runs a command's question against a cluster: opens one connection, and prints one line for each way in
which the question can fail. I/O only."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import typer

from detectors.client.credentials import Credentials
from detectors.client.kubeapi import ApiError, KubeApi, ReplyLost
from detectors.commands.exit_status import Exit
from detectors.service.settings import SettingsError
from detectors.text.printing import one_line
from recover.cli.access import Access
from recover.kube.cluster import Cluster
from recover.kube.rest import RestCluster
from recover.snapshot.find import NotFound
from recover.snapshot.read import CannotTell, Snapshot, unanswered

__all__ = ["Question", "RefusedError", "ask_cluster", "note", "note_missing", "with_connection"]

T = TypeVar("T")
Question = Callable[[Cluster, Credentials], Awaitable[T]]


class RefusedError(Exception):
    """The command does not do what a person requested. The message is one line: the reason, and the next
    step."""


def ask_cluster(question: Question[T], access: Access) -> T:
    """Returns the result of the question. Ends the command if the question fails."""
    return with_connection(lambda api, credentials: question(RestCluster(api), credentials), access)


def with_connection(work: Callable[[KubeApi, Credentials], Awaitable[T]], access: Access) -> T:
    """Returns the result of `work`. If `work` raises, ends the command with the exit status of that error."""

    async def run() -> T:
        credentials = await access.credentials()
        async with KubeApi(credentials, user_agent="rekindle-cli") as api:
            return await work(api, credentials)

    try:
        return asyncio.run(run())
    except RefusedError as error:
        raise _failed(error, Exit.BAD) from error
    except SettingsError as error:
        raise _failed(error, Exit.UNUSABLE) from error
    except ReplyLost as error:
        raise _failed(unanswered(error), Exit.NO_ANSWER) from error
    except (CannotTell, NotFound, ApiError) as error:
        raise _failed(error, Exit.NO_ANSWER) from error


def note(text: str) -> None:
    """Prints text that is not part of the answer to standard error, so that the output of -o json stays
    clean."""
    print(f"rekindle: {one_line(text)}", file=sys.stderr)


def note_missing(snapshot: Snapshot) -> None:
    for missing in snapshot.notes:
        note(missing)


def _failed(error: Exception, code: Exit) -> typer.Exit:
    print(f"rekindle: {error}", file=sys.stderr)
    return typer.Exit(code)
