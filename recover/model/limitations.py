"""Reads the ConfigMaps `cf-crl-<platform's name>-<key's name>`, in which Alauda's platform declares resources
of devices. Pure.

runtime/resource_names.py reads them once, when the controller starts. Several keys of one group are one
family of devices: neither `vcuda-core` nor `vcuda-memory` counts devices as such, and an amount of memory or
cores never does. So only a key that counts devices becomes an accelerator resource.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from detectors.wire.contract import ObjectMeta

__all__ = ["LABELS", "device_resource"]

LABELS = "features.alauda.io/type=CustomResourceLimitation"
_ENABLED = "features.alauda.io/enabled"
_START = "cf-crl-"
_NAME = re.compile(
    r"(?=.{1,253}/)[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/(?=.{1,63}$)[A-Za-z0-9](?:[-\w.]*[A-Za-z0-9])?"
)
_AMOUNT = re.compile(r".*(?:mem|memory|core|cores|percentage)", re.IGNORECASE)
_WORDS: Mapping[str, tuple[str, ...]] = {
    "limits": ("disabled", "required", "optional"),
    "requests": ("disabled", "required", "fromLimits"),
}


class _ConfigMap(msgspec.Struct):
    metadata: ObjectMeta
    data: dict[str, str] = {}


def device_resource(raw: bytes) -> str:
    """Returns the resource that counts devices. Returns an empty string for a resource that is not enabled,
    that pods may not request, or that counts memory or cores. Raises ValueError, which names the key of
    `data`."""
    wire = msgspec.json.decode(raw, type=_ConfigMap)
    name, data = wire.metadata.name, wire.data
    if not name.startswith(_START) or wire.metadata.labels.get(_ENABLED) != "true":
        return ""
    key = data.get("key", "")
    if not _NAME.fullmatch(key) or "kubernetes.io/" in key:
        raise ValueError(f"{name}: data.key: {key[:80]!r}: expected a resource such as huawei.com/Ascend910")
    for field, words in _WORDS.items():
        if data.get(field, words[-1]) not in words:
            told = data[field][:40]
            raise ValueError(f"{name}: data.{field}: {told!r}: expected one of {', '.join(words)}")
    return "" if data.get("limits") == "disabled" or _AMOUNT.fullmatch(key) else key
