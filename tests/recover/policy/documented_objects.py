"""Conditions, taints and labels that each project documents, for test_documented_objects.py: copied as facts
(name, value, reason) from the source that is written beside them, once in trouble and once well.

A condition is written as (type, status, reason in trouble, status, reason when it is well); a reason that
the source does not give is empty. A taint is written as (key, value, effect), a label as (key, value).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

__all__ = ["DOCUMENTED", "Documented"]

_NPD = "https://github.com/kubernetes/node-problem-detector/tree/master/config"
_NVSENTINEL = "https://docs.nvidia.com/nvsentinel/getting-started/integrations"
_NVSENTINEL_CODE = "https://github.com/NVIDIA/NVSentinel"
_AKS = "https://learn.microsoft.com/en-us/azure/aks/node-problem-detector"
_ACK = "https://www.alibabacloud.com/help/en/ack/ack-managed-and-ack-dedicated/user-guide"


class Documented(msgspec.Struct, frozen=True):
    project: str
    source: str
    conditions: Sequence[tuple[str, str, str, str, str]] = ()
    taints: Sequence[tuple[str, str, str]] = ()
    labels: Sequence[tuple[str, str]] = ()
    well: Sequence[tuple[str, str]] = ()
    """Labels while nothing is wrong, or while no work has begun."""


def _npd(type_: str, trouble: str, well: str) -> tuple[str, str, str, str, str]:
    """Returns a condition of node-problem-detector or a related project: True means trouble."""
    return type_, "True", trouble, "False", well


def _eks(type_: str, trouble: str, well: str) -> tuple[str, str, str, str, str]:
    """Returns a condition of the EKS node monitoring agent: False means trouble."""
    return type_, "False", trouble, "True", well


def _nvsentinel(check: str) -> tuple[str, str, str, str, str]:
    return _npd(check, f"{check}IsNotHealthy", f"{check}IsHealthy")


DOCUMENTED = (
    Documented(
        "node-problem-detector",
        _NPD,  # all its files that define conditions
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
            _npd("CorruptDockerOverlay2", "CorruptDockerOverlay2", "NoCorruptDockerOverlay2"),
            _npd("FrequentUnregisterNetDevice", "UnregisterNetDevice", "NoFrequentUnregisterNetDevice"),
            _npd("DiskBadBlock", "DiskBadBlock", "DiskBadBlock"),  # its reason is the same when all is well
        ),
    ),
    Documented(
        "Kubernetes",
        "https://kubernetes.io/docs/reference/labels-annotations-taints/",
        taints=(
            ("node.kubernetes.io/out-of-service", "nodeshutdown", "NoExecute"),
            ("node.cloudprovider.kubernetes.io/shutdown", "", "NoSchedule"),
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
            ("nvidia.com/gpu-thermal", "true", "PreferNoSchedule"),
        ),
    ),
    Documented(
        "NVSentinel's GPU health monitor",
        f"{_NVSENTINEL_CODE}/tree/main/health-monitors/gpu-health-monitor",
        conditions=tuple(
            _nvsentinel(check)
            for check in (
                "GpuNvswitchFatalWatch",
                "GpuPowerBrakeWatch",
                "GpuThermalMarginWatch",
                "GpuDcgmUnresponsive",
            )
        ),
    ),
    Documented(
        "NVSentinel's NIC health monitor",
        "https://docs.nvidia.com/nvsentinel/configuration/nic-health-monitor",
        conditions=tuple(
            _nvsentinel(check)
            for check in (
                "InfiniBandStateCheck",
                "InfiniBandDegradationCheck",
                "InfiniBandCharDeviceCheck",
                "EthernetStateCheck",
                "EthernetDegradationCheck",
                "EFAStateCheck",
                "EFADegradationCheck",
                "SysLogsNICDriverError",
            )
        ),
    ),
    Documented(
        "NVSentinel's health events analyzer",
        "https://docs.nvidia.com/nvsentinel/configuration/health-events-analyzer",
        conditions=tuple(
            _nvsentinel(check)
            for check in (
                "MultipleRemediations",
                "RepeatedXIDErrorOnSameGPU",
                "RepeatedNICDriverError",
                "RepeatedNICDegradation",
                "XID74Reg0SoloNVLinkError",
                "XID74Reg0ECCParityError",
                "RepeatedXID74Reg0HardwareIssue",
                "XID74Reg0SignalIntegrityError",
                "XID74Reg0Bit27Or29Set",
                "RepeatedXID74Reg2HardwareIssue",
                "XID74Reg2Bit13Set",
                "RepeatedXID74Reg2Bit16Or19Set",
                "RepeatedXID74Reg2Bit17Or18Set",
                "XID74Reg3UnexpectedError",
                "XID74Reg3Bit18Set",
                "XID74Reg4HardwareIssue",
                "XID74Reg4ECCError",
            )
        ),
    ),
    Documented(
        "NVSentinel's state of a node",
        f"{_NVSENTINEL_CODE}/tree/main/commons/pkg/statemanager",
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
        "Network Operator",
        "https://github.com/NVIDIA/k8s-operator-libs/blob/main/pkg/upgrade/consts.go",
        labels=(("nvidia.com/ofed-driver-upgrade-state", "upgrade-failed"),),
        well=tuple(
            ("nvidia.com/ofed-driver-upgrade-state", state)
            for state in ("upgrade-done", "drain-required", "node-maintenance-required")
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
        "https://github.com/IBM/autopilot/blob/main/HEALTH_CHECKS.md",
        labels=tuple(("autopilot.ibm.com/gpuhealth", value) for value in ("WARN", "EVICT", "ERR")),
        well=tuple(("autopilot.ibm.com/gpuhealth", value) for value in ("PASS", "TESTING", "")),
    ),
    Documented(
        "EKS node monitoring agent",
        "https://github.com/aws/eks-node-monitoring-agent/blob/main/docs/node-health-issues.adoc",
        conditions=(
            _eks("AcceleratedHardwareReady", "NvidiaXID79Error", "NvidiaGPUIsReady"),
            _eks("NetworkingReady", "InterfaceNotUp", "NetworkingIsReady"),
            _eks("StorageReady", "", "DiskIsReady"),  # no issue of storage is serious enough for False yet
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
        "SageMaker HyperPod",
        "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-eks-resiliency-node-labels.html",
        labels=(
            ("sagemaker.amazonaws.com/node-health-status", "UnschedulablePendingReplacement"),
            ("sagemaker.amazonaws.com/node-health-status", "UnschedulablePendingReboot"),
            ("sagemaker.amazonaws.com/deep-health-check-status", "Failed"),
        ),
        well=(
            ("sagemaker.amazonaws.com/node-health-status", "Schedulable"),
            ("sagemaker.amazonaws.com/node-health-status", "Unschedulable"),
            ("sagemaker.amazonaws.com/deep-health-check-status", "InProgress"),
            ("sagemaker.amazonaws.com/deep-health-check-status", "Passed"),
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
        "https://github.com/kubernetes/autoscaler/blob/cluster-autoscaler-release-1.34/cluster-autoscaler/utils/taints/taints.go",
        taints=(("ToBeDeletedByClusterAutoscaler", "1733083200", "NoSchedule"),),
    ),
    Documented(
        "Cluster Autoscaler on Oracle Cloud",
        "https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/cloudprovider/oci/nodepools/consts/annotations.go",
        taints=(
            (
                "ignore-taint.cluster-autoscaler.kubernetes.io/oke-impending-node-termination",
                "",
                "NoSchedule",
            ),
        ),
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
            ("cloud.google.com/scheduled-maintenance-time", "soon"),
            ("cloud.google.com/scheduled-maintenance-time", ""),
            ("cloud.google.com/scheduled-maintenance-time", "9" * 30),
            ("cloud.google.com/gke-nodepool", "h100"),
        ),
    ),
    Documented(
        "GKE, as Slonk reads it",
        "https://github.com/character-ai/slonk/tree/main/user/slonk/operators/slonklet",
        taints=(("cloud.google.com/maintenance-window-started", "", "NoSchedule"),),
    ),
    Documented(
        "GKE: faulty hosts",
        "https://docs.cloud.google.com/ai-hypercomputer/docs/manage/manage-gke-clusters",
        labels=(
            ("cloud.google.com/fault-behavior", "SDC"),
            ("cloud.google.com/report-and-replace-status", "PodsEvicted"),
            ("cloud.google.com/report-and-replace-status", "OperationRUNNING"),
        ),
        well=(
            ("cloud.google.com/report-and-replace-status", "OperationDone"),
            ("cloud.google.com/report-and-replace-status", "ERROR"),
        ),
    ),
    Documented(
        "AKS",
        _AKS,
        conditions=(
            _npd("FilesystemCorruptionProblem", "FilesystemCorruptionDetected", "FilesystemIsOK"),
            _npd("KubeletProblem", "KubeletIsDown", "KubeletIsUp"),
            _npd("ContainerRuntimeProblem", "ContainerRuntimeIsDown", "ContainerRuntimeIsUp"),
            _npd("VMEventScheduled", "VMEventScheduled", "NoVMEventScheduled"),
            _npd("GPUMissing", "GPUMissing", "NoGPUMissing"),
            _npd("NVLinkStatusInactive", "NVLinkStatusInactive", ""),
            _npd("XIDErrors", "", ""),
            _npd("IBLinkFlapping", "IBLinkFlapping", "NoIBLinkFlapping"),
            _npd("GPUClockThrottling", "", ""),
            _npd("UnhealthyNvidiaDevicePlugin", "UnhealthyNvidiaDevicePlugin", "HealthyNvidiaDevicePlugin"),
        ),
    ),
    Documented(
        "AKS: GPU health",
        "https://learn.microsoft.com/en-us/azure/aks/gpu-health-monitoring",
        conditions=(_npd("GPUXIDErrors", "", ""),),
    ),
    Documented(
        "Node auto-drain of AKS",
        "https://learn.microsoft.com/en-us/azure/aks/node-auto-drain",
        taints=(("remediator.kubernetes.azure.com/unschedulable", "", "NoSchedule"),),
    ),
    Documented(
        "Node auto-repair of AKS, before it was renamed",
        "https://github.com/Azure/AKS/blob/master/CHANGELOG.md",
        taints=(("remediator.aks.microsoft.com/unschedulable", "", "NoSchedule"),),
    ),
    Documented(
        "AKS, as Karpenter's repair reads it",
        "https://github.com/Azure/karpenter-provider-azure/blob/main/pkg/cloudprovider/cloudprovider.go",
        conditions=(
            _npd("PreemptionScheduled", "", ""),
            ("kubernetes.azure.com/NodeHealthy", "False", "", "True", ""),
        ),
    ),
    Documented(
        "ACK: GPUs",
        f"{_ACK}/auto-repair",
        conditions=tuple(
            _npd(type_, "", "")
            for type_ in (
                "NvidiaXID48Error",
                "NvidiaXID61Error",
                "NvidiaXID62Error",
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
                "SystemdOffline",
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
    Documented(
        "Nebius: maintenance",
        "https://docs.nebius.com/kubernetes/maintenance/manage",
        conditions=(_npd("NebiusMaintenanceScheduled", "MaintenanceScheduled", ""),),
    ),
    Documented(
        "Nebius: repair of node groups",
        "https://github.com/nebius/nebius-solutions-library (soperator)",
        conditions=(_npd("NebiusContainerRuntimeError", "ContainerRuntimeUnhealthy", ""),),
    ),
    Documented(
        "Soperator",
        "https://github.com/nebius/soperator/blob/main/internal/consts/conditions.go",
        conditions=(_npd("HardwareIssuesSuspected", "", ""),),
    ),
)
