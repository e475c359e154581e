"""Complete Nodes of each project for test_documented_nodes.py, once while all is well (also while the node
boots, is upgraded or is checked) and once in trouble. Names, values and reasons are facts from the source
beside each Node.

A condition is written as (type, status, reason), a taint as (key, value, effect), a label as (key, value),
and an expected signal as (kind, name).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

__all__ = ["NODES", "WRITTEN_AT", "DocumentedNode"]

WRITTEN_AT = "2026-11-21T10:00:00Z"
_WEEKS_AHEAD, _HOURS_AHEAD = "1797242400", "1795348800"
"""Unix times of 2026-12-14 10:00 and 2026-11-22 12:00 UTC."""

_NVSENTINEL = "https://docs.nvidia.com/nvsentinel/getting-started/integrations (Node Status Examples)"
_OPERATOR = "https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-driver-upgrades.html"
_HYPERPOD = (
    "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-eks-resiliency-node-labels.html"
)
_GKE = "https://docs.cloud.google.com/ai-hypercomputer/docs/manage/manage-gke-clusters"
_AKS = "https://learn.microsoft.com/en-us/azure/aks/node-problem-detector (kubectl describe node)"
_ACK = "https://www.alibabacloud.com/help/en/ack/ack-managed-and-ack-dedicated/user-guide/auto-repair"

Conditions = Sequence[tuple[str, str, str]]


class DocumentedNode(msgspec.Struct, frozen=True):
    name: str
    source: str
    conditions: Conditions = ()
    taints: Sequence[tuple[str, str, str]] = ()
    labels: Sequence[tuple[str, str]] = ()
    expected: Sequence[tuple[str, str]] = ()


def _but(conditions: Conditions, *others: tuple[str, str, str]) -> Conditions:
    """Returns the conditions, with these other conditions in place of those of the same type."""
    changed = {type_ for type_, _, _ in others}
    return (*(one for one in conditions if one[0] not in changed), *others)


_NPD_WELL = (
    ("KernelDeadlock", "False", "KernelHasNoDeadlock"),
    ("XfsShutdown", "False", "XfsHasNotShutDown"),
    ("CperHardwareErrorFatal", "False", "CperHardwareHasNoFatalError"),
    ("ReadonlyFilesystem", "False", "FilesystemIsNotReadOnly"),
    ("CorruptDockerOverlay2", "False", "NoCorruptDockerOverlay2"),
    ("FrequentUnregisterNetDevice", "False", "NoFrequentUnregisterNetDevice"),
    ("FrequentKubeletRestart", "False", "NoFrequentKubeletRestart"),
    ("FrequentDockerRestart", "False", "NoFrequentDockerRestart"),
    ("FrequentContainerdRestart", "False", "NoFrequentContainerdRestart"),
    ("KubeletUnhealthy", "False", "KubeletIsHealthy"),
    ("ContainerRuntimeUnhealthy", "False", "ContainerRuntimeIsHealthy"),
    ("NTPProblem", "Unknown", "NTPIsUp"),
    ("DiskBadBlock", "False", "DiskBadBlock"),
)
_NVSENTINEL_WELL = tuple(
    (check, "False", f"{check}IsHealthy")
    for check in (
        "GpuDcgmConnectivityFailure",
        "GpuDriverWatch",
        "GpuMemWatch",
        "GpuNvlinkWatch",
        "GpuPowerWatch",
        "GpuThermalWatch",
        "GpuXidError",
        "SysLogsXIDError",
        "SysLogsSXIDError",
        "GpuAllWatch",
        "GpuPmuWatch",
        "GpuSmWatch",
        "GpuNvswitchFatalWatch",
        "GpuNvswitchNonfatalWatch",
        "GpuPcieWatch",
        "GpuInforomWatch",
        "GpuMcuWatch",
    )
)
_NVSENTINEL_LABELS = (
    ("nvsentinel.dgxc.nvidia.com/dcgm.version", "4.x"),
    ("nvsentinel.dgxc.nvidia.com/driver.installed", "true"),
    ("nvsentinel.dgxc.nvidia.com/gpu.count.current", "8"),
    ("nvsentinel.dgxc.nvidia.com/gpu.count.expected", "8"),
)
_EKS_WELL = (
    ("KernelReady", "True", "KernelIsReady"),
    ("StorageReady", "True", "DiskIsReady"),
    ("ContainerRuntimeReady", "True", "ContainerRuntimeIsReady"),
    ("NetworkingReady", "True", "NetworkingIsReady"),
    ("AcceleratedHardwareReady", "True", "NvidiaGPUIsReady"),
)
_AKS_WELL = (
    ("VMEventScheduled", "False", "NoVMEventScheduled"),
    ("FrequentContainerdRestart", "False", "NoFrequentContainerdRestart"),
    ("FrequentDockerRestart", "False", "NoFrequentDockerRestart"),
    ("FilesystemCorruptionProblem", "False", "FilesystemIsOK"),
    ("FrequentUnregisterNetDevice", "False", "NoFrequentUnregisterNetDevice"),
    ("ContainerRuntimeProblem", "False", "ContainerRuntimeIsUp"),
    ("KernelDeadlock", "False", "KernelHasNoDeadlock"),
    ("FrequentKubeletRestart", "False", "NoFrequentKubeletRestart"),
    ("KubeletProblem", "False", "KubeletIsUp"),
    ("ReadonlyFilesystem", "False", "FilesystemIsNotReadOnly"),
    ("NetworkUnavailable", "False", "RouteCreated"),
    ("MemoryPressure", "True", "KubeletHasInsufficientMemory"),
    ("GPUMissing", "False", "NoGPUMissing"),
    ("IBLinkFlapping", "False", "NoIBLinkFlapping"),
    ("UnhealthyNvidiaDevicePlugin", "False", "HealthyNvidiaDevicePlugin"),
    ("UnhealthyNvidiaDCGMServices", "False", "HealthyNvidiaDCGMServices"),
)
_ACK_WELL = (
    ("NTPProblem", "False", "NTPIsUp"),
    ("InodesPressure", "False", "NodeHasNoInodesPressure"),
    ("InstanceExpired", "False", "InstanceNotToBeTerminated"),
    ("KernelDeadlock", "False", "KernelHasNoDeadlock"),
    ("ReadonlyFilesystem", "False", "FilesystemIsReadOnly"),  # the reason contradicts the status
    ("NodePIDPressure", "False", "NodeHasNoPIDPressure"),
    ("DockerOffline", "False", "DockerDaemonNotOffline"),
    ("RuntimeOffline", "False", "RuntimeDaemonNotOffline"),
)
_OPERANDS = (
    ("nvidia.com/gpu.present", "true"),
    ("nvidia.com/gpu.deploy.container-toolkit", "true"),
    ("nvidia.com/gpu.deploy.dcgm", "true"),
    ("nvidia.com/gpu.deploy.device-plugin", "true"),
    ("nvidia.com/gpu.deploy.driver", "true"),
    ("nvidia.com/gpu.deploy.nvsm", ""),
)
NODES = (
    DocumentedNode(
        "node-problem-detector: all is well",
        "https://github.com/kubernetes/node-problem-detector/tree/master/config",
        _NPD_WELL,
    ),
    DocumentedNode(
        "node-problem-detector: a kernel that hangs, a file system that is read-only",
        "https://github.com/kubernetes/node-problem-detector/tree/master/config",
        _but(
            _NPD_WELL,
            ("KernelDeadlock", "True", "DockerHung"),
            ("ReadonlyFilesystem", "True", "FilesystemIsReadOnly"),
        ),
        expected=(("condition", "KernelDeadlock"), ("condition", "ReadonlyFilesystem")),
    ),
    DocumentedNode(
        "NVSentinel: all conditions of a real node, well",
        "https://github.com/NVIDIA/NVSentinel (scripts/scale-kwok-nodes.sh)",
        _NVSENTINEL_WELL,
        taints=(("nvidia.com/gpu", "true", "NoSchedule"),),
        labels=(*_OPERANDS, *_NVSENTINEL_LABELS),
    ),
    DocumentedNode(
        "NVSentinel: example 1, a fatal Xid",
        _NVSENTINEL,
        (("SysLogsXIDError", "True", "HardwareFailure"),),
        taints=(("nvidia.com/gpu-xid-error", "true", "NoSchedule"),),
        expected=(("condition", "SysLogsXIDError"), ("taint", "nvidia.com/gpu-xid-error")),
    ),
    DocumentedNode(
        "NVSentinel: example 2, a hot GPU",
        _NVSENTINEL,
        (("GpuThermalWatch", "True", "ThermalThrottling"),),
        taints=(("nvidia.com/gpu-thermal", "true", "PreferNoSchedule"),),
        expected=(("condition", "GpuThermalWatch"), ("taint", "nvidia.com/gpu-thermal")),
    ),
    DocumentedNode(
        "NVSentinel: example 3, a healthy node",
        _NVSENTINEL,
        (
            ("GpuMemWatch", "False", "HealthCheckPassed"),
            ("GpuThermalWatch", "False", "HealthCheckPassed"),
        ),
    ),
    DocumentedNode(
        "NVSentinel: a switch that failed, as the code names it, and the node is drained",
        "https://github.com/NVIDIA/NVSentinel (platform_connector.py, statemanager.go)",
        _but(_NVSENTINEL_WELL, ("GpuNvswitchFatalWatch", "True", "GpuNvswitchFatalWatchIsNotHealthy")),
        labels=(*_NVSENTINEL_LABELS, ("dgxc.nvidia.com/nvsentinel-state", "draining")),
        expected=(
            ("condition", "GpuNvswitchFatalWatch"),
            ("label", "dgxc.nvidia.com/nvsentinel-state"),
        ),
    ),
    DocumentedNode(
        "NVSentinel: DCGM's service restarts, and an application failed twice on a GPU",
        "https://docs.nvidia.com/nvsentinel/configuration/health-events-analyzer",
        _but(
            _NVSENTINEL_WELL,
            ("GpuDcgmConnectivityFailure", "True", "GpuDcgmConnectivityFailureIsNotHealthy"),
            ("RepeatedXID31OnSameGPU", "True", "RepeatedXID31OnSameGPUIsNotHealthy"),
        ),
        labels=_NVSENTINEL_LABELS,
    ),
    DocumentedNode(
        "GPU Operator: all is well",
        _OPERATOR,
        labels=(*_OPERANDS, ("nvidia.com/gpu-driver-upgrade-state", "upgrade-done")),
    ),
    DocumentedNode(
        "GPU Operator: the driver is being upgraded",
        _OPERATOR,
        labels=(
            ("nvidia.com/gpu-driver-upgrade-state", "pod-restart-required"),
            ("nvidia.com/gpu.deploy.device-plugin", "paused-for-driver-upgrade"),
        ),
    ),
    DocumentedNode(
        "GPU Operator: the upgrade failed",
        _OPERATOR,
        labels=(*_OPERANDS, ("nvidia.com/gpu-driver-upgrade-state", "upgrade-failed")),
        expected=(("label", "nvidia.com/gpu-driver-upgrade-state"),),
    ),
    DocumentedNode(
        "MIG manager: the node reboots for another layout",
        "https://github.com/NVIDIA/mig-parted (pkg/mig/reconfigure)",
        labels=(
            ("nvidia.com/mig.config", "all-1g.10gb"),
            ("nvidia.com/mig.config.state", "rebooting"),
            ("nvidia.com/gpu.deploy.device-plugin", "paused-for-mig-change"),
        ),
    ),
    DocumentedNode(
        "Network Operator: the driver loads after a boot",
        "https://github.com/Mellanox/network-operator (controllers/mofed_wait_labels.go)",
        labels=(
            ("network.nvidia.com/operator.mofed.wait", "true"),
            ("nvidia.com/ofed-driver-upgrade-state", "upgrade-done"),
        ),
    ),
    DocumentedNode(
        "Autopilot: the deep check passed",
        "https://github.com/IBM/autopilot/blob/main/HEALTH_CHECKS.md",
        labels=(
            ("autopilot.ibm.com/gpuhealth", "PASS"),
            ("autopilot.ibm.com/dcgm.level.3", "PASS_2024-10-10_19.12.03UTC"),
        ),
    ),
    DocumentedNode(
        "Autopilot: the deep check failed",
        "https://github.com/IBM/autopilot/blob/main/HEALTH_CHECKS.md",
        labels=(
            ("autopilot.ibm.com/gpuhealth", "EVICT"),
            ("autopilot.ibm.com/dcgm.level.3", "ERR_2024-10-10_19.12.03UTC"),
        ),
        expected=(("label", "autopilot.ibm.com/gpuhealth"),),
    ),
    DocumentedNode(
        "EKS node monitoring agent: all is well",
        "https://github.com/aws/eks-node-monitoring-agent (cmd/eks-node-monitoring-agent/main.go)",
        _EKS_WELL,
    ),
    DocumentedNode(
        "EKS node monitoring agent: a GPU fell off the bus",
        "https://github.com/aws/eks-node-monitoring-agent (docs/node-health-issues.adoc)",
        _but(_EKS_WELL, ("AcceleratedHardwareReady", "False", "NvidiaXID79Error")),
        expected=(("condition", "AcceleratedHardwareReady"),),
    ),
    DocumentedNode(
        "SageMaker HyperPod: a new node is being checked",
        _HYPERPOD,
        taints=(("sagemaker.amazonaws.com/node-health-status", "Unschedulable", "NoSchedule"),),
        labels=(
            ("sagemaker.amazonaws.com/node-health-status", "Unschedulable"),
            ("sagemaker.amazonaws.com/deep-health-check-status", "InProgress"),
        ),
    ),
    DocumentedNode(
        "SageMaker HyperPod: the check failed",
        _HYPERPOD,
        labels=(
            ("sagemaker.amazonaws.com/node-health-status", "UnschedulablePendingReplacement"),
            ("sagemaker.amazonaws.com/deep-health-check-status", "Failed"),
        ),
        expected=(
            ("label", "sagemaker.amazonaws.com/deep-health-check-status"),
            ("label", "sagemaker.amazonaws.com/node-health-status"),
        ),
    ),
    DocumentedNode(
        "AWS Node Termination Handler: a spot instance ends",
        "https://github.com/aws/aws-node-termination-handler (pkg/node/node.go)",
        taints=(("aws-node-termination-handler/spot-itn", "spot-itn-47ddfb5e39791606", "NoSchedule"),),
        labels=(("aws-node-termination-handler/event-id", "spot-itn-47ddfb5e39791606"),),
        expected=(("taint", "aws-node-termination-handler/spot-itn"),),
    ),
    DocumentedNode(
        "Karpenter: a new node",
        "https://github.com/kubernetes-sigs/karpenter (pkg/apis/v1/taints.go)",
        taints=(("karpenter.sh/unregistered", "", "NoExecute"),),
    ),
    DocumentedNode(
        "Karpenter: the node is being replaced",
        "https://github.com/kubernetes-sigs/karpenter (pkg/apis/v1/taints.go)",
        taints=(("karpenter.sh/disrupted", "", "NoSchedule"),),
        expected=(("taint", "karpenter.sh/disrupted"),),
    ),
    DocumentedNode(
        "Cluster Autoscaler: a node that is little used",
        "https://github.com/kubernetes/autoscaler (cluster-autoscaler/utils/taints/taints.go)",
        taints=(("DeletionCandidateOfClusterAutoscaler", "1795000000", "PreferNoSchedule"),),
    ),
    DocumentedNode(
        "Cluster Autoscaler: the node is being removed",
        "https://github.com/kubernetes/autoscaler (cluster-autoscaler/utils/taints/taints.go)",
        taints=(
            ("DeletionCandidateOfClusterAutoscaler", "1795000000", "PreferNoSchedule"),
            ("ToBeDeletedByClusterAutoscaler", "1795000600", "NoSchedule"),
        ),
        expected=(("taint", "ToBeDeletedByClusterAutoscaler"),),
    ),
    DocumentedNode(
        "GKE: a maintenance is announced weeks ahead",
        _GKE,
        _NPD_WELL,
        taints=(("nvidia.com/gpu", "present", "NoSchedule"),),
        labels=(
            ("cloud.google.com/gke-nodepool", "a4-highgpu-8g"),
            ("cloud.google.com/scheduled-maintenance-time", _WEEKS_AHEAD),
        ),
    ),
    DocumentedNode(
        "GKE: the maintenance begins within a day",
        _GKE,
        labels=(("cloud.google.com/scheduled-maintenance-time", _HOURS_AHEAD),),
        expected=(("label", "cloud.google.com/scheduled-maintenance-time"),),
    ),
    DocumentedNode(
        "GKE: the node is being shut down",
        "https://cloud.google.com/kubernetes-engine/docs/concepts/handle-disruption-gpu-tpu",
        taints=(("cloud.google.com/impending-node-termination", "", "NoSchedule"),),
        labels=(("cloud.google.com/active-node-maintenance", "ONGOING"),),
        expected=(
            ("label", "cloud.google.com/active-node-maintenance"),
            ("taint", "cloud.google.com/impending-node-termination"),
        ),
    ),
    DocumentedNode(
        "GKE: the node has moved to another host",
        _GKE,
        labels=(("cloud.google.com/report-and-replace-status", "OperationDone"),),
    ),
    DocumentedNode("AKS: the documented node, with GPUs", _AKS, _AKS_WELL),
    DocumentedNode(
        "AKS: a GPU is missing",
        "https://github.com/Azure/AgentBaker (e2e/validators.go)",
        _but(_AKS_WELL, ("GPUMissing", "True", "GPUMissing")),
        expected=(("condition", "GPUMissing"),),
    ),
    DocumentedNode(
        "AKS: DCGM's services do not run",
        "https://github.com/Azure/AgentBaker (e2e/validators.go)",
        _but(_AKS_WELL, ("UnhealthyNvidiaDCGMServices", "True", "UnhealthyNvidiaDCGMServices")),
    ),
    DocumentedNode(
        "AKS: the maintenance of a spot node is scheduled",
        "https://learn.microsoft.com/en-us/azure/aks/node-auto-drain",
        _but(_AKS_WELL, ("VMEventScheduled", "True", "VMEventScheduled")),
        taints=(
            ("kubernetes.azure.com/scalesetpriority", "spot", "NoSchedule"),
            ("remediator.kubernetes.azure.com/unschedulable", "", "NoSchedule"),
        ),
        expected=(
            ("condition", "VMEventScheduled"),
            ("taint", "remediator.kubernetes.azure.com/unschedulable"),
        ),
    ),
    DocumentedNode(
        "ACK: all conditions of a real node, well",
        "https://www.alibabacloud.com/help/en/ack/ack-managed-and-ack-dedicated/user-guide/node-troubleshooting",
        _ACK_WELL,
    ),
    DocumentedNode(
        "ACK: a GPU fell off the bus, and the node is to be repaired",
        _ACK,
        _but(_ACK_WELL, ("NvidiaXID79Error", "True", "")),
        taints=(("alibabacloud.com/node-needrepair", "Unschedulable", "NoSchedule"),),
        labels=(("alibabacloud.com/node-needrepair", "Inquiring"),),
        expected=(("condition", "NvidiaXID79Error"), ("taint", "alibabacloud.com/node-needrepair")),
    ),
    DocumentedNode(
        "ACK: an application failed",
        _ACK,
        _but(_ACK_WELL, ("NvidiaXID69Error", "True", "")),
    ),
    DocumentedNode(
        "ACS: a GPU-HPN node with a fault",
        "https://www.alibabacloud.com/help/en/cs/user-guide/gpu-hpn-node-failure-monitoring-and-recovery",
        taints=(("alibabacloud.com/node-anomaly", "", "NoSchedule"),),
        labels=(("alibabacloud.com/node-anomaly", "true"), ("alibabacloud.com/node-type", "reserved")),
        expected=(("label", "alibabacloud.com/node-anomaly"), ("taint", "alibabacloud.com/node-anomaly")),
    ),
    DocumentedNode(
        "Nebius: all is well",
        "https://docs.nebius.com/kubernetes/maintenance/health-checks",
        (("NebiusGPUError", "False", ""), ("NebiusBootDiskIOError", "False", "")),
    ),
    DocumentedNode(
        "Nebius: a maintenance is scheduled",
        "https://docs.nebius.com/kubernetes/maintenance/manage",
        (("NebiusMaintenanceScheduled", "True", "MaintenanceScheduled"),),
        expected=(("condition", "NebiusMaintenanceScheduled"),),
    ),
)
