"""Decodes the ConfigMaps of MindCluster (Huawei Ascend) into device_reports.py. Pure.

    mindx-dl-deviceinfo-<node>   kube-system   the device plugin: chips, and the switches between them
    mindx-dl-nodeinfo-<node>     mindx-dl      NodeD: the server's other parts; only while something is wrong
    cluster-info-device-<n>, cluster-info-switch-<n>, cluster-info-node-<n>
                                 mindx-dl      ClusterD: the same, for up to 1,000 nodes each
                                               (switches: 2,000)

Content that differs from the documentation raises ValueError, which names the key of `data`, and the
ConfigMap counts as not read.
Source: MindCluster, docs/en/scheduling/api (ascend_device_plugin.md, noded.md,
clusterd/00_cluster_resources.md) and component/ascend-device-plugin/pkg/common/proto.go, August 2026.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from recover.model.device_reports import LISTED, NETWORK_LISTED, Part, ReportedFault, Reports, told_time

__all__ = ["chip_id", "read"]

T = TypeVar("T")

_DEVICES, _SWITCHES, _NODES = "mindx-dl-deviceinfo-", "mindx-dl-switchinfo-", "mindx-dl-nodeinfo-"
_ALL_DEVICES, _ALL_SWITCHES, _ALL_NODES = "cluster-info-device-", "cluster-info-switch-", "cluster-info-node-"
_ROWS_MAX = 256
"""Maximum number of rows. A server has 16 chips at most, and the plugin writes two rows for a chip."""
_CODES_MAX = 256
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]{0,39}")
_CODE = re.compile(r"[0-9A-Za-z]{1,16}|\[[0-9A-Za-z,]{1,48}\]")
_TEMPLATE = r"-[0-9]{1,3}c(?:\.[0-9a-z]{1,8}){0,3}-[0-9]{1,6}"
_CHIP = re.compile(rf"([A-Za-z][A-Za-z0-9]{{0,15}})(?:{_TEMPLATE})?-([0-9]{{1,4}})")
"""Name of a chip, or of a virtual chip: family, template, the virtual chip's number, and the chip's
number."""
_HEALTHY = "Healthy"
_NO_LEVELS = frozenset({"", "NormalNPU", "NormalNetwork"})


class _DeviceInfo(msgspec.Struct, rename="pascal"):
    device_list: dict[str, str]


class _DeviceInfoCfg(msgspec.Struct, rename="pascal"):
    device_info: msgspec.Raw
    check_code: str = ""


class _NodeInfoCfg(msgspec.Struct, rename="pascal"):
    node_info: msgspec.Raw
    check_code: str = ""


class _Level(msgspec.Struct):
    fault_time: int = 0
    fault_level: str = ""


class _Fault(msgspec.Struct):
    fault_type: str = ""
    npu_name: str = ""
    fault_handling: str = ""
    fault_level: str = ""
    large_model_fault_level: str = ""
    fault_code: str = ""
    levels: dict[str, _Level] = msgspec.field(name="fault_time_and_level_map", default_factory=dict)

    @property
    def level(self) -> str:
        """Returns the level. The three fields mean the same, and the documentation recommends the first."""
        return self.fault_handling or self.fault_level or self.large_model_fault_level


class _SwitchInfo(msgspec.Struct, rename="pascal"):
    node_status: str = _HEALTHY
    fault_time_and_level_map: dict[str, _Level] = {}


class _Part(msgspec.Struct, rename="pascal"):
    device_type: str
    device_id: int
    fault_level: str
    fault_code: list[str] | str = []


class _NodeInfo(msgspec.Struct, rename="pascal"):
    fault_dev_list: list[_Part] | None = None


def read(name: str, data: Mapping[str, str]) -> Reports | None:
    """Reads a ConfigMap. Returns None for a ConfigMap of another purpose. Raises ValueError."""
    if name.startswith(_DEVICES):
        return Reports({_node(name, _DEVICES): _merged(_of_plugin(data))})
    if name.startswith(_NODES):
        return Reports({_node(name, _NODES): _merged(_in("NodeInfo", data, _of_noded))})
    for start, entry, parse in (
        (_ALL_DEVICES, _DEVICES, _chips),
        (_ALL_SWITCHES, _SWITCHES, _switches),
        (_ALL_NODES, _NODES, _parts),
    ):
        if name.startswith(start):
            return _of_many(data, entry, parse)
    return None


def chip_id(name: str) -> str | None:
    """Returns a chip's name by its physical number alone, which is unique in its server: `npu-3`. None if the
    name is not a chip's. A plugin can be configured to name its chips differently in different places."""
    found = _CHIP.fullmatch(name)
    return f"npu-{int(found[2])}" if found is not None else None


