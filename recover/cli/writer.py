"""Sends the writes of a person's command to a cluster: one request for each write, as the person who runs the
command. I/O only.

With `--dry-run` the API server makes every check, admission included, and keeps nothing (dryRun=All).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
import typer

from detectors.client.credentials import Credentials
from detectors.client.kubeapi import ApiError, KubeApi, ReplyLost
from detectors.service.settings import SettingsError
from detectors.text.printing import one_line
from detectors.wire.resource import MergePatch, Resource
from recover.cli.access import Access
from recover.cli.asking import RefusedError, with_connection
from recover.k8s.durations import parse_s
from recover.kube.cluster import Cluster
from recover.kube.rest import RestCluster
from recover.snapshot.read import unanswered

__all__ = [
    "DryRun",
    "HoldFor",
    "PauseFor",
    "Reason",
    "Writer",
    "changed",
    "checked_reason",
    "duration_s",
]

DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Let the API server check each write, print it, and change nothing."),
]
_ENDS = "The {} ends by itself after this time, for example 2h, 30m or 1d12h."
HoldFor = Annotated[str, typer.Option("--for", metavar="TIME", help=_ENDS.format("hold"))]
PauseFor = Annotated[str, typer.Option("--for", metavar="TIME", help=_ENDS.format("pause"))]
Reason = Annotated[
    str,
    typer.Option(
        "--reason",
        metavar="TEXT",
        help="Your reason; `rekindle why`, Events and Incidents show this text.",
    ),
]
_REASON_CHARS_MAX = 256


class Writer:
    """Sends the writes of one command. Raises RefusedError if the API server refuses a write, CannotTell if
    it does not answer."""

    def __init__(self, api: KubeApi, *, dry_run: bool) -> None:
        self._api = api
        self.cluster: Cluster = RestCluster(api)
        self.default_namespace = ""
        """Namespace that the kubeconfig names."""
        self.dry_run = dry_run

    def say(self, text: str) -> None:
        print(("(dry run) " if self.dry_run else "") + one_line(text))

    async def create(self, resource: Resource, body: Any, namespace: str) -> None:
        await self._send("POST", resource.path(namespace=namespace), resource, body)

    async def patch(self, resource: Resource, name: str, body: Any, namespace: str = "") -> None:
        """Sends a merge patch. The uid in its metadata, and the version if one is given, must match the
        object in the cluster."""
        await self._send("PATCH", resource.path(name, namespace), resource, body, MergePatch)

    async def delete(self, resource: Resource, name: str, namespace: str, uid: str) -> None:
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        await self._send("DELETE", resource.path(name, namespace), resource, body)

    async def user(self) -> str:
        """Returns the name by which the API server knows the caller; empty if the API server does not report
        it (before 1.28)."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        try:
            raw = await self._api.request(
                "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=body
            )
            return msgspec.json.decode(raw, type=_Review).status.user_info.username
        except (ApiError, ReplyLost, msgspec.MsgspecError):
            return ""

    async def _send(
        self, method: str, path: str, resource: Resource, body: Any, content_type: str = "application/json"
    ) -> None:
        params = {"dryRun": "All"} if self.dry_run else None
        try:
            await self._api.request(method, path, params=params, body=body, content_type=content_type)
        except ApiError as error:
            if error.stale:
                why = f"{resource.kind} was changed meanwhile, so this command changed nothing: run it again"
            else:
                why = f"the API server refuses the write: {error}"
            raise RefusedError(why) from error
        except ReplyLost as error:
            raise unanswered(error) from error


class _User(msgspec.Struct):
    username: str = ""


class _ReviewStatus(msgspec.Struct, rename="camel"):
    user_info: _User = msgspec.field(default_factory=_User)


class _Review(msgspec.Struct):
    status: _ReviewStatus = msgspec.field(default_factory=_ReviewStatus)


def changed(work: Callable[[Writer], Awaitable[None]], access: Access, *, dry_run: bool) -> None:
    """Runs `work`. If `work` raises, ends the command with the exit status of that error."""

    async def written(api: KubeApi, credentials: Credentials) -> None:
        writer = Writer(api, dry_run=dry_run)
        writer.default_namespace = credentials.namespace
        await work(writer)

    with_connection(written, access)


def duration_s(text: str) -> float | None:
    """Returns the seconds of the option `--for`; None if the option is not given. Raises SettingsError."""
    if not text:
        return None
    seconds = parse_s(text)
    if not seconds:
        raise SettingsError(
            f"--for {text!r}: expected a number with a unit, such as 30m, 2h or 1d12h; nothing is changed"
        )
    return seconds


def checked_reason(text: str) -> str:
    """Returns the reason as one line. Raises SettingsError if it is too long."""
    if len(text) > _REASON_CHARS_MAX:
        raise SettingsError(
            f"--reason has {len(text)} characters, expected at most {_REASON_CHARS_MAX}; nothing is changed"
        )
    return one_line(text).strip()
