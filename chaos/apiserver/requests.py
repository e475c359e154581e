"""Translates the query and the body of a request to the simulated API server into arguments of client.py.
Pure; called by rest.py. Patch types that are not modelled are refused; other options that are not modelled
are ignored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from chaos.apiserver import refusals
from chaos.apiserver.deletion import Deletion, Propagation
from detectors.client.kubeapi import ApiError
from detectors.wire.resource import JsonPatch, MergePatch, PatchType, Resource, StrategicPatch

__all__ = ["DRY_RUN", "decoded", "deletion", "flag", "number", "patch_type"]

N = TypeVar("N", int, int | None)

DRY_RUN = "All"
"""The value of `dryRun`."""


class _Preconditions(msgspec.Struct, rename="camel", frozen=True):
    uid: str = ""
    resource_version: str = ""


class _DeleteOptions(msgspec.Struct, rename="camel", frozen=True):
    grace_period_seconds: int | None = None
    preconditions: _Preconditions = _Preconditions()
    propagation_policy: str = ""
    dry_run: tuple[str, ...] = ()


def decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.MsgspecError as error:
        raise refusals.bad_request(f"the body is not JSON: {error}") from error


def flag(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "").lower() in ("1", "true")


def number(query: Mapping[str, str], name: str, default: N) -> int | N:
    text = query.get(name, "")
    if text and not text.isdigit():
        raise refusals.bad_request(f"{name}={text}: expected a whole number")
    return int(text) if text else default


def deletion(resource: Resource, body: bytes, query: Mapping[str, str]) -> tuple[Deletion, bool]:
    """Returns the options of a delete, and whether the delete is a dry run. The query counts only if there is
    no body."""
    try:
        options = msgspec.json.decode(body, type=_DeleteOptions) if body else _options_of(query)
    except msgspec.MsgspecError as error:
        raise refusals.bad_request(f"DeleteOptions: {error}") from error
    policy = options.propagation_policy
    if policy and policy not in set(Propagation):
        expected = ", ".join(Propagation)
        why = f'propagationPolicy: Unsupported value: "{policy}": supported values: {expected}'
        raise refusals.invalid(resource, "DeleteOptions", why)
    found = Deletion(
        uid=options.preconditions.uid,
        resource_version=options.preconditions.resource_version,
        grace_s=options.grace_period_seconds,
        propagation=Propagation(policy) if policy else None,
    )
    return found, DRY_RUN in options.dry_run


def _options_of(query: Mapping[str, str]) -> _DeleteOptions:
    return _DeleteOptions(
        grace_period_seconds=number(query, "gracePeriodSeconds", None),
        propagation_policy=query.get("propagationPolicy", ""),
        dry_run=(query.get("dryRun", ""),),
    )


def patch_type(asked: str, body: Any) -> PatchType:
    """Returns the patch type. Raises ApiError 415 for a patch type that is not modelled for this body.
    kubectl cordons and annotates by strategic merge, which without lists is the same as a merge patch. Taints
    and conditions are the only lists that such a patch may contain."""
    if asked == StrategicPatch and not _has_list(body):
        return StrategicPatch
    if asked not in (MergePatch, JsonPatch):
        raise ApiError(415, "UnsupportedMediaType", f"patch type {asked} is not modelled for this body")
    return asked


def _has_list(value: Any) -> bool:
    """Whether the value contains a list, except taints, which a strategic merge replaces as a whole, and
    conditions."""
    if not isinstance(value, dict):
        return isinstance(value, list)
    return any(_has_list(member) for key, member in value.items() if key not in ("taints", "conditions"))
