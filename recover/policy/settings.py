"""The controller's settings: small groups, each field with its unit, default and reason.

detectors.service.settings.load reads the settings from TOML, and refuses unknown fields.
docs/reference/settings.md is generated from this file.
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
    """If a further kernel line could change the diagnosis of a fault, the controller waits for this time
    after the last line before it decides: the Xids 48, 171, 63 and 154, one after the other, are one
    fault."""
    settle_max_s: Seconds = 10.0
    """Maximum time of the wait for further kernel lines (`settle_s`), counted from the fault's first line."""
    blame_window_s: Seconds = 120.0
    """If a gang fails within this time of a hardware finding on one of its nodes, the controller treats the
    finding as the cause. If the controller has restarted the gang for a finding that only degrades the node,
    the finding is not the cause of a later failure, unless it occurs again."""
    deleted_settle_s: Seconds = 1.0
    """Time that the controller waits after the deletion of a pod before it decides: the job may have ended,
    and the API server sends changes of jobs and of pods by different watches."""
    in_place_grace_s: Seconds = 5.0
    """Time that the controller waits for new steps after a single container has restarted in its pod: the
    training may be elastic."""
    stop_deadline_s: Seconds = 180.0
    """Time limit for the end of the old pods on Ready nodes. If the pods' `terminationGracePeriodSeconds`
    plus 60 s is longer, that time is the limit. After the limit, the recovery is Blocked until the pods have
    ended."""
    fence_wait_s: Seconds = 300.0
    """Time after which the controller treats the pods of a node that does not answer as ended, without proof
    that the node is off. The controller does so only for pods whose volumes are shared (such as NFS) or local
    to the node; for pods with other volumes it waits for proof. The default is Kubernetes' default toleration
    of an unreachable node."""
    scan_deadline_s: Seconds = 30.0
    """Time limit of the checkpoint scan. After the limit, the framework chooses the checkpoint."""
    resume_deadline_s: Seconds = 600.0
    """Time limit until all new pods run. After the limit, the recovery is Blocked, and its message has the
    scheduler's reason."""
    per_rank_s: Annotated[float, Meta(ge=0, le=3600)] = 0.3
    """Time that each rank has to stop and to start. For a large gang, the sum over all ranks replaces
    `stop_deadline_s` and `resume_deadline_s` if the sum is longer: Kubernetes' controllers send 20 requests a
    second, and a pod needs several requests (in 180 s, 2,000 pods had not ended)."""
    verify_deadline_s: Seconds = 2700.0
    """Time limit until the first new step. After the limit, the controller restarts the job, or ends the
    recovery as unverified if the job's steps cannot be read. Loading a large checkpoint from NFS takes 33 min
    on average (Lablup, 504 B200)."""
    checkpoint_grace_s: Seconds = 1800.0
    """Maximum time that the controller waits for the next checkpoint of a gang before it moves the gang off a
    degraded node: the log may not show when a checkpoint is complete."""
    recovery_window_s: Seconds = 86400.0
    """Length of the window for `budgets.recoveries_per_gang_max`."""


class Budgets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits on quarantines and restarts. Beyond a limit Rekindle takes no further action of this kind, and
    records the reason `BudgetExhausted`. If a limit has a number and a percentage, the smaller of the two
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
    """Label of nodes. Each value of the label is one pool. `modes.pools` and spares use
    the same pools."""
    domain_nodes_max: Count = 1
    """Maximum number of quarantined nodes at a time among the nodes with the same value of `domain_label` (a
    rack or an NVLink domain)."""
    domain_label: str = "nvidia.com/gpu.clique"
    """Label of nodes. Each value of the label is one domain. A node without the label is in no domain."""
    brake_percent: Percent = 3.0
    """The brake engages when one fault class appears within `brake_window_s` on more than this percentage
    of the accelerator nodes, and on at least `brake_nodes_min` nodes. Rekindle takes no disruptive action
    until the window has passed."""
    brake_nodes_min: Count = 5
    """Minimum number of nodes with the fault class for which the brake engages, so that one node of a small
    cluster does not engage the brake."""
    brake_window_s: Seconds = 300.0
    """Length of the window in which the brake counts nodes with the same fault class. The brake ends at the
    latest when no further node has shown this fault class for this time."""
    attempts_per_cause_max: Count = 3
    """Maximum number of restarts of one gang for one cause without progress. Progress is a newer complete
    checkpoint or, if no checkpoint can be verified, a higher step. A cause is the fault class and
    the node of a hardware fault, or the first error of the gang's own failure. The limit includes only
    restarts after which all ranks ran, or a rank failed within two minutes. Beyond the limit the job stays
    stopped (`CrashLoop`)."""
    recoveries_per_gang_max: Count = 48
    """Maximum number of recoveries of one gang within `timing.recovery_window_s`. Llama 3 405B had 8.6
    interruptions a day."""


