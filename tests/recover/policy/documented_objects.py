"""What each project documents that it writes on a Node: copied as facts (name, value, reason) from the source
that stands beside it, once in trouble and once well. For test_documented_objects.py.

A condition stands as (type, status, reason in trouble, status, reason when it is well); a reason that the
source does not give is empty. A taint stands as (key, value, effect), a label as (key, value).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

__all__ = ["DOCUMENTED", "Documented"]

_NPD = "https://github.com/kubernetes/node-problem-detector/tree/master/config"
_NVSENTINEL = "https://docs.nvidia.com/nvsentinel/getting-started/integrations"
_AKS = "https://learn.microsoft.com/en-us/azure/aks/node-problem-detector"
_ACK = "https://www.alibabacloud.com/help/en/ack/ack-managed-and-ack-dedicated/user-guide"


class Documented(msgspec.Struct, frozen=True):
    project: str
    source: str
    conditions: Sequence[tuple[str, str, str, str, str]] = ()
    taints: Sequence[tuple[str, str, str]] = ()
    labels: Sequence[tuple[str, str]] = ()
    well: Sequence[tuple[str, str]] = ()
    """Labels as they stand where nothing is wrong, or while nothing has begun."""


def _npd(type_: str, trouble: str, well: str) -> tuple[str, str, str, str, str]:
    """node-problem-detector and its relatives: True means trouble."""
    return type_, "True", trouble, "False", well


def _eks(type_: str, trouble: str, well: str) -> tuple[str, str, str, str, str]:
    """The EKS node monitoring agent: False means trouble."""
    return type_, "False", trouble, "True", well


def _nvsentinel(check: str) -> tuple[str, str, str, str, str]:
    return _npd(check, f"{check}IsNotHealthy", f"{check}IsHealthy")


DOCUMENTED = (
    Documented(
        "node-problem-detector",
        _NPD,  # kernel-monitor.json, health-checker-*.json, systemd-monitor.json, custom-plugin-monitor.json
        conditions=(
            _npd("KernelDeadlock", "DockerHung", "KernelHasNoDeadlock"),
            _npd("ReadonlyFilesystem", "FilesystemIsReadOnly", "FilesystemIsNotReadOnly"),
            _npd("XfsShutdown", "XfsHasShutdown", "XfsHasNotShutDown"),
            _npd("CperHardwareErrorFatal", "CperHardwareErrorFatal", "CperHardwareHasNoFatalError"),
            _npd("FrequentKubeletRestart", "FrequentKubeletRestart", "NoFrequentKubeletRestart"),
            _npd("FrequentDockerRestart", "FrequentDockerRestart", "NoFrequentDockerRestart"),
            _npd("FrequentContainerdRestart", "FrequentContainerdRestart", "NoFrequentContainerdRestart"),
            _npd("KubeletUnhealthy", "KubeletUnhealthy", "KubeletIsHealthy"),
            _npd("ContainerRuntimeUnhealthy", "ContainerdUnhealthy", "ContainerRuntimeIsHealthy"),
            _npd("NTPProblem", "NTPIsDown", "NTPIsUp"),
        ),
    ),
    Documented(
        "node-problem-detector of Google's bare-metal clusters",
        "https://cloud.google.com/anthos/clusters/docs/bare-metal/latest/how-to/node-problem-detector",
        conditions=(
            _npd("CorruptDockerOverlay2", "CorruptDockerOverlay2", "NoCorruptDockerOverlay2"),
            _npd("FrequentUnregisterNetDevice", "UnregisterNetDevice", "NoFrequentUnregisterNetDevice"),
        ),
    ),
    Documented(
        "NVSentinel",
        _NVSENTINEL,
        conditions=tuple(
            _nvsentinel(check)
            for check in (
                "GpuMemWatch",
                "GpuThermalWatch",
                "GpuPcieWatch",
                "GpuPowerWatch",
                "GpuInforomWatch",
                "GpuSmWatch",
                "GpuNvlinkWatch",
                "GpuMcuWatch",
                "GpuPmuWatch",
                "GpuDriverWatch",
                "GpuCpusetWatch",
                "SysLogsXIDError",
                "SysLogsSXIDError",
                "SysLogsGPUFallenOff",
                "NVSwitchFatalError",
                "NVSwitchDown",
                "CSPMaintenance",
            )
        ),
        taints=(
            ("nvidia.com/gpu-xid-error", "true", "NoSchedule"),
            ("nvidia.com/gpu-nvlink-error", "true", "NoSchedule"),
            ("nvidia.com/syslog-xid-error", "true", "NoSchedule"),
            ("nvidia.com/gpu-error", "fatal", "NoSchedule"),
        ),
    ),
    Documented(
        "NVSentinel's state of a node",
        "https://github.com/NVIDIA/NVSentinel/tree/main/docs/runbooks",
        labels=tuple(
            ("dgxc.nvidia.com/nvsentinel-state", state)
            for state in (
                "quarantined",
                "draining",
                "drain-succeeded",
                "drain-failed",
                "remediating",
                "remediation-succeeded",
                "remediation-failed",
            )
        ),
    ),
    Documented(
        "GPU Operator",
        "https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-driver-upgrades.html",
        labels=(("nvidia.com/gpu-driver-upgrade-state", "upgrade-failed"),),
        well=tuple(
            ("nvidia.com/gpu-driver-upgrade-state", state)
            for state in ("upgrade-done", "upgrade-required", "cordon-required", "pod-restart-required")
        ),
    ),
    Documented(
        "MIG manager of the GPU Operator",
        "https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-operator-mig.html",
        labels=(("nvidia.com/mig.config.state", "failed"),),
        well=tuple(("nvidia.com/mig.config.state", state) for state in ("success", "pending", "rebooting")),
    ),
    Documented(
        "Autopilot",
        "https://github.com/IBM/autopilot#readme",
        labels=(("autopilot.ibm.com/gpuhealth", "ERR"), ("autopilot.ibm.com/gpuhealth", "EVICT")),
        well=(("autopilot.ibm.com/gpuhealth", "PASS"), ("autopilot.ibm.com/gpuhealth", "TESTING")),
    ),
    Documented(
        "Autopilot, as AppWrapper reads it",
        "https://github.com/project-codeflare/appwrapper/blob/main/pkg/config/config.go",
        labels=(("autopilot.ibm.com/gpuhealth", "WARN"),),
    ),
    Documented(
        "EKS node monitoring agent",
        "https://docs.aws.amazon.com/eks/latest/userguide/node-health-nma.html",
        conditions=(
            _eks("AcceleratedHardwareReady", "NvidiaXID79Error", "NvidiaAcceleratedHardwareIsReady"),
            _eks("NetworkingReady", "InterfaceNotUp", "NetworkingIsReady"),
            _eks("StorageReady", "XFSSmallAverageClusterSize", "DiskIsReady"),
            _eks("KernelReady", "ForkFailedOutOfPIDs", "KernelIsReady"),
            _eks("ContainerRuntimeReady", "PodStuckTerminating", "ContainerRuntimeIsReady"),
        ),
    ),
    Documented(
        "AWS Node Termination Handler",
        "https://github.com/aws/aws-node-termination-handler/tree/main/config/helm (TAINT_NODE)",
        taints=(
            ("aws-node-termination-handler/spot-itn", "1234567890", "NoSchedule"),
            ("aws-node-termination-handler/scheduled-maintenance", "instance-event-1", "NoSchedule"),
            ("aws-node-termination-handler/asg-lifecycle-termination", "asg-1", "NoSchedule"),
            ("aws-node-termination-handler/rebalance-recommendation", "rebalance-1", "NoSchedule"),
        ),
    ),
    Documented(
        "Karpenter",
        "https://karpenter.sh/docs/concepts/disruption/",
        taints=(("karpenter.sh/disrupted", "", "NoSchedule"),),
    ),
    Documented(
        "Karpenter before 1.0",
        "https://karpenter.sh/v0.36/concepts/disruption/",
        taints=(("karpenter.sh/disruption", "disrupting", "NoSchedule"),),
    ),
    Documented(
        "Cluster Autoscaler",
        "https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md",
        taints=(("ToBeDeletedByClusterAutoscaler", "1733083200", "NoSchedule"),),
    ),
    Documented(
        "GKE",
        "https://cloud.google.com/kubernetes-engine/docs/concepts/handle-disruption-gpu-tpu",
        taints=(("cloud.google.com/impending-node-termination", "", "NoSchedule"),),
        labels=(
            ("cloud.google.com/active-node-maintenance", "ONGOING"),
            ("cloud.google.com/scheduled-maintenance-time", "1733083200"),
            ("cloud.google.com/perform-maintenance", "true"),
        ),
        well=(
            ("cloud.google.com/active-node-maintenance", "PENDING"),
            ("cloud.google.com/gke-nodepool", "h100"),
        ),
    ),
    Documented(
        "AKS",
        _AKS,
        conditions=(
            _npd("FilesystemCorruptionProblem", "FilesystemCorruptionDetected", ""),
            _npd("KubeletProblem", "KubeletIsDown", ""),
            _npd("ContainerRuntimeProblem", "ContainerRuntimeIsDown", ""),
            _npd("VMEventScheduled", "VMEventScheduled", "NoVMEventScheduled"),
            _npd("GPUMissing", "", ""),
            _npd("NVLinkStatusInactive", "NVLinkStatusInactive", ""),
            _npd("XIDErrors", "", ""),
            _npd("IBLinkFlapping", "", ""),
            _npd("GPUClockThrottling", "", ""),
            _npd("UnhealthyNvidiaDevicePlugin", "", ""),
        ),
    ),
    Documented(
        "Node auto-repair and auto-drain of AKS",
        "https://learn.microsoft.com/en-us/azure/aks/node-auto-repair",
        taints=(("remediator.aks.microsoft.com/unschedulable", "", "NoSchedule"),),
    ),
    Documented(
        "Node auto-repair of AKS, renamed",
        "https://github.com/Azure/AKS/blob/master/CHANGELOG.md",
        taints=(("remediator.kubernetes.azure.com/unschedulable", "", "NoSchedule"),),
    ),
    Documented(
        "ACK: GPUs",
        f"{_ACK}/auto-repair",
        conditions=tuple(
            _npd(type_, "", "")
            for type_ in (
                "NvidiaXID48Error",
                "NvidiaXID74Error",
                "NvidiaXID79Error",
                "NvidiaXID95Error",
                "NvidiaXID119Error",
                "NvidiaXID120Error",
                "NvidiaXID140Error",
                "NvidiaDeviceLost",
                "NvidiaRemappingRowsFailed",
                "NvidiaRemappingRowsRequireReset",
                "NvidiaPendingRetiredPages",
                "NvidiaInfoRomCorrupted",
                "NvidiaPowerCableErr",
            )
        ),
        taints=(("alibabacloud.com/node-needrepair", "Unschedulable", "NoSchedule"),),
    ),
    Documented(
        "ACK: spot instances",
        f"{_ACK}/best-practices-for-preemptible-instance-based-node-pools",
        conditions=(_npd("InstanceExpired", "InstanceToBeTerminated", "InstanceNotToBeTerminated"),),
    ),
    Documented(
        "ACK: container runtimes",
        f"{_ACK}/node-troubleshooting",
        conditions=(
            _npd("RuntimeOffline", "", "RuntimeDaemonNotOffline"),
            _npd("DockerOffline", "", "DockerDaemonNotOffline"),
        ),
    ),
    Documented(
        "ACS",
        "https://www.alibabacloud.com/help/en/cs/user-guide/gpu-hpn-node-failure-monitoring-and-recovery",
        taints=(("alibabacloud.com/node-anomaly", "", "NoSchedule"),),
        labels=(("alibabacloud.com/node-anomaly", "true"),),
    ),
    Documented(
        "Nebius",
        "https://docs.nebius.com/kubernetes/maintenance/health-checks",
        conditions=(
            _npd("NebiusGPUError", "GPUHealthCheckFailedMK8S", ""),
            _npd("NebiusBootDiskIOError", "", ""),
        ),
    ),
)