def _chip_of(name: str) -> str | None:
    """Returns the chip's name by its physical number, also for a virtual chip: `Ascend910-2c-100-3` becomes
    `Ascend910-3`. None if the name is not a chip's."""
    found = _CHIP.fullmatch(name)
    return f"{found[1]}-{int(found[2])}" if found is not None else None


def _node(name: str, start: str) -> str:
    node = name.removeprefix(start).strip()
    if not node:
        raise ValueError(f"name {name!r}: expected {start}<node>")
    return node


def _in(key: str, data: Mapping[str, str], parse: Callable[[bytes], Iterable[T]]) -> list[T]:
    """Parses `data[key]`. Raises ValueError."""
    if key not in data:
        raise ValueError(f"data.{key}: expected, and it is missing")
    try:
        return list(parse(data[key].encode()))
    except ValueError as error:
        raise ValueError(f"data.{key}: {error}") from error


def _of_plugin(data: Mapping[str, str]) -> Iterator[ReportedFault]:
    chips = _in("DeviceInfoCfg", data, _of_devices)
    yield from chips
    if data.get("SwitchInfoCfg"):
        yield from _in("SwitchInfoCfg", data, lambda text: _switches(_decoded(text, _SwitchInfo)))
    if data.get("ManuallySeparateNPU"):
        for chip in _in("ManuallySeparateNPU", data, lambda text: _list(text.decode())):
            yield ReportedFault(Part.CHIP, chip, "ManuallySeparateNPU")


def _of_devices(text: bytes) -> Iterator[ReportedFault]:
    told = _decoded(text, _DeviceInfoCfg)
    _check(told.device_info, told.check_code)
    return _chips(_decoded(bytes(told.device_info), _DeviceInfo))


def _of_noded(text: bytes) -> Iterator[ReportedFault]:
    told = _decoded(text, _NodeInfoCfg)
    _check(told.node_info, told.check_code)
    return _parts(_decoded(bytes(told.node_info), _NodeInfo))


def _check(told: msgspec.Raw, check_code: str) -> None:
    """Checks the report as MindCluster's own readers do: `check_code` is the SHA-256 of the object's text."""
    if check_code and hashlib.sha256(bytes(told)).hexdigest() != check_code.lower():
        raise ValueError(
            "CheckCode: expected the SHA-256 of the other fields of the report; the text was changed or cut"
        )


def _of_many(data: Mapping[str, str], start: str, parse: Callable[[Any], Iterator[ReportedFault]]) -> Reports:
    """Reads a ConfigMap about many nodes. An entry that cannot be read hides no other. Raises ValueError if
    the entries cannot be found."""
    kinds: dict[str, Any] = {_DEVICES: _DeviceInfo, _SWITCHES: _SwitchInfo, _NODES: _NodeInfo}
    faults: dict[str, tuple[ReportedFault, ...]] = {}
    unread: dict[str, str] = {}
    for key in data:
        for name, entry in _in(key, data, lambda text: _decoded(text, dict[str, msgspec.Raw]).items()):
            if not name.startswith(start):
                continue  # the documentation itself shows one kind of entry among another
            node = _node(name, start)
            try:
                faults[node] = _merged(parse(_decoded(bytes(entry), kinds[start])))
            except ValueError as error:
                unread[node] = f"data.{key}, {name}: {error}"
    return Reports(faults, unread=unread)


