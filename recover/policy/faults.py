"""Reads from faults.toml what the controller does about each fault class. A wrong row makes the start
fail.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from importlib import resources

import msgspec

from detectors.wire.contract import Family, Fault, Severity

__all__ = ["Ladder", "Policy", "QuarantineLevel", "policies", "quarantine_level"]


class QuarantineLevel(StrEnum):
    CORDON = "cordon"
    PREFER = "prefer"
    NONE = "none"


class Ladder(StrEnum):
    """The step with which the repair of a quarantined node begins."""

    RESET = "reset"
    REBOOT = "reboot"
    PERSON = "person"


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    quarantine: QuarantineLevel
    repair: Ladder
    why: str
    required: tuple[Family, ...] = ()


@cache
def policies() -> Mapping[Fault, Policy]:
    """Returns one policy for each fault class. Raises msgspec.ValidationError, which names the row and
    field."""
    text = resources.files("recover.policy").joinpath("faults.toml").read_text(encoding="utf-8")
    rows = msgspec.convert(tomllib.loads(text), dict[Fault, Policy])
    missing = set(Fault) - set(rows)
    assert not missing, f"faults.toml lacks {sorted(missing)}"
    return rows


def quarantine_level(fault: Fault, severity: Severity, *, drain: bool = False) -> QuarantineLevel:
    """Returns the level of quarantine for a confirmed fault of this severity.

    `drain`: the vendor says that no new work shall start on the node, although the present work may continue.
    """
    if severity is Severity.SUSPECT:
        return QuarantineLevel.NONE
    level = policies()[fault].quarantine
    if severity is Severity.PENDING and not drain and level is QuarantineLevel.CORDON:
        return QuarantineLevel.PREFER
    return level
