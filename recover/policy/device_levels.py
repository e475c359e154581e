"""Turns the reports of other vendors' device plugins into signals of their nodes, by the rows of
device_levels.toml and people's own severities. A wrong row makes the start fail. Pure.

runtime/device_maps.py calls this for each node about which a ConfigMap or the kubelet reports something new.

Only the plugin defines its levels, and the project has not seen them on hardware of its own, so each row is a
suspicion at most. People may raise a level of a chip; the level then acts only if three other sources agree,
and is a suspicion otherwise (docs/decisions/0026-device-plugins-of-other-vendors.md).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import cache
from importlib import resources
from typing import Annotated

import msgspec
from msgspec import Meta

from detectors.service.settings import SettingsError
from detectors.wire.contract import Fault, Severity
from recover.model import Node, NodeSignal, SignalKind
from recover.model.ascend import chip_id
from recover.model.device_reports import Part, ReportedFault, Reports
from recover.policy.settings import DeviceReports, LevelRow

__all__ = ["DeviceLevels", "LevelCatalogue", "dated", "packaged_levels"]

_ASCEND = "huawei.com/"
_BY = {
    Part.CHIP: "the Ascend device plugin",
    Part.SWITCH: "the Ascend device plugin",
    Part.NODE: "NodeD of MindCluster",
}
_CODES_TOLD = 4
_RANK = (Severity.INFO, Severity.SUSPECT, Severity.PENDING, Severity.FATAL)
_SERIOUS = _RANK[2:]


class PackagedLevel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    part: Part
    name: str
    severity: Severity
    fault: Fault
    meaning: str
    source: str
    settles_s: Annotated[float, Meta(ge=0)] = 0.0


class PackagedResource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    severity: Severity
    fault: Fault
    meaning: str
    source: str
    settles_s: Annotated[float, Meta(ge=0)] = 0.0


class CodeRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    code: str
    fault: Fault
    meaning: str


class DeviceLevels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    level: tuple[PackagedLevel, ...]
    resource: tuple[PackagedResource, ...]
    code: tuple[CodeRow, ...]


@cache
def packaged_levels() -> DeviceLevels:
    """Reads the packaged rows. Raises msgspec.ValidationError, which names the row and field."""
    text = resources.files("recover.policy").joinpath("device_levels.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), DeviceLevels)


class LevelCatalogue:
    """The packaged rows with people's own severities. Raises SettingsError for a level that has no row."""

    def __init__(self, own: DeviceReports) -> None:
        packaged = packaged_levels()
        self._codes = {row.code: row for row in packaged.code}
        self._levels = {(row.part, row.name): row for row in packaged.level}
        self._resources = packaged.resource if own.iluvatar else ()
        for part, rows in ((Part.CHIP, own.chip), (Part.SWITCH, own.switch), (Part.NODE, own.node)):
            for name, row in rows.items():
                self._levels[part, name] = self._changed(part, name, row)

    def _changed(self, part: Part, name: str, own: LevelRow) -> PackagedLevel:
        before = self._levels.get((part, name))
        if before is None:
            known = ", ".join(level for of, level in self._levels if of is part)
            raise SettingsError(
                f"settings signals.reports.{part}: {name!r}: expected one of the levels {known}"
            )
        return msgspec.structs.replace(before, severity=own.severity, fault=own.fault or before.fault)

    def read(self, node: Node, said: Iterable[Reports]) -> tuple[NodeSignal, ...]:
        """Returns the signals of the node from these ConfigMaps, and from the devices that its kubelet
        offers. ClusterD repeats the reports of the device plugin: of two signals with one place the stronger
        remains."""
        said = tuple(said)
        faults = [fault for one in said for fault in one.faults.get(node.name, ())]
        free = next((one.free[node.name] for one in said if node.name in one.free), None)
        found: dict[str, NodeSignal] = {}
        for one in (*self._of_faults(node, faults), *self._of_kubelet(node, free)):
            before = found.get(one.place)
            if before is None or _RANK.index(one.severity) > _RANK.index(before.severity):
                found[one.place] = one
        return tuple(found[place] for place in sorted(found))

    def _of_faults(self, node: Node, faults: Iterable[ReportedFault]) -> Iterator[NodeSignal]:
        is_short = any(
            name.startswith(_ASCEND) and node.allocatable.get(name, 0) < count
            for name, count in node.capacity.items()
        )
        for one in faults:
            row = self._levels.get((one.part, one.level))
            known = [self._codes[code] for code in one.codes if code in self._codes]
            lacks = _lacks(one, is_known=bool(known), is_short=is_short)
            if row is None or one.is_resetting:
                severity = Severity.INFO
            else:
                severity = Severity.SUSPECT if lacks and row.severity in _SERIOUS else row.severity
            is_held_back = row is not None and row.severity in _SERIOUS and severity is Severity.SUSPECT
            yield NodeSignal(
                kind=SignalKind.REPORT,
                name=one.level if one.part is Part.CHIP else f"{one.part}-{one.level}",
                value=one.device,
                by=_BY[one.part],
                severity=severity,
                fault=_fault(row, known),
                reason=_reason(one, row, self._codes, lacks if is_held_back else []),
                since=one.since,
                device=chip_id(one.device) or "" if one.part is Part.CHIP else "",
                settles_s=row.settles_s if row is not None else 0.0,
            )

    def _of_kubelet(self, node: Node, free: int | None) -> Iterator[NodeSignal]:
        """Yields a signal if the kubelet does not offer some devices of a resource. There is no signal if the
        kubelet offers none at all, since a plugin or the kubelet is then starting, and none if the plugin
        lists all devices as free and healthy, since the kubelet then only lags."""
        for row in self._resources:
            whole, left = node.capacity.get(row.name, 0), node.allocatable.get(row.name, 0)
            if not 0 < left < whole or (free is not None and free >= whole):
                continue
            yield NodeSignal(
                kind=SignalKind.REPORT,
                name=row.name,
                value="",
                by="the kubelet, of Iluvatar's device plugin",
                severity=row.severity,
                fault=row.fault,
                reason=f"{left} of {whole} are allocatable; {row.meaning}",
                settles_s=row.settles_s,
            )


