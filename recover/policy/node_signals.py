"""Turns statements of other controllers about a node into signals, by the rows of node_signals.toml and
people's own. A wrong row makes the start fail. Pure.

model/decode.py calls this for each Node that it reads. diagnose/what_counts.py decides for what a signal
counts. Anybody who may write the labels, taints or status of Nodes can create signals; a tenant may not.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from typing import Annotated

import msgspec
from msgspec import Meta

from detectors.service.settings import SettingsError
from detectors.wire.contract import GROUP, Fault, Severity
from detectors.wire.sane import sane
from recover.api.marks import OWN_CONDITION
from recover.k8s.pod_specs import ConditionView, OwnedMeta
from recover.model import NodeSignal, SignalKind, Taint
from recover.policy.settings import SignalRow, Signals

__all__ = ["LeftOut", "PackagedRow", "SignalCatalogue", "left_out", "packaged_signals"]

Names = Annotated[tuple[str, ...], Meta(min_length=1)]
AheadS = Annotated[float, Meta(ge=0)]
_TIME_CHARS_MAX = 12


class _Rows(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows that differ only in their names."""

    names: Names
    by: str
    source: str
    values: tuple[str, ...] = ()
    fault: Fault = Fault.HOST_HARDWARE


class _Labels(_Rows, frozen=True, forbid_unknown_fields=True):
    ahead_s: AheadS = 0.0


class PackagedRow(msgspec.Struct, frozen=True):
    name: str
    by: str
    source: str
    values: tuple[str, ...]
    fault: Fault
    ahead_s: float = 0.0
    """Seconds before the announced time (the label's value) at which the signal begins. Zero if the value is
    no time."""


class LeftOut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Signals of the same projects that Rekindle does not read, and why."""

    kind: SignalKind
    names: Names
    by: str
    why: str
    source: str


class _Packaged(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    condition: tuple[_Rows, ...]
    taint: tuple[_Rows, ...]
    label: tuple[_Labels, ...]
    left_out: tuple[LeftOut, ...]


class _Row(msgspec.Struct, frozen=True):
    by: str
    values: tuple[str, ...]
    severity: Severity
    fault: Fault
    ahead_s: float = 0.0


@cache
def _table() -> _Packaged:
    """Reads the packaged rows. Raises msgspec.ValidationError, which names the row and field."""
    text = resources.files("recover.policy").joinpath("node_signals.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), _Packaged)


@cache
def packaged_signals() -> Mapping[SignalKind, tuple[PackagedRow, ...]]:
    """Returns the packaged rows by kind. Raises msgspec.ValidationError, which names the row and field."""
    found = _table()
    return {
        SignalKind.CONDITION: _each(found.condition),
        SignalKind.TAINT: _each(found.taint),
        SignalKind.LABEL: _each(found.label),
    }


def left_out() -> tuple[LeftOut, ...]:
    """Returns the signals that Rekindle does not read. Raises msgspec.ValidationError, which names the row
    and field."""
    return _table().left_out


def _each(rows: Iterable[_Rows]) -> tuple[PackagedRow, ...]:
    return tuple(
        PackagedRow(
            name=name,
            by=one.by,
            source=one.source,
            values=one.values,
            fault=one.fault,
            ahead_s=one.ahead_s if isinstance(one, _Labels) else 0.0,
        )
        for one in rows
        for name in one.names
    )


class SignalCatalogue:
    """The packaged rows with people's own. Raises SettingsError for a row about something that Rekindle
    writes."""

    def __init__(self, own: Signals) -> None:
        for name in (*own.conditions, *own.taints, *own.labels):
            if name == OWN_CONDITION or name.partition("/")[0].endswith(GROUP):
                raise SettingsError(
                    f"settings signals: {name}: expected a signal that others write; Rekindle never "
                    "reads what it writes itself"
                )
        packaged = packaged_signals()
        self._conditions = _merged(packaged[SignalKind.CONDITION], own.conditions, ("True",))
        self._taints = _merged(packaged[SignalKind.TAINT], own.taints)
        self._labels = _merged(packaged[SignalKind.LABEL], own.labels)

    def read(
        self, meta: OwnedMeta, taints: Iterable[Taint], conditions: Iterable[ConditionView]
    ) -> tuple[NodeSignal, ...]:
        """Returns the signals on this Node."""
        found = (*self._of_conditions(conditions), *self._of_taints(taints), *self._of_labels(meta))
        return tuple(sorted(found, key=lambda signal: (signal.code, signal.value))) if found else ()

    def _of_conditions(self, conditions: Iterable[ConditionView]) -> Iterator[NodeSignal]:
        for one in conditions:
            row = self._conditions.get(one.type)
            if row is not None and one.status in row.values:
                since = sane(one.changed_at)
                yield _signal(SignalKind.CONDITION, one.type, one.status, row, since, reason=one.reason)

    def _of_taints(self, taints: Iterable[Taint]) -> Iterator[NodeSignal]:
        for one in taints:
            row = self._taints.get(one.key)
            if row is not None and (not row.values or one.value in row.values):
                yield _signal(SignalKind.TAINT, one.key, one.value, row, _time(one.time_added))

    def _of_labels(self, meta: OwnedMeta) -> Iterator[NodeSignal]:
        for name, row in self._labels.items():
            value = meta.labels.get(name)
            if value is None or (row.values and value not in row.values):
                continue
            if not row.ahead_s:
                yield _signal(SignalKind.LABEL, name, value, row, meta.labelled_at(name))
            elif (at := _unix_time(value)) is not None:
                begins = at - timedelta(seconds=row.ahead_s)
                told = _signal(SignalKind.LABEL, name, value, row, begins)
                yield msgspec.structs.replace(told, is_announced=True)


def _merged(
    packaged: Iterable[PackagedRow], own: Mapping[str, SignalRow], values: tuple[str, ...] = ()
) -> dict[str, _Row]:
    rows = {one.name: _Row(one.by, one.values, Severity.SUSPECT, one.fault, one.ahead_s) for one in packaged}
    for name, one in own.items():
        before = rows.get(name, _Row("a row of the settings", values, Severity.SUSPECT, Fault.HOST_HARDWARE))
        ahead_s = 0.0 if one.values else before.ahead_s
        rows[name] = _Row(
            before.by, one.values or before.values, one.severity, one.fault or before.fault, ahead_s
        )
    return rows


def _signal(
    kind: SignalKind, name: str, value: str, row: _Row, since: datetime | None, reason: str = ""
) -> NodeSignal:
    """Returns the signal. Without a time it is a suspicion at most, since nobody can tell whether the end of
    a quarantine has answered it."""
    is_more = row.severity not in (Severity.INFO, Severity.SUSPECT)
    severity = Severity.SUSPECT if is_more and since is None else row.severity
    return NodeSignal(
        kind=kind,
        name=name,
        value=value,
        by=row.by,
        severity=severity,
        fault=row.fault,
        reason=reason,
        since=since,
    )


def _time(text: str) -> datetime | None:
    try:
        return sane(datetime.fromisoformat(text)) if text else None
    except ValueError:
        return None


def _unix_time(text: str) -> datetime | None:
    if not text.isascii() or not text.isdigit() or len(text) > _TIME_CHARS_MAX:
        return None
    try:
        return sane(datetime.fromtimestamp(int(text), UTC))
    except (OverflowError, ValueError):
        return None
