"""Reads the templates of repair steps once at the start: the operator's pod templates or the packaged ones,
and the object by which another controller reboots nodes, if one is set.

A wrong template ends the start: otherwise the mistake would be found only when a node is broken.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml

from detectors.service.settings import SettingsError
from detectors.wire.resource import Resource
from recover.api.repair_state import StepKind
from recover.policy.settings import Maintenance as Named
from recover.policy.settings import Repairs, Templates
from recover.repair.outside import Maintenance, Means

__all__ = ["load_means"]

_EXPECTED = "expected a pod template: a mapping with `spec.containers`"
_OBJECT = "expected a mapping with `apiVersion` and `kind`"


class _Metadata(msgspec.Struct):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    namespace: str = ""


class _Variable(msgspec.Struct):
    name: str


class _Container(msgspec.Struct):
    name: str
    env: list[_Variable] | None = None


class _Spec(msgspec.Struct, rename="camel"):
    containers: Annotated[list[_Container], msgspec.Meta(min_length=1)]
    init_containers: list[_Container] | None = None


class _Template(msgspec.Struct):
    """The parts of a template that the controller overrides, which must have this form. The API server checks
    the rest."""

    spec: _Spec
    metadata: _Metadata | None = None


def load_means(settings: Repairs) -> Means:
    """Returns the templates and the maintenance object. Raises SettingsError with the file, the field, the
    value, and what was expected."""
    maintenance = _maintenance(settings.maintenance)
    if maintenance is not None and settings.webhook.url:
        raise SettingsError(
            f"settings repair.webhook.url: value {settings.webhook.url!r}: expected none, because "
            "repair.maintenance is set: only one of the two can reboot a node"
        )
    return Means(_templates(settings.templates), maintenance)


def _maintenance(named: Named) -> Maintenance | None:
    if not named.manifest and not named.plural:
        return None
    where = "settings repair.maintenance"
    if not named.plural or not named.manifest:
        raise SettingsError(
            f"{where}: plural {named.plural!r}, manifest {named.manifest!r}: expected both plural and "
            "manifest, or neither"
        )
    found = _parsed(named.manifest, f"{where}.manifest", _OBJECT)
    match found:
        case {"apiVersion": str(api_version), "kind": str(kind)} if api_version and kind:
            group, _, version = api_version.rpartition("/")
        case _:
            raise SettingsError(f"{where}.manifest: value {found!r:.80}: {_OBJECT}")
    try:
        metadata = msgspec.convert(found.get("metadata") or {}, _Metadata)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{where}.manifest: field metadata: {error}") from error
    resource = Resource(group, version, named.plural, kind, namespaced=bool(metadata.namespace))
    return Maintenance(resource, found, metadata.namespace)


def _templates(settings: Templates) -> dict[StepKind, Mapping[str, Any]]:
    files = {
        StepKind.RESET: settings.reset,
        StepKind.REBOOT: settings.reboot,
        StepKind.VALIDATE: settings.validate,
    }
    return {kind: _template(kind, file) for kind, file in files.items()}


def _template(kind: StepKind, file: str) -> Mapping[str, Any]:
    if not file:
        return _packaged(kind)
    where = f"settings repair.templates.{kind}: {file}"
    try:
        return _checked(Path(file).read_text(encoding="utf-8"), where)
    except OSError as error:
        raise SettingsError(f"{where}: cannot be read: {error.strerror}; expected a YAML file") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{where}: no text: {error.reason}; expected a YAML file") from error


@functools.cache
def _packaged(kind: StepKind) -> Mapping[str, Any]:
    packaged = resources.files("recover.repair").joinpath(f"templates/{kind}.yaml")
    return _checked(packaged.read_text(encoding="utf-8"), f"templates/{kind}.yaml")


def _checked(text: str, where: str) -> Mapping[str, Any]:
    found = _parsed(text, where, _EXPECTED)
    try:
        msgspec.convert(found, _Template)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{where}: value {found!r:.80}: {_EXPECTED}: {error}") from error
    whole: Mapping[str, Any] = found
    if "nodeName" in whole["spec"]:
        raise SettingsError(
            f"{where}: field spec.nodeName: value {whole['spec']['nodeName']!r}: expected no such field; the "
            "controller pins the pod to the node under repair"
        )
    return whole


def _parsed(text: str, where: str, expected: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:  # also raised for a date that does not exist
        said = " ".join(str(error).split())
        raise SettingsError(f"{where}: not valid YAML: {said}; {expected}") from error
