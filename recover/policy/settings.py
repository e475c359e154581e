"""The controller's settings: small groups, each field with its unit, default and reason.

Read from TOML by detectors.service.settings.load; unknown fields are refused. docs/reference/settings.md is
generated from this file.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from detectors.service.settings import PositiveSeconds, Seconds
from detectors.wire.contract import Fault, Severity
from recover.k8s.limits import LABEL_VALUE_CHARS_MAX
from recover.model.modes import Mode

__all__ = [
    "Budgets",
    "Images",
    "Lease",
    "LowerModes",
    "Maintenance",
    "Placement",
    "Repairs",
    "Retention",
    "Rooms",
    "Settings",
    "SignalRow",
    "Signals",
    "Templates",
    "Timing",
    "Validation",
    "Webhook",
]

Count = Annotated[int, Meta(ge=1)]
Percent = Annotated[float, Meta(ge=0, le=100)]
DnsLabel = Annotated[str, Meta(pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
LabelValue = Annotated[
    str, Meta(pattern="^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$", max_length=LABEL_VALUE_CHARS_MAX)
]


class Timing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long the controller waits. Every wait has an end."""

    settle_s: Seconds = 2.0
    """Time that a diagnosis which is not final waits for further lines, counted from the last kernel line of
    the fault: the Xids 48, 171, 63 and 154, one after the other, are one fault."""
    settle_max_s: Seconds = 10.0
    """Maximum wait of a diagnosis that is not final, counted from the first kernel line of the fault."""
    blame_window_s: Seconds = 120.0
    """If a gang fails within this time of a hardware finding on one of its nodes, the finding counts as
    the cause."""
    deleted_settle_s: Seconds = 1.0
    """Time that the controller waits after the deletion of a pod before it decides: the job may have ended,
    and the API server sends changes of jobs and of pods by different watches."""
    in_place_grace_s: Seconds = 5.0
    """Time that the controller waits for new steps after a single container has restarted in its pod: the
    training may be elastic."""
    stop_deadline_s: Seconds = 180.0
    """Time limit for the end of the old pods on Ready nodes, or 60 s after the end of their own
    `terminationGracePeriodSeconds` if that is later. After that, the recovery is Blocked until the pods have
    ended."""
    fence_wait_s: Seconds = 300.0
    """Time after which the controller treats the pods of a node that does not answer as ended, without proof
    that the node is off. This applies only if their volumes are shared (such as NFS) or local to the node.
    The default is Kubernetes' default toleration of an unreachable node."""
    scan_deadline_s: Seconds = 30.0
    """Time limit of the checkpoint scan. After that the framework chooses the checkpoint."""
    resume_deadline_s: Seconds = 600.0
    """Time limit until all pods run. After that, the recovery is Blocked, with the scheduler's reason."""
    per_rank_s: Annotated[float, Meta(ge=0, le=3600)] = 0.3
    """Time that each rank has to stop and to start. For a large gang, the sum over all ranks replaces
    `stop_deadline_s` and `resume_deadline_s` if the sum is longer: Kubernetes' controllers send 20 requests a
    second, and a pod needs several requests (in 180 s, 2,000 pods had not ended)."""
    verify_deadline_s: Seconds = 2700.0
    """Time limit until the first new step. Loading a large checkpoint from NFS takes 33 min on average
    (Lablup, 504 B200)."""
    checkpoint_grace_s: Seconds = 1800.0
    """Maximum time that the controller waits for the next checkpoint of a gang before it moves the gang off a
    degraded node: the log may not show when a checkpoint is complete."""
    recovery_window_s: Seconds = 86400.0
    """Length of the window for `budgets.recoveries_per_gang_max`."""


