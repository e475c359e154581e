"""The error answers of the simulated API server, with the texts and codes of Kubernetes."""

from __future__ import annotations

from detectors.client.kubeapi import ApiError
from detectors.wire.resource import Resource

__all__ = [
    "already_exists",
    "bad_request",
    "conflict",
    "expired",
    "invalid",
    "not_found",
    "precondition_failed",
]


def _called(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def not_found(resource: Resource, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{_called(resource)} "{name}" not found')


def already_exists(resource: Resource, name: str) -> ApiError:
    return ApiError(409, "AlreadyExists", f'{_called(resource)} "{name}" already exists')


def conflict(resource: Resource, name: str) -> ApiError:
    return ApiError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {_called(resource)} "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again",
    )


def precondition_failed(resource: Resource, name: str, field: str, wanted: str, found: str) -> ApiError:
    return ApiError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {_called(resource)} "{name}": Precondition failed: {field} in '
        f"precondition: {wanted}, {field} in object meta: {found}",
    )


def invalid(resource: Resource, name: str, why: str) -> ApiError:
    return ApiError(422, "Invalid", f'{resource.kind} "{name}" is invalid: {why}')


def bad_request(why: str) -> ApiError:
    return ApiError(400, "BadRequest", why)


def expired(version: int, oldest: int) -> ApiError:
    return ApiError(410, "Expired", f"too old resource version: {version} ({oldest})")
