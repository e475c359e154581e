"""Decodes the part of an object's metadata that identifies the object and its version. Pure.

These structs are narrow on purpose: each event of a watch is decoded into them before all else, and a
malformed rest hides neither name nor version. `ObjectMeta` (detectors/wire/contract.py) and `OwnedMeta`
(pod_specs.py) have the rest.
"""

from __future__ import annotations

import msgspec

__all__ = ["Identified", "Identity", "Version", "Versioned"]


class Version(msgspec.Struct, rename="camel", frozen=True):
    """The version of an object, or of a bookmark, which has no name."""

    resource_version: str


class Versioned(msgspec.Struct, frozen=True):
    metadata: Version


class Identity(msgspec.Struct, rename="camel", frozen=True):
    name: str
    resource_version: str
    namespace: str = ""


class Identified(msgspec.Struct, frozen=True):
    metadata: Identity
