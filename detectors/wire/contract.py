"""NodeHealth: the wire between agent and controller.

The agent writes `status` of the one NodeHealth that bears its node's name, the controller writes `spec`.
These structs, and those of training.py, are the single definition: the CRD is generated from them
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
    """The full name of one of our labels, annotations or taints: `rekindle.dev/<name>`."""
    return f"{GROUP}/{name}"


class Fault(StrEnum):
    """What kind of thing broke. Also the value of the taint `rekindle.dev/unhealthy`."""

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
    """What a job may use is used up: memory, a disk, a quota. It is the job's, never its node's."""
    APPLICATION = "application"
    HANG = "hang"
    STRAGGLER = "straggler"
    CORRUPTION = "corruption"
    UNKNOWN = "unknown"


class Origin(StrEnum):
    """Who could have made the evidence. `tenant` evidence never cordons a node."""

    KERNEL = "kernel"
    DRIVER = "driver"
    FABRIC = "fabric"
    KUBELET = "kubelet"
    VENDOR = "vendor"
    TENANT = "tenant"


class Severity(StrEnum):
    """What the finding means for work on its subject right now."""

    INFO = "info"
    """Recorded, never acted upon."""
    SUSPECT = "suspect"
    """No proof: for a while other nodes are preferred to this one. Nothing is stopped for it, and no node is
    taken out."""
    PENDING = "pending"
    """Contained or degraded: work goes on; act at the next checkpoint or at the gang's end."""
    FATAL = "fatal"
    """Work on this subject is lost."""


class Remedy(StrEnum):
    """What the source (NVIDIA's catalogue, the vendor's verdict) recommends for the subject."""

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
    """Between the node's accelerators: what harms it may harm each of them."""
    ADAPTER = "adapter"
    """Of a network."""
    NODE = "node"
    POD = "pod"


class Source(StrEnum):
    """A thing the agent watches; coverage is stated for each."""

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
    """A kind of faults that a rule may read. Until a rule reads a family's lines, its faults are not seen,
    however well the source itself is read."""

    GPU_XID = "gpu-xid"
    GPU_HEALTH = "gpu-health"
    """By NVML. The ports of the network are read for `network`, too, and volumes for `storage`; all others by
    the kernel log."""
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
    """What a finding is about."""

    kind: SubjectKind
    device: Annotated[str, Meta(description="GPU UUID, or empty where unknown", max_length=64)] = ""
    pci: Annotated[
        str,
        Meta(description="PCI address dddd:bb:dd, with .f if the source tells the function", max_length=32),
    ] = ""
    gpu_instance: Annotated[int | None, Meta(description="MIG GPU instance id")] = None
    pod: Annotated[str, Meta(description="pod uid, for subjects of kind pod", max_length=64)] = ""
    volume: Annotated[
        str,
        Meta(
            description="name of a volume of that pod, as its kubelet has it: the persistent volume's, or "
            "without one the name in the pod's spec",
            max_length=253,
        ),
    ] = ""


class Finding(Wire, frozen=True, kw_only=True):
    """One fault as one source saw it, after the chain has folded repeats and consequences into it."""

    id: Annotated[
        str, Meta(description="unique on this node: <first 8 of boot id>-<source>-<sequence>", max_length=63)
    ]
    code: Annotated[str, Meta(description="catalogue code, for example xid-79", max_length=63)]
    fault: Fault
    origin: Origin
    severity: Severity
    subject: Subject
    boot_id: Annotated[str, Meta(description="the boot in which it was seen", max_length=64)]
    first_seen: datetime
    last_seen: datetime
    remedy: Remedy = Remedy.NONE
    final: Annotated[
        bool, Meta(description="a verdict that later lines cannot soften: decisions need not wait")
    ] = False
    sequence: Annotated[int, Meta(description="kernel record sequence of the first line, or 0")] = 0
    count: Annotated[int, Meta(description="lines folded into this finding", ge=1)] = 1
    evidence: Annotated[
        str,
        Meta(
            description="the first line, cut to 256 bytes of UTF-8",
            max_length=EVIDENCE_BYTES_MAX,
            extra=UTF8,
        ),
    ] = ""
    confined: Annotated[
        bool,
        Meta(
            description="it harms the subject's gpuInstance alone: work in other instances of the device "
            "goes on"
        ),
    ] = False
    chain: Annotated[
        list[Annotated[str, Meta(max_length=63)]],
        Meta(description="codes that followed on the same subject, in order", max_length=16),
    ] = []
    cleared_at: Annotated[datetime | None, Meta(description="when a reset or recovery verdict ended it")] = (
        None
    )
    cleared_by: Annotated[str, Meta(description="what ended it", max_length=128)] = ""


class FoldedFindings(Wire, frozen=True, kw_only=True):
    """Findings that no longer fit, by code."""

    code: Annotated[str, Meta(max_length=63)]
    count: Annotated[int, Meta(ge=1)]
    last_seen: datetime


