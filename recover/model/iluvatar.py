"""Decodes the ConfigMap of Iluvatar's device plugin into device_reports.py. Pure.

The plugin writes `ix-device-info-cm-<node>` if it works with Volcano. `DeviceListCfg` lists the healthy
devices that no pod uses: a device that is missing there is broken or in use, so the list proves no fault. The
plugin reports the health of a device only to the kubelet, which removes an unhealthy device from the Node's
allocatable.
Source: ix-device-plugin 4.4.0, pkg/kube/kubeops.go, pkg/dpm/device.go, May 2026.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from recover.model.device_reports import Reports

__all__ = ["read"]

_START = "ix-device-info-cm-"
_DEVICES_MAX = 1024
"""Maximum number of devices. A board has several chips, and each may be offered many times."""


class _DeviceListCfg(msgspec.Struct, rename="pascal"):
    device_list: list[str] | None = None


def read(name: str, data: Mapping[str, str]) -> Reports | None:
    """Reads the ConfigMap. Returns None for a ConfigMap of another purpose. Raises ValueError."""
    if not name.startswith(_START):
        return None
    node = name.removeprefix(_START)
    text = data.get("DeviceListCfg", "")
    if not node or not text:
        raise ValueError("data.DeviceListCfg: expected the healthy devices that are free, and it is missing")
    try:
        devices = msgspec.json.decode(text, type=_DeviceListCfg).device_list or []
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"data.DeviceListCfg: {error}") from error
    if len(devices) > _DEVICES_MAX:
        raise ValueError(f"data.DeviceListCfg: {len(devices)} devices: expected {_DEVICES_MAX} at most")
    return Reports({node: ()}, free={node: len(set(devices))})