class Budgets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits on quarantines and restarts. If a limit has a number and a percentage, the smaller of the two
    applies, and at least one node is always allowed."""

    quarantined_percent_max: Percent = 5.0
    """Maximum share of quarantined nodes, as a percentage of the cluster's accelerator nodes."""
    quarantined_nodes_max: Count = 1000
    """Maximum number of quarantined nodes in the cluster."""
    quarantines_per_hour_max: Count = 20
    """Maximum number of new quarantines in the cluster within one hour."""
    pool_percent_max: Percent = 10.0
    """Maximum share of quarantined nodes in a pool, as a percentage of the nodes with the same value of
    `pool_label`."""
    pool_label: str = "node.kubernetes.io/instance-type"
    """Label of nodes. Each value of the label is one pool, also for `modes.pools` and for spares."""
    domain_nodes_max: Count = 1
    """Maximum number of quarantined nodes at a time among the nodes with the same value of `domain_label` (a
    rack or an NVLink domain)."""
    domain_label: str = "nvidia.com/gpu.clique"
    """Label of nodes. Each value of the label is one domain. A node without the label is in no domain."""
    brake_percent: Percent = 3.0
    """The brake engages when one fault class appears within `brake_window_s` on more than this percentage
    of the nodes, and on at least `brake_nodes_min` nodes. Rekindle takes no disruptive action until the
    window has passed."""
    brake_nodes_min: Count = 5
    """Minimum number of nodes for which the brake engages, so that it does not engage for one node of a small
    cluster."""
    brake_window_s: Seconds = 300.0
    """Length of the window in which nodes with the fault are counted, and of the pause after the brake
    engages."""
    attempts_per_cause_max: Count = 3
    """Maximum number of restarts of one gang for one cause without new steps. A cause is the fault class and
    the node of a hardware fault, or the first error of the gang's own failure. A restart counts only if all
    ranks ran."""
    recoveries_per_gang_max: Count = 48
    """Maximum number of recoveries of one gang within `timing.recovery_window_s`. Llama 3 405B had 8.6
    interruptions a day."""


class Placement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where and when the controller starts stopped gangs again."""

    hold_without_room: bool = True
    """The controller starts a stopped gang only when the present nodes have enough accelerators for all of
    its ranks. If the labels or taints of a node show Karpenter or Cluster Autoscaler, the controller
    starts the gang at once, because an autoscaler adds nodes only for pending pods. Set this to `false`
    with any other autoscaler."""
    suspicion_s: PositiveSeconds = 86_400.0
    """Maximum time for which gangs prefer other nodes to a suspected node. The suspicion ends earlier when a
    training makes steps on the node, after a reboot or a repair, and after a person has ended the node's
    quarantine."""
    again_s: PositiveSeconds = 10.0
    """Minimum time between two starts of one gang that the controller stopped and started again on better
    nodes, because not all of its ranks ran. Each further start doubles the time. These starts do not count as
    attempts."""
    again_max_s: PositiveSeconds = 900.0
    """Maximum time between two such starts: `again_s` doubles up to this time."""
    again_starts_max: Annotated[int, Meta(ge=1, le=128)] = 100
    """Maximum number of such starts in one recovery. After that the ranks wait on their present nodes."""


class Images(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    scan: str = "rekindle:latest"
    """Image of the scan pod. The image needs only the Python package `rekindle`."""
    repair: str = ""
    """Image for the containers of a repair whose template names no image. Empty: the image of the scan
    pod."""


class Retention(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long closed Incidents and ended Recoveries stay."""

    days: Annotated[float, Meta(gt=0, le=10_000)] = 30.0
    """Number of days that an object stays after its end. An object that is open, or still needed, stays
    longer."""
    objects_max: Count = 5000
    """Maximum number of Incidents, and maximum number of Recoveries. The controller deletes the oldest
    first."""
    interval_s: PositiveSeconds = 3600.0
    """Time between two searches for objects that have become too old."""


