"""Defines NodeHealth, the object between agent and controller.

The agent writes `status` of the one NodeHealth that has its node's name; the controller writes `spec`. These
structs, and those of training.py, are the single definition: the CRD is generated from them
(recover/api/crds.py), the agent encodes them, the controller decodes them. Unknown fields are ignored when
read, so either side may be newer.

All times are UTC with a time zone; a field's unit is the last word of its name (`_s`, `_bytes`).
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from detectors.wire.base import EVIDENCE_BYTES_MAX, Wire
from detectors.wire.fitting import UTF8
from detectors.wire.training import PodProgress, PodSettings, Signature

__all__ = [
    "API_VERSION",
    "DEVICES_MAX",
    "DEVICE_PODS_MAX",
    "FINDINGS_MAX",
    "GROUP",
    "INSTANCE_PODS_MAX",
    "INSTANCE_POD_CHARS_MAX",
    "OBJECT_BYTES_MAX",
    "PODS_MAX",
    "VERSION",
    "Coverage",
    "CoverageState",
    "Device",
    "DevicePod",
    "Family",
    "Fault",
    "Finding",
    "FoldedFindings",
    "LogPosition",
    "NodeHealth",
    "NodeHealthSpec",
    "NodeHealthStatus",
    "ObjectMeta",
    "Origin",
    "Remedy",
    "Severity",
    "Source",
    "Subject",
    "SubjectKind",
    "key",
]

GROUP = "rekindle.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

DEVICES_MAX = 64
DEVICE_PODS_MAX = 64
INSTANCE_PODS_MAX = 128
INSTANCE_POD_CHARS_MAX = 80
PODS_MAX = 64
FINDINGS_MAX = 32
OBJECT_BYTES_MAX = 30 * 1024


def key(name: str) -> str:
    """Returns the full name of one of our labels, annotations or taints: `rekindle.dev/<name>`."""
    return f"{GROUP}/{name}"


class Fault(StrEnum):
    """Fault class: the kind of thing that broke, and the value of the taint `rekindle.dev/unhealthy`."""

    DEVICE_LOST = "device-lost"
    DEVICE_RESET = "device-reset"
    MEMORY_DEGRADED = "memory-degraded"
    NVLINK = "nvlink"
    NVSWITCH = "nvswitch"
    NETWORK = "network"
    HOST = "host"
    HOST_HARDWARE = "host-hardware"
    STORAGE = "storage"
    THERMAL = "thermal"
    POWER = "power"
    DRIVER = "driver"
    RESOURCES = "resources"
    """The job has used up a resource: memory, a disk, a quota. This is a fault of the job, never of its
    node."""
    APPLICATION = "application"
    HANG = "hang"
    STRAGGLER = "straggler"
    CORRUPTION = "corruption"
    UNKNOWN = "unknown"


class Origin(StrEnum):
    """The writer of the evidence. Evidence of origin `tenant` never cordons a node."""

    KERNEL = "kernel"
    DRIVER = "driver"
    FABRIC = "fabric"
    KUBELET = "kubelet"
    VENDOR = "vendor"
    TENANT = "tenant"


class Severity(StrEnum):
    """Effect of the fault on work that uses the subject."""

    INFO = "info"
    """Rekindle records the finding, and no action follows."""
    SUSPECT = "suspect"
    """No proof: for a while restarts prefer other nodes. Rekindle stops no job and takes no node out of
    service for it."""
    PENDING = "pending"
    """Contained or degraded: the work continues. Rekindle acts at the next checkpoint, or at the gang's
    end."""
    FATAL = "fatal"
    """Work on this subject is lost."""


class Remedy(StrEnum):
    """The action that the document behind a code, such as NVIDIA's catalogue, recommends for the subject."""

    NONE = "none"
    RESTART_APPLICATION = "restart-application"
    RESET_DEVICE = "reset-device"
    DRAIN_AND_RESET = "drain-and-reset"
    REBOOT_NODE = "reboot-node"
    RESTART_VM = "restart-vm"
    INSPECT = "inspect"
    CONTACT_SUPPORT = "contact-support"


