"""Makes ConfigMaps as the device plugins of Ascend and Iluvatar write them, by their documentation and
code. They were never seen on hardware."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

__all__ = ["config_map", "device_info", "fault", "free_devices", "node_info", "switch_info"]

Levels = Mapping[str, str]


def config_map(
    name: str, data: Mapping[str, str], *, namespace: str = "kube-system", version: int = 1
) -> bytes:
    metadata = {
        "name": name,
        "namespace": namespace,
        "resourceVersion": str(version),
        "labels": {"mx-consumer-cim": "true"},
    }
    return msgspec.json.encode({"metadata": metadata, "data": data})


def fault(
    chip: str,
    level: str,
    codes: Levels | Iterable[str] = ("80E18402",),
    at: datetime | None = None,
    *,
    kind: str = "CardUnhealthy",
) -> dict[str, Any]:
    """Returns one row of `-Fault`. A row without a time is as in the documentation of MindCluster 6.0."""
    levels = codes if isinstance(codes, Mapping) else dict.fromkeys(codes, level)
    row: dict[str, Any] = {
        "fault_type": kind,
        "npu_name": chip,
        "large_model_fault_level": level,
        "fault_level": level,
        "fault_handling": level,
        "fault_code": ",".join(levels),
    }
    if at is not None:
        time_ms = int(at.timestamp() * 1000)
        times = {code: {"fault_time": time_ms, "fault_level": one} for code, one in levels.items()}
        row["fault_time_and_level_map"] = times
    return row


def device_info(
    *faults: dict[str, Any],
    resource: str = "huawei.com/Ascend910",
    free: Iterable[str] = (),
    unhealthy: Iterable[str] = (),
    network: Iterable[str] = (),
    recovering: Iterable[str] = (),
    update_time: int = 1744182144,
    check_code: str | None = None,
) -> str:
    """Returns the text of `DeviceInfoCfg`."""
    told = {
        "DeviceList": {
            resource: ",".join(free),
            f"{resource}-Fault": msgspec.json.encode(faults).decode(),
            f"{resource}-NetworkUnhealthy": ",".join(network),
            f"{resource}-Recovering": ",".join(recovering),
            f"{resource}-Unhealthy": ",".join(unhealthy),
        },
        "UpdateTime": update_time,
    }
    return _checked("DeviceInfo", told, check_code, SuperPodID=-2, ServerIndex=-2)


def switch_info(levels: Levels, at: datetime | None = None, *, status: str = "UnHealthy") -> str:
    """Returns the text of `SwitchInfoCfg`."""
    time_ms = int(at.timestamp() * 1000) if at is not None else 0
    times = {f"{code}_0_3": {"fault_time": time_ms, "fault_level": one} for code, one in levels.items()}
    told = {"FaultCode": [], "FaultLevel": "", "UpdateTime": 0, "NodeStatus": status}
    return msgspec.json.encode({**told, "FaultTimeAndLevelMap": times}).decode()


def node_info(*parts: tuple[str, int, str, list[str]], check_code: str | None = None) -> str:
    """Returns the text of `NodeInfo`, which NodeD writes."""
    found = [
        {"DeviceType": kind, "DeviceId": number, "FaultCode": codes, "FaultLevel": level}
        for kind, number, level, codes in parts
    ]
    return _checked("NodeInfo", {"FaultDevList": found, "NodeStatus": "UnHealthy"}, check_code)


def free_devices(names: Iterable[str]) -> dict[str, str]:
    """Returns the data of Iluvatar's ConfigMap."""
    listed = {"DeviceList": list(names), "UpdateTime": 1744182144}
    known = {"DeviceInfo": {}, "UpdateTime": 1744182144}
    return {
        "DeviceInfoCfg": msgspec.json.encode(known).decode(),
        "DeviceListCfg": msgspec.json.encode(listed).decode(),
    }


def _checked(name: str, told: Any, check_code: str | None, **more: Any) -> str:
    text = msgspec.json.encode(told)
    code = hashlib.sha256(text).hexdigest() if check_code is None else check_code
    rest = "".join(f',"{key}":{value}' for key, value in more.items())
    return f'{{"{name}":{text.decode()}{rest},"CheckCode":"{code}"}}'