class Rooms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Maximum size of the objects of one namespace in the controller's cache, in MiB of JSON, so that one
    namespace cannot use up the controller's memory. A MiB of jobs takes up to 9 MiB of memory, and a MiB of
    pods up to 2.5 MiB."""

    jobs_mib: Count = 40
    """Maximum size of the jobs of all frameworks together. The default is enough for about 8,000 ordinary
    jobs."""
    pods_mib: Count = 96
    """Maximum size of the pods. The default is enough for about 160,000 ranks."""
    recoveries_mib: Count = 48
    """Maximum size of the Recoveries. The default is more than `retention.objects_max` Recoveries need."""


class Lease(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long one controller may write, so that no second controller writes at the same time. The
    defaults are those of Kubernetes' own controllers. One write may take `duration_s` minus
    `renew_deadline_s`."""

    duration_s: Annotated[int, Meta(ge=1, le=3600)] = 15
    """Time without a renewal of the Lease after which another controller takes over. The Lease allows only
    whole seconds."""
    renew_deadline_s: PositiveSeconds = 10.0
    """Time without an answer to its renewals after which the leader sends no further write, and ends."""
    retry_s: PositiveSeconds = 2.0
    """Time between two renewals by the leader, and between two reads of the Lease by a controller that
    stands by."""

    @property
    def is_in_order(self) -> bool:
        """Looked at when all of them are known: overrides come one by one."""
        return self.duration_s > self.renew_deadline_s > self.retry_s

    @property
    def write_timeout_s(self) -> float:
        """A write sent by a leader at its last moment is answered or given up before another one may lead."""
        return self.duration_s - self.renew_deadline_s

    @property
    def request_timeout_s(self) -> float:
        """Of a request for the lease itself: several can fail before the leader gives up."""
        return self.renew_deadline_s / 4


class LowerModes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lower modes for pools and namespaces. A mode above the cluster's mode has no effect. Rekindle does
    not act on faults that it saw before the mode of a pool or namespace was raised."""

    pools: dict[LabelValue, Mode] = {}
    """Modes by pool: the pool's value of `budgets.pool_label`. The mode applies to the nodes of the pool,
    and to gangs with a rank on one of these nodes."""
    namespaces: dict[DnsLabel, Mode] = {}
    """Modes by namespace, for the gangs of the namespace. The namespace's annotation `rekindle.dev/mode`
    may lower the mode further."""


class Templates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Files with the pod templates of a repair's steps: YAML with `metadata` and `spec`, as in a Job.
    Empty: the packaged templates. docs/repair.md describes the input of a container, and the result that
    it must leave."""

    reset: str = ""
    """Template that resets the devices in `REKINDLE_DEVICES`, or all devices. Exit code 0 means that the
    reset was done."""
    reboot: str = ""
    """Template that requests the reboot. A new boot id proves the reboot."""
    validate: str = ""
    """Template that checks the node, and writes its report as termination message."""


class Validation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The checks that a node must pass before Rekindle returns it to service."""

    required: tuple[str, ...] = ("devices", "kernel-log")
    """Checks that must run. If one of these checks fails or cannot run, the node stays in quarantine.
    Other checks that cannot run are only named in the Incident."""


class Webhook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A service outside the cluster that reboots nodes instead of a Job, for example of a cloud or of a
    management board."""

    url: Annotated[str, Meta(pattern="^(https?://.+)?$")] = ""
    """The controller sends a POST with `action`, `id`, `node`, `bootId` and more as JSON to this URL. The
    service answers 2xx if it will reboot the node. The same `id` may arrive again, and must then cause no
    second reboot. Empty: reboots are Jobs."""
    token_file: str = ""
    """A file whose text the controller sends as `Authorization: Bearer`. The controller reads the file
    again for each request."""
    timeout_s: PositiveSeconds = 10.0
    """Time limit of one request. The controller sends the request again every 10 s until the service
    accepts it, or the deadline of the reboot has passed."""