class SubjectKind(StrEnum):
    DEVICE = "device"
    """An accelerator."""
    SWITCH = "switch"
    """A switch between the node's accelerators: a fault of the switch may harm each of them."""
    ADAPTER = "adapter"
    """A network adapter."""
    NODE = "node"
    POD = "pod"


class Source(StrEnum):
    """A part of the node that the agent reads. Coverage is reported for each source."""

    KMSG = "kmsg"
    NVML = "nvml"
    PODS = "pods"
    LOGS = "logs"
    FABRIC = "fabric"
    """Ports of InfiniBand and RoCE adapters, in /sys."""
    VOLUMES = "volumes"
    """File systems that pods with accelerators mount."""
    HOST = "host"
    """The node itself: why it has booted, its clock, its pressure and processes."""


class Family(StrEnum):
    """A kind of faults for which an agent reports coverage. An agent finds faults of a family only if a rule,
    or the code of a source, reads the evidence of this family. That the source is readable is not enough.

    The kernel log has evidence of all families but GPU_HEALTH. Network ports are also evidence for NETWORK,
    volumes of pods for STORAGE, and the node itself for HOST."""

    GPU_XID = "gpu-xid"
    GPU_HEALTH = "gpu-health"
    """Read by NVML, and not from the kernel log."""
    GPU_DRIVER = "gpu-driver"
    NVSWITCH_SXID = "nvswitch-sxid"
    NETWORK = "network"
    PCIE = "pcie"
    HOST_MEMORY = "host-memory"
    STORAGE = "storage"
    OOM = "oom"
    HOST = "host"


class CoverageState(StrEnum):
    COVERED = "covered"
    BLIND = "blind"


