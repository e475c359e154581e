"""Values for the chart, and functions by which tests read Helm's result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.chart.helm import of_kind

DIGEST = "sha256:" + "0123456789abcdef" * 4
EVERYTHING: dict[str, Any] = {
    "mode": "repair",
    "modes": {"pools": {"A100.80G": "observe", "gone": None}, "namespaces": {"team": "recover"}},
    "labels": {"team": "ml-platform"},
    "image": {"registry": "registry.example.com:5000/team", "digest": DIGEST, "pullSecrets": ["pull"]},
    "settings": {
        "controller": {
            "timing": {"settle_s": 5, "settle_max_s": 12.5},
            "budgets": {"quarantined_nodes_max": 20_000_000, "pool_label": 'a"b\\<c>'},
            "accelerators": ["example.com/npu"],
            "repair": {"cool_down_s": 60, "webhook": {"url": "https://machines.example/reboot"}},
        },
        "agent": {"logs": {"stall_min_s": 900}, "nvml": {"enabled": False}},
        "catalogue": '[[xid]]\ncode = 999\n# "quoted"\n',
    },
    "agent": {
        "nodeLabels": [],
        "nodeSelector": {"pool": "gpu"},
        "runtimeClassName": "nvidia",
        "nvmlLibrary": "/run/nvidia/driver/usr/lib64/libnvidia-ml.so.1",
        "corexFolder": "/usr/local/corex",
        "maxUnavailable": 1,
    },
    "repair": {
        "image": "registry.example.com/torch:1",
        "templates": {"reset": {"spec": {"containers": [{"name": "mine", "image": "reset:2"}]}}},
        "webhookSecret": "machines",
    },
    "controller": {
        "replicas": 3,
        "nodeSelector": {"pool": "infra"},
        "tolerations": [{"key": "infra", "operator": "Exists"}],
        "logLevel": "debug",
    },
    "networkPolicy": {"egressPorts": [443, 6443], "apiServerCIDRs": ["10.0.0.0/28", "fd00::1/128"]},
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus", "team": "observability"}},
    "alerts": {"enabled": True},
    "dashboards": {"enabled": True, "annotations": {"grafana_folder": "Rekindle"}},
    "uninstall": {"takeBack": "always"},
}
CLEANS_UP: dict[str, Any] = {"uninstall": {"takeBack": "always"}}
"""Values with which `helm template` prints the Job that cleans up before a removal."""
REBOOT_NODE = """
apiVersion: janitor.example.com/v1
kind: RebootNode
spec: {nodeName: "{node}", reason: "{fault}, {incident}"}
"""
BY_ANOTHER: dict[str, Any] = {
    "mode": "repair",
    "settings": {
        "controller": {"repair": {"maintenance": {"plural": "rebootnodes", "manifest": REBOOT_NODE}}}
    },
}
CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "mode recover": {"mode": "recover"},
    "mode repair": {"mode": "repair"},
    "everything set": EVERYTHING,
    "reboots by another controller": BY_ANOTHER,
    "one controller, no limits": {
        "controller": {"replicas": 1},
        "networkPolicy": {"enabled": False},
        "crds": {"keep": False},
    },
    "definitions alone": {
        "agent": {"enabled": False},
        "controller": {"enabled": False},
        "rbac": {"enabled": False},
        "policies": {"enabled": False},
    },
}


def settings_of(objects: list[dict[str, Any]]) -> str:
    return str(of_kind(objects, "ConfigMap", "rekindle-settings")["data"]["controller.toml"])


def annotations(objects: list[dict[str, Any]], kind: str) -> dict[str, str]:
    return dict(of_kind(objects, kind)["spec"]["template"]["metadata"]["annotations"])


def container(workload: dict[str, Any]) -> dict[str, Any]:
    (only,) = workload["spec"]["template"]["spec"]["containers"]
    return dict(only)


def mounted(workload: dict[str, Any], path: str) -> bool:
    """Whether that file comes from a ConfigMap or Secret."""
    spec = workload["spec"]["template"]["spec"]
    (folder,) = (
        mount["name"]
        for mount in spec["containers"][0]["volumeMounts"]
        if mount["mountPath"] == str(Path(path).parent)
    )
    (volume,) = (volume for volume in spec["volumes"] if volume["name"] == folder)
    items = (volume.get("configMap") or volume["secret"]).get("items")
    return items is None or Path(path).name in {item["path"] for item in items}


def images(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from images(item)
    elif isinstance(value, dict):
        if isinstance(value.get("image"), str):
            yield value["image"]
        for item in value.values():
            yield from images(item)