class Maintenance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An object by which another controller of the cluster reboots nodes, instead of a Job."""

    plural: str = ""
    """Plural name of the object's kind, for example `rebootnodes`. The controller needs the right to
    create and delete objects of this kind."""
    manifest: str = ""
    """The object in YAML. The controller replaces `{node}`, `{id}`, `{incident}` and `{fault}`. The name
    of the object is the id of the step, and the controller deletes the object after the reboot. Empty:
    reboots are Jobs, or requests to the webhook."""


class Repairs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the controller resets, reboots and validates quarantined nodes in mode `repair`, and returns them
    to service."""

    nodes_at_once_max: Count = 2
    """Maximum number of nodes under repair at a time. The smaller of this limit and `percent_at_once_max`
    applies."""
    percent_at_once_max: Percent = 2.0
    """Maximum share of nodes under repair at a time, as a percentage of the cluster's accelerator nodes, and
    at least 1."""
    resets_per_hour_max: Count = 10
    """Maximum number of resets in the cluster within one hour, so that a harmful template does little
    harm."""
    reboots_per_hour_max: Count = 5
    """Maximum number of reboots in the cluster within one hour."""
    repairs_per_node_max: Count = 2
    """Maximum number of repairs of one node within `repairs_window_s` after which the controller returned the
    node to service. If the node fails again after that, a person decides."""
    repairs_window_s: PositiveSeconds = 604_800.0
    """Length of the window for `repairs_per_node_max`. The default is a week."""
    cool_down_s: Seconds = 600.0
    """Minimum time between the return of a node to service after a repair and the next repair of the node."""
    wait_for_others_s: PositiveSeconds = 86_400.0
    """Maximum time that a repair waits for running pods, which the controller never evicts. After that, the
    controller hands the node over to a person."""
    not_ready_s: PositiveSeconds = 600.0
    """Time that the controller waits for a NotReady node to become Ready again before it repairs the node."""
    hands_off_s: Seconds = 60.0
    """Maximum time that the controller waits before a reset until the node's agent has closed the devices.
    After that, the reset begins without an answer. While a device is broken, the agent asks every 30 s."""
    reset_deadline_s: PositiveSeconds = 600.0
    """Time limit of a reset, from the begin of its Job to the end. After that, the controller reboots the
    node."""
    reboot_deadline_s: PositiveSeconds = 1200.0
    """Time limit of a reboot, until the node is Ready in a new boot; large servers take 15 min. After
    that, the controller hands the node over to a person."""
    validate_deadline_s: PositiveSeconds = 1800.0
    """Time limit of a validation, until the checks have reported, and the node's agent has reported from
    the present boot. After that, the checks count as failed."""
    job_keep_s: Seconds = 86_400.0
    """Time for which an ended Job of a repair stays, so that people can read its log. The time is at least 10
    min, so that the controller sees the end of the Job."""
    templates: Templates = Templates()
    validation: Validation = Validation()
    webhook: Webhook = Webhook()
    maintenance: Maintenance = Maintenance()


class SignalRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a condition, taint or label of a Node means. What is left out is that of the packaged row."""

    values: tuple[str, ...] = ()
    severity: Severity = Severity.SUSPECT
    fault: Fault | None = None


class LevelRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a level means that a device plugin reports."""

    severity: Severity
    fault: Fault | None = None
    """Instead of the class of the packaged row. The class of a known fault code of a chip comes first."""


