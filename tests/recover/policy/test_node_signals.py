"""Tests signals of other controllers, read from Nodes as the controllers' own documentation shows them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from detectors.service.settings import SettingsError
from detectors.wire.contract import Fault, Severity
from recover.api.marks import OWN_CONDITION
from recover.model import NodeSignal, SignalKind, decode
from recover.policy.node_signals import SignalCatalogue, packaged_signals
from recover.policy.settings import SignalRow, Signals

SINCE = "2026-11-21T10:00:00Z"


def condition(type_: str, status: str, reason: str = "") -> dict[str, Any]:
    at = {"lastTransitionTime": SINCE, "lastHeartbeatTime": SINCE}
    return {"type": type_, "status": status, "reason": reason, "message": "any", **at}


def read(
    *conditions: dict[str, Any],
    taints: list[dict[str, str]] | None = None,
    labels: dict[str, str] | None = None,
    managed: list[dict[str, Any]] | None = None,
    own: Signals | None = None,
) -> tuple[NodeSignal, ...]:
    """Returns the signals of a Node with these conditions, taints and labels."""
    body = {
        "metadata": {"name": "n1", "labels": labels or {}, "managedFields": managed or []},
        "spec": {"taints": taints or []},
        "status": {"conditions": list(conditions)},
    }
    return decode.node(msgspec.json.encode(body), (), signals=SignalCatalogue(own or Signals()).read).signals


HEALTHY = [
    condition("KernelDeadlock", "False", "KernelHasNoDeadlock"),
    condition("ReadonlyFilesystem", "False", "FilesystemIsNotReadOnly"),
    condition("GpuThermalWatch", "False", "GpuThermalWatchIsHealthy"),
    condition("AcceleratedHardwareReady", "True", "NvidiaAcceleratedHardwareIsReady"),
    condition("KernelReady", "True", "KernelIsReady"),
    condition("IBLinkFlapping", "False", "NoIBLinkFlapping"),
    condition("VMEventScheduled", "False", "NoVMEventScheduled"),
    condition("NebiusGPUError", "False"),
    condition("Ready", "True", "KubeletReady"),
    condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
]
"""Conditions by which each of these controllers reports that all is well."""


def test_a_node_of_which_every_controller_says_that_it_is_well_has_no_signal() -> None:
    labels = {
        "autopilot.ibm.com/gpuhealth": "PASS",
        "nvidia.com/mig.config.state": "success",
        "nvidia.com/gpu-driver-upgrade-state": "upgrade-done",
        "cloud.google.com/gke-nodepool": "h100",
    }

    assert read(*HEALTHY, labels=labels, taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]) == ()


@pytest.mark.parametrize(
    ("one", "by"),
    [
        (condition("KernelDeadlock", "True", "DockerHung"), "node-problem-detector"),
        (condition("ReadonlyFilesystem", "True", "FilesystemIsReadOnly"), "node-problem-detector"),
        (condition("XfsShutdown", "True", "XfsHasShutdown"), "node-problem-detector"),
        (condition("CperHardwareErrorFatal", "True", "CperHardwareErrorFatal"), "node-problem-detector"),
        (condition("NTPProblem", "True", "NTPIsDown"), "node-problem-detector"),
        (condition("GpuMemWatch", "True", "GpuMemWatchIsNotHealthy"), "NVSentinel"),
        (condition("SysLogsXIDError", "True"), "NVSentinel"),
        (condition("AcceleratedHardwareReady", "False", "NvidiaXID79Error"), "EKS"),
        (condition("NetworkingReady", "False", "InterfaceNotUp"), "EKS"),
        (condition("GPUMissing", "True", "GPUMissing"), "AKS"),
        (condition("IBLinkFlapping", "True", "IBLinkFlapping"), "AKS"),
        (condition("NvidiaXID79Error", "True"), "ACK"),
        (condition("NebiusGPUError", "True", "GPUHealthCheckFailedMK8S"), "Nebius"),
    ],
)
def test_a_condition_by_which_a_controller_reports_trouble_makes_the_node_suspect(
    one: dict[str, Any], by: str
) -> None:
    (signal,) = read(*(c for c in HEALTHY if c["type"] != one["type"]), one)

    assert (signal.kind, signal.name, signal.value) == (SignalKind.CONDITION, one["type"], one["status"])
    assert by in signal.by
    assert signal.severity is Severity.SUSPECT
    assert signal.reason == one["reason"]
    assert signal.since == datetime(2026, 11, 21, 10, tzinfo=UTC)


@pytest.mark.parametrize("name", ["GpuMemWatch", "AcceleratedHardwareReady"])
@pytest.mark.parametrize("status", ["Unknown", "", "true", "Maybe"])
def test_a_condition_of_status_unknown_tells_nothing(name: str, status: str) -> None:
    assert read(condition(name, status)) == ()


@pytest.mark.parametrize(
    "taint",
    [
        {"key": "aws-node-termination-handler/spot-itn", "value": "1234567890", "effect": "NoSchedule"},
        {"key": "aws-node-termination-handler/scheduled-maintenance", "value": "e", "effect": "NoSchedule"},
        {"key": "cloud.google.com/impending-node-termination", "effect": "NoSchedule"},
        {"key": "nvidia.com/gpu-xid-error", "value": "true", "effect": "NoSchedule"},
        {"key": "alibabacloud.com/node-needrepair", "value": "Unschedulable", "effect": "NoSchedule"},
        {"key": "alibabacloud.com/node-anomaly", "effect": "NoSchedule", "timeAdded": SINCE},
    ],
)
def test_a_taint_by_which_a_cloud_announces_the_end_of_a_node_makes_it_suspect(taint: dict[str, str]) -> None:
    (signal,) = read(taints=[taint])

    assert (signal.kind, signal.name, signal.value) == (
        SignalKind.TAINT,
        taint["key"],
        taint.get("value", ""),
    )
    assert (signal.since is not None) == ("timeAdded" in taint)


@pytest.mark.parametrize(
    ("name", "value", "is_told"),
    [
        ("autopilot.ibm.com/gpuhealth", "ERR", True),
        ("autopilot.ibm.com/gpuhealth", "EVICT", True),
        ("autopilot.ibm.com/gpuhealth", "TESTING", False),
        ("cloud.google.com/active-node-maintenance", "ONGOING", True),
        ("cloud.google.com/active-node-maintenance", "PENDING", False),
        ("cloud.google.com/scheduled-maintenance-time", "1733083200", True),
        ("nvidia.com/gpu-driver-upgrade-state", "upgrade-failed", True),
        ("nvidia.com/gpu-driver-upgrade-state", "upgrade-required", False),
        ("nvidia.com/mig.config.state", "failed", True),
        ("nvidia.com/mig.config.state", "rebooting", False),
        ("alibabacloud.com/node-anomaly", "true", True),
    ],
)
def test_only_the_documented_values_of_a_label_are_signals(name: str, value: str, is_told: bool) -> None:
    assert [signal.name for signal in read(labels={name: value})] == ([name] if is_told else [])


def test_no_more_than_suspicion_comes_of_any_packaged_row() -> None:
    for kind, rows in packaged_signals().items():
        names = [row.name for row in rows]
        assert len(set(names)) == len(names), kind
        assert all(row.by and row.source.startswith("https://") for row in rows)


def test_a_row_of_people_raises_a_packaged_one_and_adds_others() -> None:
    own = Signals(
        conditions={"GpuMemWatch": SignalRow(severity=Severity.FATAL), "OurCheck": SignalRow()},
        labels={
            "team.example.com/bad": SignalRow(values=("yes",), severity=Severity.INFO, fault=Fault.POWER)
        },
    )

    found = read(
        condition("GpuMemWatch", "True"),
        condition("OurCheck", "True"),
        labels={"team.example.com/bad": "yes"},
        own=own,
    )

    assert [(signal.name, signal.severity, signal.fault) for signal in found] == [
        ("GpuMemWatch", Severity.FATAL, Fault.MEMORY_DEGRADED),
        ("OurCheck", Severity.SUSPECT, Fault.HOST_HARDWARE),
        ("team.example.com/bad", Severity.INFO, Fault.POWER),
    ]
    assert read(condition("OurCheck", "False"), labels={"team.example.com/bad": "no"}, own=own) == ()


def test_a_signal_of_which_nobody_tells_the_time_is_a_suspicion_at_most() -> None:
    name = "autopilot.ibm.com/gpuhealth"
    own = Signals(
        labels={name: SignalRow(severity=Severity.FATAL)},
        taints={"nvidia.com/gpu-error": SignalRow(severity=Severity.FATAL)},
    )
    fields = {"f:metadata": {"f:labels": {f"f:{name}": {}}}}

    def severities(**parts: Any) -> list[Severity]:
        return [signal.severity for signal in read(own=own, **parts)]

    assert severities(labels={name: "EVICT"}) == [Severity.SUSPECT]
    assert severities(labels={name: "EVICT"}, managed=[{"time": SINCE, "fieldsV1": fields}]) == [
        Severity.FATAL
    ]
    taint = {"key": "nvidia.com/gpu-error", "effect": "NoSchedule"}
    assert severities(taints=[taint]) == [Severity.SUSPECT]
    assert severities(taints=[{**taint, "timeAdded": "0"}]) == [Severity.SUSPECT]
    assert severities(taints=[{**taint, "timeAdded": SINCE}]) == [Severity.FATAL]


@pytest.mark.parametrize(
    "own",
    [
        Signals(taints={"rekindle.dev/unhealthy": SignalRow()}),
        Signals(labels={"rekindle.dev/health": SignalRow()}),
        Signals(conditions={OWN_CONDITION: SignalRow()}),
    ],
)
def test_what_rekindle_writes_itself_is_never_read_back(own: Signals) -> None:
    with pytest.raises(SettingsError):
        SignalCatalogue(own)


def test_the_order_of_what_the_api_server_tells_changes_nothing() -> None:
    several = [condition("GpuMemWatch", "True"), condition("KernelDeadlock", "True")]
    labels = {"nvidia.com/mig.config.state": "failed", "autopilot.ibm.com/gpuhealth": "ERR"}
    turned = dict(reversed(labels.items()))

    assert read(*several, labels=labels) == read(*reversed(several), labels=turned)
