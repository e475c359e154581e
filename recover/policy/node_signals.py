"""What other controllers say of a node: rows of node_signals.toml, and people's own. A wrong row fails the
start. Pure.

model/decode.py asks for each Node that it reads. diagnose/what_counts.py says for what a signal counts.
Whoever may write the labels, taints or status of Nodes can make signals; a tenant may not.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import cache
from importlib import resources

import msgspec

from detectors.service.settings import SettingsError
from detectors.wire.contract import GROUP, Fault, Severity
from detectors.wire.sane import sane
from recover.api.marks import OWN_CONDITION
from recover.k8s.pod_specs import ConditionView, OwnedMeta
from recover.model import NodeSignal, SignalKind, Taint
from recover.policy.settings import SignalRow, Signals

__all__ = ["PackagedRow", "SignalCatalogue", "packaged_signals"]


class PackagedRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    by: str
    source: str
    values: tuple[str, ...] = ()
    fault: Fault = Fault.HOST_HARDWARE


class _Packaged(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    condition: tuple[PackagedRow, ...]
    taint: tuple[PackagedRow, ...]
    label: tuple[PackagedRow, ...]


class _Row(msgspec.Struct, frozen=True):
    by: str
    values: tuple[str, ...]
    severity: Severity
    fault: Fault


@cache
def packaged_signals() -> Mapping[SignalKind, tuple[PackagedRow, ...]]:
    """Raises msgspec.ValidationError naming the row and field."""
    text = resources.files("recover.policy").joinpath("node_signals.toml").read_text(encoding="utf-8")
    found = msgspec.convert(tomllib.loads(text), _Packaged)
    return {
        SignalKind.CONDITION: found.condition,
        SignalKind.TAINT: found.taint,
        SignalKind.LABEL: found.label,
    }


class SignalCatalogue:
    """The packaged rows with people's own. Raises SettingsError for a row about what Rekindle writes."""

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
        """The signals that stand on this Node."""
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
            if value is not None and (not row.values or value in row.values):
                yield _signal(SignalKind.LABEL, name, value, row, meta.labelled_at(name))


def _merged(
    packaged: Iterable[PackagedRow], own: Mapping[str, SignalRow], values: tuple[str, ...] = ()
) -> dict[str, _Row]:
    rows = {one.name: _Row(one.by, one.values, Severity.SUSPECT, one.fault) for one in packaged}
    for name, one in own.items():
        before = rows.get(name, _Row("a row of the settings", values, Severity.SUSPECT, Fault.HOST_HARDWARE))
        rows[name] = _Row(before.by, one.values or before.values, one.severity, one.fault or before.fault)
    return rows


def _signal(
    kind: SignalKind, name: str, value: str, row: _Row, since: datetime | None, reason: str = ""
) -> NodeSignal:
    """Without a time nobody can tell whether a release has answered it: then it is a suspicion at most."""
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
