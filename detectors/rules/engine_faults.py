"""Reads in which part of a GPU an exception occurred: Xid 13 names the TPC, Xid 31 the client of the MMU.
Pure.

detectors/catalog/engine.toml defines when a part that repeats makes the GPU suspect, and
folds/engine_faults.py counts.
Source of the lines: open driver R515 to R595; gpud and NVSentinel (tests).
"""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from msgspec import Meta

from detectors.catalog.tables import Table, UserRows
from detectors.wire.contract import Fault, Remedy, Severity

__all__ = ["ENGINE", "EngineRow", "engine_row", "is_first_place", "place_of"]

_EXCEPTION = re.compile(
    r"Graphics SM (?:Warp|Global) Exception on \(GPC (?P<gpc>[0-9]{1,2}), TPC (?P<tpc>[0-9]{1,2})"
    r"(?:, SM [0-9]{1,2})?\): "
)
_FAULT_HEAD = "MMU Fault: ENGINE GRAPHICS GPC"
_FAULT = re.compile(r"(?P<gpc>[0-9]{1,2}) GPCCLIENT_T1_(?P<client>[0-9]{1,2}) faulted @ ")
_FIRST = re.compile(r"GPC [0-9]+, (?:TPC 0|client T1_[01])")


class EngineRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    code: str
    meaning: str
    fault: Fault
    severity: Severity
    remedy: Remedy = Remedy.NONE
    tenants: Annotated[int, Meta(ge=2, le=16)]
    within_s: Annotated[float, Meta(gt=0, le=30 * 86_400)]
    source: str

    def __post_init__(self) -> None:
        """Raises `ValueError` for a code that no check detects, and for a severity above suspect: programs
        can provoke these exceptions."""
        if self.code != _CODE:
            raise ValueError(f"expected {_CODE}, not {self.code!r} - at `$.code`")
        if self.severity not in (Severity.INFO, Severity.SUSPECT):
            raise ValueError(f"expected info or suspect, not {self.severity!r} - at `$.severity`")


_CODE = "engine-place-repeats"
ENGINE = Table("engine", EngineRow, "engine.toml")


def engine_row(user: UserRows | None = None) -> EngineRow:
    """Returns the last row. Raises `detectors.text.strict.BadValueError` for a bad row of the package's own
    file."""
    return [*ENGINE.packaged(), *(user or UserRows()).of(ENGINE)][-1]


def place_of(code: int, text: str) -> str:
    """Returns the place that a line names. `text` is that of an Xid line, after the process. The place is
    empty if the line names none that can be compared: older drivers leave out the GPC of an MMU fault."""
    if code == 13:
        shown = _EXCEPTION.match(text)
        return f"GPC {int(shown['gpc'])}, TPC {int(shown['tpc'])}" if shown is not None else ""
    if code == 31:
        begin = text.find(_FAULT_HEAD)
        fault = _FAULT.match(text, begin + len(_FAULT_HEAD)) if begin >= 0 else None
        return f"GPC {int(fault['gpc'])}, client T1_{int(fault['client'])}" if fault is not None else ""
    return ""


def is_first_place(place: str) -> bool:
    """Whether a GPU places the first blocks of a grid there: a faulty program with a small grid fails there,
    on any GPU."""
    return _FIRST.fullmatch(place) is not None