class Placement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where and when the controller starts stopped gangs again."""

    hold_without_room: bool = True
    """The controller starts a stopped gang only when the present nodes have enough accelerators for all of
    its ranks. If a GPU node has a label of Karpenter, or a taint by which Cluster Autoscaler marks a node
    that it wants to remove, the controller starts the gang at once, because an autoscaler adds nodes only for
    pending pods. If an autoscaler should add nodes and no GPU node has such a label or taint, set
    `hold_without_room` to `false`."""
    suspicion_s: PositiveSeconds = 86_400.0
    """Maximum time for which gangs prefer other nodes to a suspected node. The suspicion ends earlier when
    the agent withdraws the finding, when a training makes steps on the node, after a repair, and after a
    person has ended the node's quarantine. A suspicion because of a finding also ends after a reboot."""
    again_s: PositiveSeconds = 10.0
    """If some ranks of a started gang do not run, the controller may stop the gang and start it again on
    better nodes. This is the minimum time between two of these starts; each further start doubles the time.
    These starts are no attempts: `budgets.attempts_per_cause_max` does not limit them."""
    again_max_s: PositiveSeconds = 900.0
    """Maximum of the time between two starts on better nodes (see `again_s`), which doubles with each
    start."""
    again_starts_max: Annotated[int, Meta(ge=1, le=128)] = 100
    """Maximum number of starts on better nodes (see `again_s`) in one recovery. After this number, the ranks
    wait on their present nodes."""