class DevicePod(Wire, frozen=True, kw_only=True):
    """A pod that was given a device."""

    uid: Annotated[str, Meta(description="pod uid", max_length=64)]
    namespace: Annotated[str, Meta(max_length=63)]
    name: Annotated[str, Meta(max_length=253)]


class Device(Wire, frozen=True, kw_only=True):
    """One accelerator of the node's inventory."""

    uuid: Annotated[str, Meta(max_length=64)]
    pci: Annotated[str, Meta(max_length=32)] = ""
    model: Annotated[str, Meta(max_length=64)] = ""
    index: int | None = None
    minor: Annotated[int | None, Meta(description="N of its device file /dev/nvidiaN")] = None
    pods: Annotated[
        list[DevicePod],
        Meta(
            description="while a device of the node is broken: pods that hold this one, or did lately; "
            "a pod that stands at no device may hold any",
            max_length=DEVICE_PODS_MAX,
        ),
    ] = []
    instance_pods: Annotated[
        list[Annotated[str, Meta(max_length=INSTANCE_POD_CHARS_MAX)]],
        Meta(
            description="`<id>/<pod uid>` for each MIG GPU instance of the device that one of these pods "
            "holds; a pod without any holds the whole device, or nobody knows which of its instances",
            max_length=INSTANCE_PODS_MAX,
        ),
    ] = []


class Coverage(Wire, frozen=True, kw_only=True):
    """Since when a source is read, or why it is not."""

    source: Source
    state: CoverageState
    since: datetime
    why: Annotated[str, Meta(description="the error, for a blind source", max_length=256, extra=UTF8)] = ""
    families: Annotated[
        list[Family],
        Meta(
            description="kinds of faults that the agent's rules read from it; empty if no rule does, and for "
            "an older agent, which does not report them",
            max_length=16,
        ),
    ] = []


class LogPosition(Wire, frozen=True, kw_only=True):
    """Where the agent goes on reading the kernel log after its own restart."""

    boot_id: Annotated[str, Meta(max_length=64)]
    sequence: int


class NodeHealthStatus(Wire, frozen=True, kw_only=True):
    """Written by the node's agent alone."""

    boot_id: Annotated[str, Meta(max_length=64)] = ""
    agent_version: Annotated[str, Meta(max_length=32)] = ""
    driver_version: Annotated[str, Meta(max_length=32)] = ""
    observed_at: Annotated[datetime | None, Meta(description="time of this write")] = None
    refresh_s: Annotated[
        float,
        Meta(
            description="the agent writes at least this often, even if nothing changes; 0: it writes only "
            "changes, and the readiness of its pod shows whether it lives",
            ge=0,
        ),
    ] = 0.0
    devices: Annotated[list[Device], Meta(max_length=DEVICES_MAX)] = []
    coverage: Annotated[list[Coverage], Meta(max_length=16)] = []
    findings: Annotated[list[Finding], Meta(max_length=FINDINGS_MAX)] = []
    folded: Annotated[list[FoldedFindings], Meta(max_length=64)] = []
    pods: Annotated[list[PodProgress], Meta(max_length=PODS_MAX)] = []
    pods_left_out: Annotated[
        bool,
        Meta(
            description="the agent has read more containers than stand in pods, or does not read the logs of "
            "all; an older agent does not report it"
        ),
    ] = False
    whole_pods: Annotated[
        list[Annotated[str, Meta(max_length=64)]],
        Meta(
            description="while pods are left out, or pods is full: uids of the pods that hold devices or "
            "stand in the spec, and of which nothing is left out",
            max_length=PODS_MAX,
        ),
    ] = []
    kmsg: LogPosition | None = None
    catalogue_problems: Annotated[
        list[Annotated[str, Meta(max_length=256, extra=UTF8)]],
        Meta(
            description="what of the user's own catalogue is not used, and why; the rest of it is",
            max_length=4,
        ),
    ] = []
    served_request: Annotated[str, Meta(description="id of the last request served", max_length=63)] = ""
    hands_off: Annotated[
        str, Meta(description="the spec's handsOff, once the agent holds no device any more", max_length=63)
    ] = ""


class NodeHealthSpec(Wire, frozen=True, kw_only=True):
    """Written by the controller alone."""

    pods: Annotated[list[PodSettings], Meta(max_length=PODS_MAX)] = []
    signatures: Annotated[
        list[Signature], Meta(description="beside those that every agent knows", max_length=32)
    ] = []
    request: Annotated[str, Meta(description="id of a request to the agent", max_length=63)] = ""
    hands_off: Annotated[
        str,
        Meta(
            description="id of the step of a repair for which the agent lets go of the node's devices; it "
            "reads this at its next ask: within 30 s while a device is broken, else within 5 minutes",
            max_length=63,
        ),
    ] = ""


class NodeHealth(Wire, frozen=True, kw_only=True):
    """Health of one node, as its agent sees it. Same name as the Node, owned by it."""

    api_version: str = API_VERSION
    kind: str = "NodeHealth"
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeHealthSpec = NodeHealthSpec()
    status: NodeHealthStatus = NodeHealthStatus()