class ObjectMeta(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """The part of a Kubernetes object's metadata that we read."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Subject(Wire, frozen=True, kw_only=True):
    """The thing that a finding is about."""

    kind: SubjectKind
    """Kind of thing that the finding is about."""
    device: Annotated[
        str, Meta(description="UUID of the GPU; empty if the source does not show it.", max_length=64)
    ] = ""
    pci: Annotated[
        str,
        Meta(
            description="PCI address as dddd:bb:dd, followed by .f if the source names the function.",
            max_length=32,
        ),
    ] = ""
    gpu_instance: Annotated[
        int | None,
        Meta(description="Id of the MIG GPU instance; absent if the finding is about the whole device."),
    ] = None
    pod: Annotated[str, Meta(description="UID of the pod, for subjects of kind pod.", max_length=64)] = ""
    volume: Annotated[
        str,
        Meta(
            description="Name by which the kubelet knows a volume of that pod: the name of the persistent "
            "volume, or the name in the pod's spec if there is no persistent volume.",
            max_length=253,
        ),
    ] = ""


class Finding(Wire, frozen=True, kw_only=True):
    """One fault as one source saw it. Repeats and consequences of the fault are part of the same finding."""

    id: Annotated[
        str,
        Meta(
            description="Name of the finding, unique on this node: the first 8 characters of the boot id, "
            "the source, and a sequence.",
            max_length=63,
        ),
    ]
    code: Annotated[
        str, Meta(description="Code of the finding in the catalogue, for example xid-79.", max_length=63)
    ]
    fault: Fault
    """Fault class: the kind of thing that broke."""
    origin: Origin
    """Origin of the evidence. Evidence whose origin is `tenant` never cordons a node."""
    severity: Severity
    """Effect of the fault on work that uses the subject: info (recorded only), suspect (restarts prefer other
    nodes), pending (the work goes on until its next checkpoint), fatal (the work is lost)."""
    subject: Subject
    boot_id: Annotated[
        str, Meta(description="Id of the boot in which the agent saw the fault.", max_length=64)
    ]
    first_seen: datetime
    """Time of the first line or sample that shows the fault."""
    last_seen: datetime
    """Time of the last line or sample that shows the fault."""
    remedy: Remedy = Remedy.NONE
    """Remedy that the document behind the code recommends for the subject."""
    final: Annotated[
        bool,
        Meta(
            description="True if no later line can make the finding less severe, so that decisions need "
            "not wait."
        ),
    ] = False
    sequence: Annotated[
        int,
        Meta(
            description="Sequence of the first record in the kernel log; 0 if the finding does not come "
            "from the kernel log."
        ),
    ] = 0
    count: Annotated[
        int, Meta(description="Number of lines or samples that this finding stands for.", ge=1)
    ] = 1
    evidence: Annotated[
        str,
        Meta(
            description="The first line, cut to 256 bytes of UTF-8.",
            max_length=EVIDENCE_BYTES_MAX,
            extra=UTF8,
        ),
    ] = ""
    confined: Annotated[
        bool,
        Meta(
            description="True if the fault harms only the GPU instance that the subject names; work in "
            "other instances of the device goes on."
        ),
    ] = False
    chain: Annotated[
        list[Annotated[str, Meta(max_length=63)]],
        Meta(description="Codes that followed on the same subject, in order.", max_length=16),
    ] = []
    cleared_at: Annotated[
        datetime | None,
        Meta(
            description="Time at which a reset or a verdict of the source ended the fault; absent while "
            "the fault is open."
        ),
    ] = None
    cleared_by: Annotated[str, Meta(description="The event that ended the fault.", max_length=128)] = ""


class FoldedFindings(Wire, frozen=True, kw_only=True):
    """The findings with one code that no longer fit into the list of findings, summed up."""

    code: Annotated[str, Meta(max_length=63)]
    """Code of the findings in the catalogue; `other` for codes that do not fit into this list either."""
    count: Annotated[int, Meta(ge=1)]
    """Number of lines or samples that these findings stand for."""
    last_seen: datetime
    """Time at which the agent last saw such a finding."""


class DevicePod(Wire, frozen=True, kw_only=True):
    """A pod that holds the device, or held it shortly before."""

    uid: Annotated[str, Meta(description="UID of the pod.", max_length=64)]
    namespace: Annotated[str, Meta(max_length=63)]
    """Namespace of the pod."""
    name: Annotated[str, Meta(max_length=253)]
    """Name of the pod."""


class Device(Wire, frozen=True, kw_only=True):
    """One accelerator of the node."""

    uuid: Annotated[str, Meta(max_length=64)]
    """UUID of the device, as its driver reports it."""
    pci: Annotated[str, Meta(max_length=32)] = ""
    """PCI address of the device."""
    model: Annotated[str, Meta(max_length=64)] = ""
    """Name of the device's model."""
    index: int | None = None
    """Index that the driver gives to the device."""
    minor: Annotated[int | None, Meta(description="N in the name of the device file /dev/nvidiaN.")] = None
    pods: Annotated[
        list[DevicePod],
        Meta(
            description="Pods that hold this device, or held it shortly before. The agent lists them only "
            "while a device of the node is broken, and, if pods share a device of the node, for 15 minutes "
            "after an exception of a program. A pod that is listed at no device may hold any device.",
            max_length=DEVICE_PODS_MAX,
        ),
    ] = []
    instance_pods: Annotated[
        list[Annotated[str, Meta(max_length=INSTANCE_POD_CHARS_MAX)]],
        Meta(
            description="One entry `<id>/<pod uid>` for each MIG GPU instance of the device that one of "
            "these pods holds. A pod without an entry holds the whole device, or its instance "
            "is not known.",
            max_length=INSTANCE_PODS_MAX,
        ),
    ] = []


class Coverage(Wire, frozen=True, kw_only=True):
    """Whether the agent reads a source, since when, and why not."""

    source: Source
    """The source: the kernel log (kmsg), NVML (nvml), the kubelet's answer about the devices of pods (pods),
    the logs of pods (logs), the ports of network adapters (fabric), the volumes of pods (volumes), or the
    node itself (host)."""
    state: CoverageState
    """`covered` if the agent reads the source, `blind` if the agent cannot read it."""
    since: datetime
    """Time since which both `state` and `why` have been the same."""
    why: Annotated[
        str,
        Meta(
            description="The error, if the source is blind. If the agent reads the source: the part that "
            "the agent does not read, for example the logs of some pods; empty if there is none.",
            max_length=256,
            extra=UTF8,
        ),
    ] = ""
    families: Annotated[
        list[Family],
        Meta(
            description="Families of faults that the agent's rules and code read from the source. Empty for "
            "an older agent, which does not report families.",
            max_length=16,
        ),
    ] = []


class LogPosition(Wire, frozen=True, kw_only=True):
    """Position in the kernel log at which the agent continues after a restart."""

    boot_id: Annotated[str, Meta(max_length=64)]
    """Id of the boot that the record belongs to."""
    sequence: int
    """Sequence of the last kernel log record that the agent has published."""


class NodeHealthStatus(Wire, frozen=True, kw_only=True):
    """State of the node as its agent sees it. Only the node's agent writes the status."""

    boot_id: Annotated[str, Meta(max_length=64)] = ""
    """Id of the node's present boot."""
    agent_version: Annotated[str, Meta(max_length=32)] = ""
    """Version of Rekindle's agent on the node."""
    driver_version: Annotated[str, Meta(max_length=32)] = ""
    """Version of the GPU driver; empty if it is not known."""
    observed_at: Annotated[
        datetime | None, Meta(description="Time at which the agent wrote this status.")
    ] = None
    refresh_s: Annotated[
        float,
        Meta(
            description="Interval in seconds within which the agent writes at least once. With 0, the "
            "agent writes only changes, and the readiness of its pod shows whether the agent runs.",
            ge=0,
        ),
    ] = 0.0
    devices: Annotated[list[Device], Meta(max_length=DEVICES_MAX)] = []
    """Accelerators of the node."""
    coverage: Annotated[list[Coverage], Meta(max_length=16)] = []
    """State of each source that the agent reads."""
    findings: Annotated[list[Finding], Meta(max_length=FINDINGS_MAX)] = []
    """Faults that the agent has found."""
    folded: Annotated[list[FoldedFindings], Meta(max_length=64)] = []
    """Findings that no longer fit into `findings`, summed up by code."""
    pods: Annotated[list[PodProgress], Meta(max_length=PODS_MAX)] = []
    """Progress of the training containers on the node."""
    pods_left_out: Annotated[
        bool,
        Meta(
            description="True if the agent has read more containers than `pods` lists, or does not read "
            "the logs of all containers. An older agent does not report this."
        ),
    ] = False
    whole_pods: Annotated[
        list[Annotated[str, Meta(max_length=64)]],
        Meta(
            description="UIDs of the pods that hold devices or are named in the spec, and of which `pods` "
            "leaves nothing out. The agent lists them only while it leaves pods out, or while "
            "`pods` is full.",
            max_length=PODS_MAX,
        ),
    ] = []
    kmsg: LogPosition | None = None
    """Position in the kernel log at which the agent continues after a restart."""
    catalogue_problems: Annotated[
        list[Annotated[str, Meta(max_length=512, extra=UTF8)]],
        Meta(
            description="Entries of the user's own catalogue that the agent does not use, each with the "
            "reason. The agent uses all other entries.",
            max_length=4,
        ),
    ] = []
    served_request: Annotated[
        str, Meta(description="Id of the last request that the agent has served.", max_length=63)
    ] = ""
    hands_off: Annotated[
        str,
        Meta(description="Id from `spec.handsOff`, once the agent has closed every device.", max_length=63),
    ] = ""


class NodeHealthSpec(Wire, frozen=True, kw_only=True):
    """Instructions to the node's agent. Only the controller writes the spec."""

    pods: Annotated[list[PodSettings], Meta(max_length=PODS_MAX)] = []
    """Settings for reading the logs of single pods."""
    signatures: Annotated[
        list[Signature],
        Meta(
            description="Log lines of the cluster's Recipe objects. Every agent also knows the lines "
            "of the built-in recipes.",
            max_length=32,
        ),
    ] = []
    request: Annotated[str, Meta(description="Id of a request to the agent.", max_length=63)] = ""
    hands_off: Annotated[
        str,
        Meta(
            description="Id of the repair step for which the agent must close the node's devices. The "
            "agent reads this field within 30 s while a device is broken, and within 5 "
            "minutes otherwise.",
            max_length=63,
        ),
    ] = ""


class NodeHealth(Wire, frozen=True, kw_only=True):
    """Health of one node, as its agent sees it. The NodeHealth has the name of the Node, which owns it."""

    api_version: str = API_VERSION
    kind: str = "NodeHealth"
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeHealthSpec = NodeHealthSpec()
    status: NodeHealthStatus = NodeHealthStatus()