class Images(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    scan: str = "rekindle:latest"
    """Image of the scan pod, which reads the volume of a job to find the newest complete checkpoint. The
    image needs only the Python package `rekindle`."""
    repair: str = ""
    """Image for the containers of a repair whose template names no image. If the value is empty, these
    containers use the image of the scan pod."""


class Retention(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long the controller keeps closed Incidents and ended Recoveries before it deletes them."""

    days: Annotated[float, Meta(gt=0, le=10_000)] = 30.0
    """Number of days for which the controller keeps an Incident after it was closed, and a Recovery after it
    ended. The controller keeps an object that it still needs for longer."""
    objects_max: Count = 5000
    """Maximum number of Incidents in the cluster, and maximum number of Recoveries. If there are more, the
    controller deletes the oldest closed Incidents and ended Recoveries of the namespaces and nodes that have
    the most."""
    interval_s: PositiveSeconds = 3600.0
    """Time between two searches for objects that have become too old. While there are more than half of
    `objects_max`, the controller searches every 30 s."""


class Rooms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of the controller's cache for each namespace, in MiB of the objects' JSON, so that no namespace
    can use up the controller's memory. Beyond a limit the controller skips further objects of that namespace
    until others are deleted. 1 MiB of jobs takes up to 9 MiB of memory, and 1 MiB of pods up to 2.5 MiB."""

    jobs_mib: Count = 40
    """Maximum size in MiB of all jobs that the controller caches for each namespace, all frameworks together.
    The default is enough for about 8,000 ordinary jobs."""
    pods_mib: Count = 96
    """Maximum size in MiB of all pods that the controller caches for each namespace. The default is enough
    for about 160,000 ranks."""
    recoveries_mib: Count = 48
    """Maximum size in MiB of all Recoveries that the controller caches for each namespace. The default is
    more than `retention.objects_max` Recoveries need."""


class Lease(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long one controller may write, so that no second controller writes at the same time. The
    defaults are those of Kubernetes' own controllers. One write may take `duration_s` minus
    `renew_deadline_s`."""

    duration_s: Annotated[int, Meta(ge=1, le=3600)] = 15
    """Time without a renewal of the Lease after which another controller takes over. The Lease allows only
    whole seconds."""
    renew_deadline_s: PositiveSeconds = 10.0
    """If the API server answers no renewal of the Lease for this time, the leader sends no further write, and
    ends."""
    retry_s: PositiveSeconds = 2.0
    """Time between two renewals by the leader, and between two reads of the Lease by a controller that
    stands by."""

    @property
    def is_in_order(self) -> bool:
        """Whether the values fit together. This is checked when all values are known, since overrides come
        one by one."""
        return self.duration_s > self.renew_deadline_s > self.retry_s

    @property
    def write_timeout_s(self) -> float:
        """Time limit of a write. A write that a leader sends at its last moment is then answered or given up
        before another controller may lead."""
        return self.duration_s - self.renew_deadline_s

    @property
    def request_timeout_s(self) -> float:
        """Time limit of a request for the Lease: several can fail before the leader gives up."""
        return self.renew_deadline_s / 4


class LowerModes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lower modes for pools and namespaces. A mode above the cluster's mode has no effect. Rekindle does
    not act on faults that it saw before the mode of a pool or namespace was raised, unless they occur again
    or continue."""

    pools: dict[LabelValue, Mode] = {}
    """Modes by pool: the pool's value of `budgets.pool_label`. The mode applies to the nodes of the pool,
    and to gangs with a rank on one of these nodes."""
    namespaces: dict[DnsLabel, Mode] = {}
    """Modes by namespace, for the gangs of the namespace. The namespace's annotation `rekindle.dev/mode`
    may lower the mode further."""


class Templates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Files with the pod templates of a repair's steps: YAML with `metadata` and `spec`, as in a Job.
    Without a file, a step uses the packaged template. docs/repair.md describes the input of a container,
    and the result that it must leave."""

    reset: str = ""
    """File with the template of the pod that resets the devices in `REKINDLE_DEVICES`, or all devices.
    Exit code 0 means that the reset was done."""
    reboot: str = ""
    """File with the template of the pod that requests the reboot. A new boot id proves the reboot."""
    validate: str = ""
    """File with the template of the pod that checks the node, and writes its report as termination
    message."""


class Validation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The checks that a node must pass before Rekindle returns it to service."""

    required: tuple[str, ...] = ("devices", "kernel-log")
    """Checks that must run. If one of these checks fails or cannot run, the node stays in quarantine.
    If another check cannot run, the Incident names the check, and the validation can still pass."""


class Webhook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A service outside the cluster that reboots nodes, for example the service of a cloud or of a management
    board. The controller then creates no Job for reboots."""

    url: Annotated[str, Meta(pattern="^(https?://.+)?$")] = ""
    """The controller sends a POST with `action`, `id`, `node`, `bootId` and more as JSON to this URL. The
    service answers 2xx if it will reboot the node. The same `id` may arrive again, and must then cause no
    second reboot. Without a URL, reboots are Jobs."""
    token_file: str = ""
    """Path of a file with the token that the controller sends in the header `Authorization: Bearer`. The
    controller reads the file again for each request."""
    timeout_s: PositiveSeconds = 10.0
    """Time limit of one request to the service. The controller sends the request again every 10 s until the
    service accepts it, or the deadline of the reboot has passed."""


class Maintenance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An object by which another controller of the cluster reboots nodes. The controller of Rekindle then
    creates no Job for reboots."""

    plural: str = ""
    """Plural name of the object's kind, for example `rebootnodes`. The controller needs the permission to
    get, create and delete objects of this kind."""
    manifest: str = ""
    """The object in YAML. The controller replaces `{node}`, `{id}`, `{incident}` and `{fault}`. The name
    of the object is the id of the step, and the controller deletes the object after the reboot. Without a
    manifest, reboots are Jobs, or requests to the webhook."""


class Repairs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the controller resets, reboots and validates quarantined nodes in mode `repair`, and returns them
    to service."""

    nodes_at_once_max: Count = 2
    """Maximum number of nodes under repair at a time. The smaller of this limit and `percent_at_once_max`
    applies."""
    percent_at_once_max: Percent = 2.0
    """Maximum share of nodes under repair at a time, as a percentage of the cluster's accelerator nodes. One
    node is always allowed."""
    resets_per_hour_max: Count = 10
    """Maximum number of resets in the cluster within one hour, so that a harmful template does little
    harm."""
    reboots_per_hour_max: Count = 5
    """Maximum number of reboots in the cluster within one hour."""
    repairs_per_node_max: Count = 2
    """Maximum number of successful repairs of one node within `repairs_window_s`. If the node fails again
    after this number, the controller hands the node over to a person."""
    repairs_window_s: PositiveSeconds = 604_800.0
    """Length of the window for `repairs_per_node_max`. The default is a week."""
    cool_down_s: Seconds = 600.0
    """Minimum time between the return of a node to service after a repair and the next repair of the node."""
    wait_for_others_s: PositiveSeconds = 86_400.0
    """Maximum time for which a repair waits until the running pods of the node have ended: the controller
    never evicts them. After this time, the controller hands the node over to a person."""
    not_ready_s: PositiveSeconds = 600.0
    """Time that the controller waits for a NotReady node to become Ready again before it repairs the node."""
    hands_off_s: Seconds = 60.0
    """Maximum time for which the controller waits, before a reset, until the node's agent reports that it has
    closed the devices. After this time, the reset begins without the report. While a device is broken, the
    agent reads the controller's request every 30 s."""
    reset_deadline_s: PositiveSeconds = 600.0
    """Time limit of a reset, from the start of its Job to the end. After the limit, the controller reboots
    the node."""
    reboot_deadline_s: PositiveSeconds = 1200.0
    """Time limit of a reboot, until the node is Ready in a new boot; large servers take 15 min. After
    the limit, the controller hands the node over to a person."""
    driver_wait_s: Seconds = 600.0
    """Maximum time after a boot for which the controller waits, before a validation, until the node's agent
    shows a GPU, or the kubelet offers one. After this time, the validation begins without the GPUs. In some
    clusters a container loads the driver, minutes after the node is Ready."""
    validate_deadline_s: PositiveSeconds = 1800.0
    """Time limit of a validation, until the checks have reported, and the node's agent has reported from
    the present boot. After the limit, the validation has failed."""
    job_keep_s: Seconds = 86_400.0
    """Time for which an ended Job of a repair stays in the cluster, so that people can read its log. A value
    below 10 min has the effect of 10 min, so that the controller sees the end of the Job."""
    templates: Templates = Templates()
    validation: Validation = Validation()
    webhook: Webhook = Webhook()
    maintenance: Maintenance = Maintenance()


class SignalRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The meaning of a condition, taint or label of a Node. A missing value is that of the packaged row."""

    values: tuple[str, ...] = ()
    severity: Severity = Severity.SUSPECT
    fault: Fault | None = None


class LevelRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The meaning of a level that a device plugin reports."""

    severity: Severity
    fault: Fault | None = None
    """The fault class, in place of the class of the packaged row. The class of a known fault code of a chip
    has priority."""


class DeviceReports(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """ConfigMaps in which device plugins of vendors other than NVIDIA report their devices
    (docs/other-detectors.md). With `ascend` or `iluvatar` the controller needs the permission to list and
    watch ConfigMaps in these namespaces; the chart gives this permission. docs/reference/device-levels.md
    lists the levels; `severity` means the same as in the rows of `signals`."""

    ascend: bool = False
    """With `true`, the controller reads the reports of MindCluster: the ConfigMaps `mindx-dl-deviceinfo-*`,
    `mindx-dl-nodeinfo-*` and `cluster-info-*`."""
    iluvatar: bool = False
    """With `true`, the controller reads the ConfigMaps `ix-device-info-cm-*`, and compares the number of
    allocatable devices with the capacity of the node."""
    plugin_namespace: DnsLabel = "kube-system"
    """Namespace in which the device plugins write."""
    cluster_namespace: DnsLabel = "mindx-dl"
    """Namespace in which NodeD and ClusterD of MindCluster write."""
    ascend_labels: str = "mx-consumer-cim=true"
    """Label selector of the Ascend device plugin's ConfigMaps: the API server sends only these. Empty for
    plugins that write no label: then the API server sends all ConfigMaps of `plugin_namespace`."""
    chip: dict[str, LevelRow] = {}
    """The severity for each level that the plugin reports of a chip, for example of `SeparateNPU`. A
    severity above `suspect` applies only if the fault code is known, if the plugin reports the time of the
    fault, and if neither plugin nor kubelet offers the chip any more."""
    switch: dict[str, LevelRow] = {}
    """The severity for each level that the plugin reports of a switch between chips, for example of
    `Separate`."""
    node: dict[str, LevelRow] = {}
    """The severity for each level that NodeD reports of another part of the server, for example of
    `SeparateFault`. NodeD reports no time, so such a fault is a suspicion at most."""


class Signals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Your own rows about signals that other controllers write on Nodes. A row sets at least one of three
    fields; for the other fields, the packaged row of the same name applies (docs/reference/node-signals.md).
    `values`: the values that mean a fault. `severity`: with `info`, Rekindle only reports the signal; with
    `suspect`, restarts prefer other nodes; with `pending` or `fatal`, Rekindle acts as on a finding of an
    agent of this severity. `fault`: the fault class, which decides the action."""

    conditions: dict[str, SignalRow] = {}
    """Rows by the type of the condition, for example `GpuMemWatch`. In a new row without values, the status
    `True` means a fault."""
    taints: dict[str, SignalRow] = {}
    """Rows by the key of the taint. In a new row without values, every value means a fault. A taint without
    `timeAdded` makes its node a suspect at most."""
    labels: dict[str, SignalRow] = {}
    """Rows by the key of the label, for example `autopilot.ibm.com/gpuhealth`. In a new row without values,
    every value means a fault."""
    reports: DeviceReports = DeviceReports()


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mode: Mode = Mode.OBSERVE
    """`observe`: Rekindle only reports what it would do. `recover`: Rekindle quarantines nodes and restarts
    gangs with consent. `repair`: Rekindle also resets, reboots and validates quarantined nodes, and returns
    them to service."""
    modes: LowerModes = LowerModes()
    namespace: DnsLabel = "rekindle-system"
    """Namespace of the controller's ConfigMap and Lease: the namespace of the Helm release."""
    scheduling_gates: bool = True
    """`true` if the API server supports scheduling gates (Kubernetes 1.27 and later). With `false`, the
    controller creates the scan pod only when the old pods have ended, and each recovery waits for the start
    of the scan."""
    agents_are_pods: bool = False
    """`true` if agents are pods of the chart's DaemonSet, in `namespace`; the chart sets this. With `true`,
    the controller treats a node as not watched if its agent's pod is missing or not ready. With `false`, the
    controller does so if the agent's last write is too old."""
    node_condition: bool = False
    """With `true`, the controller writes the condition `AcceleratorHealthy` on each accelerator node, for
    tools that read the condition. Some tools can be configured to delete a node with this condition, for
    example Karpenter and the auto-repair of clouds: these tools do not respect Rekindle's budgets, brake,
    holds or modes. With `false`, Rekindle writes no such condition, and removes the conditions that it has
    written."""
    accelerators: tuple[str, ...] = (
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "nvidia.com/mps-core",
        "volcano.sh/vgpu-number",
        "tencent.com/vcuda-core",
        "huawei.com/Ascend910",
        "huawei.com/Ascend910A",
        "huawei.com/Ascend910B",
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
    """Names of resources. A node that has one of them is an accelerator node, and a pod that requests one
    of them is a rank. `nvidia.com/mig-*`, virtual NPUs such as `huawei.com/Ascend910-8c`,
    `huawei.com/Ascend310P-V`, `-VPro` and `-IPro`, and `iluvatar.ai/*-vgpu` are always such resources,
    without an entry in this list. The names with a chip, such as `huawei.com/Ascend910B2`, are the names that
    HAMi uses."""
    accelerator_maps: bool = False
    """With `true`, the controller reads further names of such resources at its start, from the ConfigMaps
    `cf-crl-*` in `kube-public` (label `features.alauda.io/type: CustomResourceLimitation`). The controller
    leaves out keys that end in memory, cores or percentage, because the values of these keys are not numbers
    of devices. The chart gives the permission to list these ConfigMaps."""
    timing: Timing = Timing()
    budgets: Budgets = Budgets()
    placement: Placement = Placement()
    images: Images = Images()
    retention: Retention = Retention()
    room: Rooms = Rooms()
    lease: Lease = Lease()
    repair: Repairs = Repairs()
    signals: Signals = Signals()
