"""`rekindle version`: prints the version of this command, and of the controller in the cluster, if it can be
read. The command changes nothing."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import msgspec
import typer
from msgspec import Meta

from detectors import __version__
from detectors.client.kubeapi import ApiError, KubeApi, ReplyLost
from detectors.service.settings import SettingsError
from detectors.text.answers import Answer
from detectors.text.printing import one_line
from detectors.wire.resource import Resource
from recover.cli.access import Access, with_access
from recover.cli.options import Format, Json, run
from recover.cli.output import Output, print_answer
from recover.doctor.installation.release_objects import Deployment
from recover.policy.settings import Settings

__all__ = ["VersionAnswer", "version"]

_DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
_OURS = {"labelSelector": "app.kubernetes.io/name=rekindle,app.kubernetes.io/component=controller"}
_VERSION = "app.kubernetes.io/version"
_WAIT_S = 5.0


class VersionAnswer(Answer, frozen=True, kw_only=True, tag="Version"):
    """The answer of `rekindle version`."""

    client: Annotated[str, Meta(description="version of this command")]
    controller: Annotated[
        str | None,
        Meta(
            description="version of the controller; null: no controller is installed, its version is "
            "not known, the cluster did not answer or was not asked, or you have no permission"
        ),
    ]
    namespace: Annotated[
        str | None, Meta(description="namespace of the controller; null: no controller is known")
    ]


class _Found(msgspec.Struct):
    items: list[Deployment] = []


def version(args: list[str]) -> int:
    """Returns the exit status."""
    return run(with_access(_version), args, "version")


def _version(
    client: Annotated[bool, typer.Option("--client", help="Print only the version of this command.")] = False,
    output: Format = Output.TABLE,
    json: Json = False,
    *,
    access: Access,
) -> None:
    """Print the version of this command, and of the controller in the cluster."""
    output = Output.JSON if json else output
    found, why = (None, "") if client else asyncio.run(_controller(access))
    meta = found.metadata if found is not None else None
    if why:
        print(f"rekindle: cannot read the controller's version: {one_line(why)}", file=sys.stderr)
    if not output.for_people:
        running = meta.labels.get(_VERSION) if meta is not None else None
        where = meta.namespace if meta is not None else None
        print_answer(VersionAnswer(client=__version__, controller=running, namespace=where), output)
        return
    print(f"client      {__version__}")
    if meta is not None:
        print(f"controller  {meta.labels.get(_VERSION, 'without a label')} (in {meta.namespace})")


_NO_RELEASE = "this cluster has no release of Rekindle's chart"


async def _controller(access: Access) -> tuple[Deployment | None, str]:
    """Returns the controller's Deployment, or the reason why there is none. If the account may not list the
    Deployments of all namespaces, only the default namespace (`rekindle-system`) is read."""
    try:
        async with KubeApi(await access.credentials(), timeout_s=_WAIT_S) as api:
            try:
                raw = await api.request("GET", _DEPLOYMENTS.path(), params=_OURS)
            except ApiError as error:
                if error.status != 403:
                    raise
                path = _DEPLOYMENTS.path(namespace=Settings().namespace)
                raw = await api.request("GET", path, params=_OURS)
        found = msgspec.json.decode(raw, type=_Found).items
    except ApiError as error:
        return None, _NO_RELEASE if error.not_found else str(error)
    except (ReplyLost, SettingsError, msgspec.MsgspecError) as error:
        return None, str(error)
    return (found[0], "") if found else (None, _NO_RELEASE)