class DeviceReports(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """ConfigMaps in which device plugins of vendors other than NVIDIA report their devices
    (docs/other-detectors.md). With `ascend` or `iluvatar` the controller needs the right to list and watch
    ConfigMaps in these namespaces; the chart gives this right. docs/reference/device-levels.md lists the
    levels; `severity` means the same as in the rows of `signals`."""

    ascend: bool = False
    """With `true`, the controller reads the reports of MindCluster: `mindx-dl-deviceinfo-*`,
    `mindx-dl-nodeinfo-*` and `cluster-info-*`."""
    iluvatar: bool = False
    """With `true`, the controller reads `ix-device-info-cm-*`, and compares the number of devices that the
    kubelet offers with the number that it has."""
    plugin_namespace: DnsLabel = "kube-system"
    """Namespace in which the device plugins write."""
    cluster_namespace: DnsLabel = "mindx-dl"
    """Namespace in which NodeD and ClusterD of MindCluster write."""
    ascend_labels: str = "mx-consumer-cim=true"
    """Label selector of the Ascend device plugin's ConfigMaps: the API server sends only these. Empty for
    plugins that write no label: then the API server sends all ConfigMaps of `plugin_namespace`."""
    chip: dict[str, LevelRow] = {}
    """Rows by the level of a chip, for example `SeparateNPU`. A level above `suspect` acts only if the
    fault code is known and has a time, and if both plugin and kubelet have withdrawn the chip."""
    switch: dict[str, LevelRow] = {}
    """Rows by the level of a switch between chips, for example `Separate`."""
    node: dict[str, LevelRow] = {}
    """Rows by the level of another part of the server, for example `SeparateFault`. NodeD reports no time,
    so such a fault is a suspicion at most."""


class Signals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Your own rows about signals that other controllers write on Nodes. A row replaces the packaged row
    of the same name (docs/reference/node-signals.md). A row sets at least one of three fields. `values`:
    the values that mean a fault. `severity`: `info` is only reported, `suspect` makes restarts prefer
    other nodes, `pending` and `fatal` act like findings of an agent. `fault`: the fault class, which
    decides the action."""

    conditions: dict[str, SignalRow] = {}
    """Rows by the type of the condition, for example `GpuMemWatch`. A new row without values means status
    `True`."""
    taints: dict[str, SignalRow] = {}
    """Rows by the key of the taint. A new row without values means any value. A taint without `timeAdded`
    makes its node a suspect at most."""
    labels: dict[str, SignalRow] = {}
    """Rows by the key of the label, for example `autopilot.ibm.com/gpuhealth`. A new row without values
    means any value."""
    reports: DeviceReports = DeviceReports()


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mode: Mode = Mode.OBSERVE
    """`observe`: Rekindle only reports what it would do. `recover`: it quarantines nodes and restarts
    gangs with consent. `repair`: it also resets, reboots and validates quarantined nodes, and returns them
    to service."""
    modes: LowerModes = LowerModes()
    namespace: DnsLabel = "rekindle-system"
    """Namespace of the controller's ConfigMap and Lease: the namespace of the Helm release."""
    scheduling_gates: bool = True
    """`true` if the API server supports scheduling gates (Kubernetes 1.27 and later). With `false`, the
    controller creates the scan pod only when the old pods have ended, and each recovery waits for the start
    of the scan."""
    agents_are_pods: bool = False
    """`true` if agents are pods of the chart's DaemonSet, in `namespace`; the chart sets this. Then a node
    counts as not watched if its agent's pod is missing or not ready. With `false`, the age of the agent's
    last write decides."""
    node_condition: bool = False
    """With `true`, the controller writes the condition `AcceleratorHealthy` on each accelerator node, for
    tools that read the condition. Some tools can be configured to delete a node with this condition, for
    example Karpenter and the auto-repair of clouds: they do not respect Rekindle's budgets, brake, holds or
    modes. With `false`, Rekindle writes no such condition, and removes the conditions that it has
    written."""
    accelerators: tuple[str, ...] = (
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "nvidia.com/mps-core",
        "volcano.sh/vgpu-number",
        "tencent.com/vcuda-core",
        "huawei.com/Ascend910",
        "huawei.com/Ascend910A",
        "huawei.com/Ascend910B2",
        "huawei.com/Ascend910B3",
        "huawei.com/Ascend910B4",
        "huawei.com/Ascend910B4-1",
        "huawei.com/Ascend910C",
        "huawei.com/Ascend310",
        "huawei.com/Ascend310P",
        "huawei.com/npu",
        "iluvatar.ai/gpu",
        "iluvatar.com/gpu",
        "iluvatar.ai/BI-V100-vgpu",
        "iluvatar.ai/BI-V150-vgpu",
        "iluvatar.ai/MR-V50-vgpu",
        "iluvatar.ai/MR-V100-vgpu",
        "amd.com/gpu",
    )
    """Names of resources. A node that offers one of them is an accelerator node, and a pod that requests one
    of them is a rank. `nvidia.com/mig-*`, virtual NPUs such as `huawei.com/Ascend910-8c`,
    `huawei.com/Ascend310P-V`, `-VPro` and `-IPro`, and `iluvatar.ai/*-vgpu` always count as such resources.
    The names with a chip, such as `huawei.com/Ascend910B2`, are the names that HAMi uses."""
    accelerator_maps: bool = False
    """With `true`, the controller reads further names of such resources at its start, from the ConfigMaps
    `cf-crl-*` in `kube-public` (label `features.alauda.io/type: CustomResourceLimitation`). The controller
    leaves out keys that end in memory, cores or percentage, because they count no devices. The chart gives
    the right to list these ConfigMaps."""
    timing: Timing = Timing()
    budgets: Budgets = Budgets()
    placement: Placement = Placement()
    images: Images = Images()
    retention: Retention = Retention()
    room: Rooms = Rooms()
    lease: Lease = Lease()
    repair: Repairs = Repairs()
    signals: Signals = Signals()