def _decoded(text: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _chips(told: _DeviceInfo) -> Iterator[ReportedFault]:
    lists: dict[str, set[str]] = {NETWORK_LISTED: set(), LISTED: set(), "Recovering": set()}
    rows: list[_Fault] = []
    for key, text in told.device_list.items():
        _, _, what = key.rpartition("-")
        if what == "Fault" and text:
            rows += _rows(key, text)
        elif what in lists:
            lists[what].update(_list(text))
    resetting, named = lists["Recovering"], set[str]()
    for number, row in enumerate(rows):
        if row.level in _NO_LEVELS:
            continue
        chip = _chip(row, f"Fault[{number}].npu_name")
        codes, since = _codes(row, f"Fault[{number}]")
        named.add(chip)
        yield ReportedFault(
            Part.CHIP if chip else Part.NODE,
            chip,
            _word(row.level, f"Fault[{number}].fault_level"),
            codes,
            told_time(since),
            is_listed=chip in lists[LISTED],
            is_resetting=chip in resetting,
            is_public=row.fault_type == "PublicFault",
        )
    for level in (LISTED, NETWORK_LISTED):
        for chip in sorted(lists[level] - named):
            listed = level == LISTED
            yield ReportedFault(Part.CHIP, chip, level, is_listed=listed, is_resetting=chip in resetting)


def _rows(key: str, text: str) -> list[_Fault]:
    try:
        rows = _decoded(text.encode(), list[_Fault]) if text.strip() != "null" else []
    except ValueError as error:
        raise ValueError(f"DeviceList[{key}]: {error}") from error
    if len(rows) > _ROWS_MAX:
        raise ValueError(f"DeviceList[{key}]: {len(rows)} faults: expected {_ROWS_MAX} at most")
    return rows


def _chip(row: _Fault, where: str) -> str:
    """Returns the row's chip, or an empty string if the fault is the node's."""
    if not row.npu_name:
        return ""
    chip = _chip_of(row.npu_name)
    if chip is None:
        raise ValueError(f"{where}: {row.npu_name[:60]!r}: expected a chip such as Ascend910-3")
    return chip


def _codes(row: _Fault, where: str) -> tuple[tuple[str, ...], int]:
    """Returns the codes of the row's level, and when the latest of them appeared. The plugin may raise the
    level because of the number of faults. If no code has this level, all codes of the row are returned."""
    mine = {code: one for code, one in row.levels.items() if one.fault_level == row.level}
    told = mine or row.levels
    names = list(told) or [code for code in row.fault_code.split(",") if code.strip()]
    if len(names) > _CODES_MAX:
        raise ValueError(f"{where}: {len(names)} fault codes: expected {_CODES_MAX} at most")
    codes = tuple(sorted({_code(name, f"{where}.fault_code") for name in names}))
    return codes, max((one.fault_time for one in told.values()), default=0)


def _switches(told: _SwitchInfo) -> Iterator[ReportedFault]:
    """Yields the faults of the switches. While chips are reset, the plugin reports the node as healthy,
    whatever the switches report."""
    if len(told.fault_time_and_level_map) > _ROWS_MAX:
        many = len(told.fault_time_and_level_map)
        raise ValueError(f"FaultTimeAndLevelMap: {many} faults: expected {_ROWS_MAX} at most")
    for key, one in told.fault_time_and_level_map.items():
        if one.fault_level in _NO_LEVELS:
            continue
        code = _code(key.rsplit("_", 2)[0], "FaultTimeAndLevelMap")
        level = _word(one.fault_level, f"FaultTimeAndLevelMap[{key[:60]}].fault_level")
        calm = told.node_status == _HEALTHY
        since = told_time(one.fault_time)
        yield ReportedFault(Part.SWITCH, "", level, (code,), since, is_resetting=calm)


def _parts(told: _NodeInfo) -> Iterator[ReportedFault]:
    found = told.fault_dev_list or []
    if len(found) > _ROWS_MAX:
        raise ValueError(f"FaultDevList: {len(found)} faults: expected {_ROWS_MAX} at most")
    for number, one in enumerate(found):
        where = f"FaultDevList[{number}]"
        name = f"{_word(one.device_type.replace(' ', ''), f'{where}.DeviceType')}-{one.device_id % 100_000}"
        told_codes = one.fault_code.split(",") if isinstance(one.fault_code, str) else one.fault_code
        if len(told_codes) > _CODES_MAX:
            raise ValueError(f"{where}: {len(told_codes)} fault codes: expected {_CODES_MAX} at most")
        codes = tuple(sorted({_code(code, f"{where}.FaultCode") for code in told_codes if code.strip()}))
        yield ReportedFault(Part.NODE, name, _word(one.fault_level, f"{where}.FaultLevel"), codes)


def _merged(faults: Iterable[ReportedFault]) -> tuple[ReportedFault, ...]:
    """Merges the faults into one for each device and level, with all codes and the latest time."""
    found: dict[tuple[Part, str, str], ReportedFault] = {}
    for one in faults:
        place = (one.part, one.device, one.level)
        before = found.get(place)
        if before is None:
            found[place] = one
            continue
        times = [at for at in (before.since, one.since) if at is not None]
        found[place] = msgspec.structs.replace(
            before,
            codes=tuple(sorted({*before.codes, *one.codes})),
            since=max(times, default=None),
            is_listed=before.is_listed or one.is_listed,
            is_resetting=before.is_resetting and one.is_resetting,
            is_public=before.is_public and one.is_public,
        )
    return tuple(found[place] for place in sorted(found))


def _list(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if len(names) > _ROWS_MAX:
        raise ValueError(f"{len(names)} chips: expected {_ROWS_MAX} at most")
    chips = []
    for name in names:
        chip = _chip_of(name)
        if chip is None:
            raise ValueError(f"{name[:60]!r}: expected a chip such as Ascend910-3")
        chips.append(chip)
    return chips


def _word(text: str, where: str) -> str:
    if not _WORD.fullmatch(text):
        raise ValueError(f"{where}: {text[:60]!r}: expected a word of letters and digits")
    return text


def _code(text: str, where: str) -> str:
    code = text.strip()
    if not _CODE.fullmatch(code):
        raise ValueError(f"{where}: {code[:60]!r}: expected a fault code such as 80E18402")
    return code.upper() if code[0] != "[" else code
