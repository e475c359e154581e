"""A real API server does what docs/install.md says about a rollback of the definitions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from detectors.client.kubeapi import ApiError, KubeApi
from detectors.wire.resource import MergePatch, Resource
from tests.control_plane.clean import CRDS
from tests.control_plane.plane import ControlPlane
from tests.control_plane.stage import ANSWERED_S

pytestmark = pytest.mark.control_plane

NAME = "things.pruning.example"
THINGS = Resource("pruning.example", "v1alpha1", "things", "Thing", namespaced=False)
LIMIT_S = 60.0
OLD = ("old",)
NEW = ("old", "new")


def version(name: str, fields: tuple[str, ...], *, stored: bool) -> dict[str, Any]:
    spec = {"type": "object", "properties": {field: {"type": "string"} for field in fields}}
    schema = {"type": "object", "properties": {"spec": spec}}
    return {"name": name, "served": True, "storage": stored, "schema": {"openAPIV3Schema": schema}}


async def test_a_field_of_later_definitions_is_hidden_and_lost_with_the_next_write(
    api_server: ControlPlane,
) -> None:
    async with KubeApi(api_server.credentials(), timeout_s=ANSWERED_S) as api:
        try:
            await defined(api, version("v1alpha1", NEW, stored=True))
            for name in ("left", "written"):
                await created(api, {"metadata": {"name": name}, "spec": {"old": "a", "new": "b"}})

            await defined(api, version("v1alpha1", OLD, stored=True))
            for name in ("left", "written"):
                await until(api, name, {"old": "a"})
            await changed(api, THINGS.path("written"), {"spec": {"old": "c"}})

            await defined(api, version("v1alpha1", NEW, stored=True))
            await until(api, "left", {"old": "a", "new": "b"})
            assert await spec_of(api, "written") == {"old": "c"}
        finally:
            await api.request("DELETE", CRDS.path(NAME))


async def test_definitions_without_the_version_in_which_objects_are_stored_are_refused(
    api_server: ControlPlane,
) -> None:
    async with KubeApi(api_server.credentials(), timeout_s=ANSWERED_S) as api:
        try:
            former = version("v1alpha1", OLD, stored=False)
            await defined(api, former, version("v1beta1", OLD, stored=True))

            with pytest.raises(ApiError, match=r"storedVersions.*v1beta1|v1beta1.*storedVersions"):
                await defined(api, {**former, "storage": True})
        finally:
            await api.request("DELETE", CRDS.path(NAME))


async def defined(api: KubeApi, *versions: Mapping[str, Any]) -> None:
    names = {"kind": "Thing", "listKind": "ThingList", "plural": "things", "singular": "thing"}
    spec = {"group": "pruning.example", "scope": "Cluster", "names": names, "versions": list(versions)}
    try:
        await changed(api, CRDS.path(NAME), {"spec": spec})
    except ApiError as error:
        if not error.not_found:
            raise
        await api.request("POST", CRDS.path(), body={"metadata": {"name": NAME}, "spec": spec})
    async with asyncio.timeout(LIMIT_S):
        while not (await stored(api, CRDS.path(NAME))).get("status", {}).get("storedVersions"):
            await asyncio.sleep(0.05)


async def created(api: KubeApi, body: dict[str, Any]) -> None:
    """Creates the object once the definition is served with all its fields."""
    name = body["metadata"]["name"]
    body = {"apiVersion": THINGS.api_version, "kind": THINGS.kind, **body}
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                params = {"fieldValidation": "Strict"}
                await api.request("POST", THINGS.path(), params=params, body=body)
            except ApiError as error:
                if error.exists:  # sent again after it was accepted
                    break
            await asyncio.sleep(0.05)
    await until(api, name, body["spec"])


async def until(api: KubeApi, name: str, expected: dict[str, str]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while await spec_of(api, name) != expected:
            await asyncio.sleep(0.05)


async def spec_of(api: KubeApi, name: str) -> Any:
    return (await stored(api, THINGS.path(name)))["spec"]


async def changed(api: KubeApi, path: str, body: dict[str, Any]) -> None:
    await api.request("PATCH", path, body=body, content_type=MergePatch)


async def stored(api: KubeApi, path: str) -> dict[str, Any]:
    return dict(msgspec.json.decode(await api.request("GET", path)))
