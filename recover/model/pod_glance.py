"""Finds pods that no decision is about, from a few of their fields. Pure.

Most pods of a cluster have no accelerator and belong to no gang. Decoding a whole pod takes ten times as long
as decoding these fields.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from recover.api.marks import SCAN_OF
from recover.model.decode import JOBSET_UID, is_accelerator

__all__ = ["is_beside_the_gangs"]


class _Owner(msgspec.Struct, frozen=True):
    kind: str = ""


class _Meta(msgspec.Struct, rename="camel", frozen=True):
    namespace: str = ""
    labels: Mapping[str, str] = {}
    owner_references: list[_Owner] = []


class _Resources(msgspec.Struct, frozen=True):
    requests: dict[str, Any] = {}
    limits: dict[str, Any] = {}


class _Container(msgspec.Struct, frozen=True):
    resources: _Resources = _Resources()


class _Spec(msgspec.Struct, rename="camel", frozen=True):
    containers: list[_Container] = []
    init_containers: list[_Container] = []
    resource_claims: list[msgspec.Raw] = []


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Meta
    spec: _Spec = _Spec()


_DECODER = msgspec.json.Decoder(_Pod)


def is_beside_the_gangs(
    raw: bytes, accelerators: tuple[str, ...], gang_kinds: Collection[str], ours: str
) -> bool:
    """Whether no decision is about the pod: it is outside the namespace `ours`, uses no accelerator and no
    claim, and is neither a scan nor a pod of one of the `gang_kinds`. Raises msgspec.MsgspecError."""
    pod = _DECODER.decode(raw)
    meta = pod.metadata
    is_named = SCAN_OF in meta.labels or JOBSET_UID in meta.labels
    if meta.namespace == ours or is_named or pod.spec.resource_claims:
        return False
    if any(owner.kind in gang_kinds for owner in meta.owner_references):
        return False
    return not any(is_accelerator(name, accelerators) for name in _resources(pod.spec))


def _resources(spec: _Spec) -> Iterator[str]:
    for container in (*spec.containers, *spec.init_containers):
        yield from container.resources.requests
        yield from container.resources.limits