def _lacks(one: ReportedFault, *, is_known: bool, is_short: bool) -> list[str]:
    """Returns the conditions that the report does not fulfil, and without which a level that people have
    raised does not act."""
    is_chip = one.part is Part.CHIP
    needs = (
        (one.since is not None, "the report does not say when the fault began"),
        (not one.is_public, "not the driver but another program reported the fault"),
        (is_known or not is_chip, "none of its fault codes is known"),
        (one.is_listed or not is_chip, "the plugin does not list the chip as unhealthy"),
        (is_short or not is_chip, "all chips of the node are allocatable"),
    )
    return [words for is_met, words in needs if not is_met]


def _fault(row: PackagedLevel | None, known: list[CodeRow]) -> Fault:
    if row is None:
        return Fault.UNKNOWN
    is_own = row.part is Part.CHIP and row.severity is not Severity.INFO
    return known[0].fault if known and is_own else row.fault


def _reason(
    one: ReportedFault, row: PackagedLevel | None, codes: Mapping[str, CodeRow], lacks: list[str]
) -> str:
    words = [row.meaning if row is not None else "a level that Rekindle does not know"]
    if one.is_resetting:
        words.append("a chip is being reset")
    if lacks:
        words.append(f"your settings make this more than a suspicion, but {' and '.join(lacks)}")
    told = sorted(one.codes, key=lambda code: (code not in codes, code))[:_CODES_TOLD]
    words += [f"{code}: {codes[code].meaning}" if code in codes else f"code {code}" for code in told]
    if len(one.codes) > len(told):
        words.append(f"and {len(one.codes) - len(told)} more codes")
    return "; ".join(words)


def dated(one: NodeSignal, seen: datetime, now: datetime) -> NodeSignal:
    """Dates a signal. A signal without a time begins when it was first `seen`, and is a suspicion at most
    (`_lacks`). A time in the future comes from a clock that runs ahead, and is replaced by `seen`, too."""
    is_told = one.since is not None and one.since <= now
    return one if is_told else msgspec.structs.replace(one, since=seen)
