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
    """How long the controller waits. Every wait has an end, and says what happens then."""

    settle_s: Seconds = 2.0
    """A verdict that is not final waits this long after its last line: 48, 171, 63, 154 are one fault."""
    settle_max_s: Seconds = 10.0
    """... but never longer than this after its first line."""
    blame_window_s: Seconds = 120.0
    """A gang's failure this close to a hardware finding on one of its nodes is that finding's victim."""
    deleted_settle_s: Seconds = 1.0
    """A pod that goes away may be its job's own end: job and pods come by different watches, so wait."""
    in_place_grace_s: Seconds = 5.0
    """A single container that restarts in place may be elastic training: wait this long for new steps."""
    stop_deadline_s: Seconds = 180.0
    """Old pods on living nodes must be gone after this time, or 60 s after the end of their own
    `terminationGracePeriodSeconds` if that is later. Else the recovery is Blocked until they are gone."""
    fence_wait_s: Seconds = 300.0
    """Without proof that a node is off, its pods with no or shared volumes are given up after this long
    (Kubernetes' own default toleration of an unreachable node)."""
    scan_deadline_s: Seconds = 30.0
    """The checkpoint scan's limit; then the framework's own logic decides."""
    resume_deadline_s: Seconds = 600.0
    """All pods must run by then; afterwards the recovery is Blocked with the scheduler's reason."""
    per_rank_s: Annotated[float, Meta(ge=0, le=3600)] = 0.3
    """Stop and resume may take this long for each rank where that is longer than their deadlines: Kubernetes'
    own controllers send 20 requests a second, and a pod takes several (2,000 were not gone in 180 s)."""
    verify_deadline_s: Seconds = 2700.0
    """The first new step must come by then. Loading a large checkpoint from NFS takes 33 min on average
    (Lablup, 504 B200)."""
    checkpoint_grace_s: Seconds = 1800.0
    """A gang on a degraded node is moved at its next checkpoint, and after this long at the latest: its log
    may not show when a checkpoint is complete."""
    recovery_window_s: Seconds = 86400.0
    """The window of `recoveries_per_gang_max`."""


class Budgets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits on what may be taken out. Where an absolute and a percentage stand, the smaller counts, at
    least 1."""

    quarantined_percent_max: Percent = 5.0
    """Of the cluster's accelerator nodes."""
    quarantined_nodes_max: Count = 1000
    """Of the cluster, beside the percentage."""
    quarantines_per_hour_max: Count = 20
    """Of the cluster, new ones."""
    pool_percent_max: Percent = 10.0
    """Of the nodes that share the value of `pool_label`."""
    pool_label: str = "node.kubernetes.io/instance-type"
    """Its values are the pools, those of `modes.pools` and of spares, too."""
    domain_nodes_max: Count = 1
    """At a time, of the nodes that share the value of `domain_label` (a rack or an NVLink domain)."""
    domain_label: str = "nvidia.com/gpu.clique"
    """Its values are the domains; a node without it is in none."""
    brake_percent: Percent = 3.0
    """One fault class on more than this share of the nodes, and on `brake_nodes_min`, within
    `brake_window_s`, is no set of single faults: nothing disruptive is done until the window has passed."""
    brake_nodes_min: Count = 5
    """Fewer nodes, as in a small cluster, never trip the brake."""
    brake_window_s: Seconds = 300.0
    """Length of the window in which struck nodes are counted, and of the pause after the brake engages."""
    attempts_per_cause_max: Count = 3
    """Restarts of one gang for one cause without progress of its steps. A cause is the fault class and the
    node of a hardware fault, or the first error of the gang's own failure. A restart counts only if all ranks
    ran."""
    recoveries_per_gang_max: Count = 48
    """In `timing.recovery_window_s`. Llama 3 405B saw 8.6 interruptions a day."""


class Placement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where stopped gangs are started again, and when."""

    hold_without_room: bool = True
    """A stopped gang is started only once the accelerators of the present nodes suffice for all of its ranks.
    It is started at once if the labels and taints of a node show Karpenter or Cluster Autoscaler, since an
    autoscaler adds nodes only for pending pods. Set this to `false` with any other autoscaler."""
    suspicion_s: PositiveSeconds = 86_400.0
    """Gangs prefer other nodes to a suspected node for this long. Training that goes on there, a reboot, a
    repair or a person's release ends the suspicion sooner."""
    again_s: PositiveSeconds = 10.0
    """A gang whose ranks never all ran is stopped and started again on better nodes. This is the shortest
    time between two such starts; each further start doubles it. These starts do not count as attempts."""
    again_max_s: PositiveSeconds = 900.0
    """Longest time between two such starts."""
    again_starts_max: Annotated[int, Meta(ge=1, le=128)] = 100
    """Most starts of this kind in one recovery. After that the ranks keep waiting where they are."""


class Images(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    scan: str = "rekindle:latest"
    """Image of the scan pod: this package is all it needs."""
    repair: str = ""
    """Image of a repair's containers that name none; empty: the scan's."""


class Retention(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long closed Incidents and ended Recoveries stay."""

    days: Annotated[float, Meta(gt=0, le=10_000)] = 30.0
    """Since it ended; one that is still open, or still needed, stays."""
    objects_max: Count = 5000
    """Of each of the two kinds; beyond it the oldest go first."""
    look_again_s: PositiveSeconds = 3600.0
    """Age comes without any change, so it is looked for this often."""


class Rooms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much of one namespace's objects the controller keeps, so that none can take its memory from the
    others: MiB of JSON, of what is kept. A MiB of jobs takes up to 9 MiB of memory, one of pods up to 2.5."""

    jobs_mib: Count = 40
    """Jobs of all frameworks together: some 8,000 ordinary ones."""
    pods_mib: Count = 96
    """Some 160,000 ranks."""
    recoveries_mib: Count = 48
    """More than `retention.objects_max` Recoveries have."""


class Lease(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long one controller may write, so that no second one does at the same time. Kubernetes' own values.
    `duration_s` less `renew_deadline_s` is also how long one write may take."""

    duration_s: Annotated[int, Meta(ge=1, le=3600)] = 15
    """A leader that fell silent is followed by another one after this. Whole seconds: the Lease says so."""
    renew_deadline_s: PositiveSeconds = 10.0
    """A leader without an answered renewal for this long sends no further write and ends itself."""
    retry_s: PositiveSeconds = 2.0
    """Between two renewals, and between two looks of one that stands by."""

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
    """Where less than the cluster's mode holds. A higher one than the cluster's changes nothing, and what was
    seen before a pool or namespace was raised never acts there."""

    pools: dict[LabelValue, Mode] = {}
    """By the value of `budgets.pool_label` that the pool's nodes have. It holds for its nodes, and for gangs
    with a rank on one of them."""
    namespaces: dict[DnsLabel, Mode] = {}
    """It holds for their gangs. A namespace's own annotation `rekindle.dev/mode` may lower it further."""


class Templates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Files with the pod templates of a repair's steps, YAML with `metadata` and `spec` as a Job has them.
    Empty: the packaged ones. docs/repair.md tells what a container is given and what it must leave behind."""

    reset: str = ""
    """Resets `REKINDLE_DEVICES`, or all; exit code 0 says that it did."""
    reboot: str = ""
    """Asks for the reboot; a new boot id proves it."""
    validate: str = ""
    """Leaves its report as termination message."""


class Validation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a node must show before it returns."""

    required: tuple[str, ...] = ("devices", "kernel-log")
    """Checks that must have been made: one of these that could not run keeps the node out, as one that failed
    does. Others that could not run are only named in the Incident."""


class Webhook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A machine outside that reboots nodes in place of a Job, as clouds and management boards can."""

    url: Annotated[str, Meta(pattern="^(https?://.+)?$")] = ""
    """It is sent a POST with `action`, `id`, `node`, `bootId` and more as JSON, and answers 2xx once it will
    reboot the node. The same `id` may come again and must then do nothing more. Empty: reboots are Jobs."""
    token_file: str = ""
    """A file whose text is sent as `Authorization: Bearer`; read again for each request."""
    timeout_s: PositiveSeconds = 10.0
    """Of one request; it is sent again every 10 s until it is taken or the reboot's deadline has passed."""


class Maintenance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An object by which another controller of the cluster reboots nodes, in place of a Job."""

    plural: str = ""
    """Of its kind, as `rebootnodes`: the controller needs the right to create and delete them."""
    manifest: str = ""
    """YAML; `{node}`, `{id}`, `{incident}` and `{fault}` in it are replaced. Its name is the step's id, and
    it is deleted when the reboot is over. Empty: reboots are Jobs, or the webhook's."""


class Repairs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In mode repair: how quarantined nodes are reset, rebooted, validated and returned."""

    nodes_at_once_max: Count = 2
    """Nodes on which something is done at a time; the smaller of this and `percent_at_once_max` counts."""
    percent_at_once_max: Percent = 2.0
    """Of the cluster's accelerator nodes, at least 1."""
    resets_per_hour_max: Count = 10
    """Of the whole cluster; so a template that does harm does it slowly."""
    reboots_per_hour_max: Count = 5
    """Of the whole cluster."""
    repairs_per_node_max: Count = 2
    """Of one node that returned within `repairs_window_s`; when it fails again after these, a person
    decides."""
    repairs_window_s: PositiveSeconds = 604_800.0
    """How long a return is remembered against its node; a week."""
    cool_down_s: Seconds = 600.0
    """A node that was just returned is left alone this long before it is repaired again."""
    wait_for_others_s: PositiveSeconds = 86_400.0
    """Pods are never evicted for a repair. Where some still run after this long, a person decides."""
    not_ready_s: PositiveSeconds = 600.0
    """A node that Kubernetes does not hear from may come back by itself for this long."""
    hands_off_s: Seconds = 60.0
    """The node's agent has this long to let go of the devices before a reset; one that does not answer does
    not hold it up for longer. While a device is broken it asks every 30 s."""
    reset_deadline_s: PositiveSeconds = 600.0
    """From the begin of the reset's Job to its end; then the node is rebooted."""
    reboot_deadline_s: PositiveSeconds = 1200.0
    """Until the node is Ready in a new boot; large servers take 15 min. Then a person is called."""
    validate_deadline_s: PositiveSeconds = 1800.0
    """Until the checks have reported, and the node's agent from the present boot; later they count as
    failed."""
    job_keep_s: Seconds = 86_400.0
    """An ended Job stays this long, for its log; at least 10 min, so that its end is seen."""
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
    """ConfigMaps in which device plugins of other vendors than NVIDIA report their devices
    (docs/other-detectors.md). With `ascend` or `iluvatar` the controller needs the right to list and watch
    ConfigMaps in these namespaces; the chart gives it. The levels are those of
    docs/reference/device-levels.md; `severity` is as for the rows of conditions."""

    ascend: bool = False
    """Read what MindCluster reports: `mindx-dl-deviceinfo-*`, `mindx-dl-nodeinfo-*` and `cluster-info-*`."""
    iluvatar: bool = False
    """Read `ix-device-info-cm-*`, and compare what the kubelet offers with what it has."""
    plugin_namespace: DnsLabel = "kube-system"
    """Where the device plugins write."""
    cluster_namespace: DnsLabel = "mindx-dl"
    """Where NodeD and ClusterD of MindCluster write."""
    ascend_labels: str = "mx-consumer-cim=true"
    """Of the ConfigMaps of the Ascend device plugin; the API server sends no others. Empty for plugins that
    write none: then all ConfigMaps of `plugin_namespace` are sent."""
    chip: dict[str, LevelRow] = {}
    """By the level of a chip, as `SeparateNPU`. Above `suspect` it acts only for a known fault code, with
    its time, and where the plugin and the kubelet both have taken the chip out."""
    switch: dict[str, LevelRow] = {}
    """By the level of a switch between chips, as `Separate`."""
    node: dict[str, LevelRow] = {}
    """By the level of another part of the server, as `SeparateFault`. NodeD tells no time, so it is a
    suspicion at most."""


class Signals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows of your own about what other controllers write on Nodes. A row wins over the packaged row of that
    name (docs/reference/node-signals.md). It has `values`, those that mean trouble; `severity`: `info` is
    only told, `suspect` makes restarts prefer other nodes, `pending` and `fatal` act as findings of an agent
    do; and `fault`, the class that says what is done. One of the three is given at least."""

    conditions: dict[str, SignalRow] = {}
    """By type, as `GpuMemWatch`. A new row without values means status `True`."""
    taints: dict[str, SignalRow] = {}
    """By key. A new row without values means any value. A taint without `timeAdded` makes its node suspect at
    most."""
    labels: dict[str, SignalRow] = {}
    """By key, as `autopilot.ibm.com/gpuhealth`. A new row without values means any value."""
    reports: DeviceReports = DeviceReports()


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mode: Mode = Mode.OBSERVE
    """`observe` says what it would do; `recover` quarantines nodes and restarts opted-in gangs; `repair` also
    resets, reboots, validates and returns quarantined nodes."""
    modes: LowerModes = LowerModes()
    namespace: DnsLabel = "rekindle-system"
    """Where the controller keeps its own ConfigMap and its Lease: that of the chart's release."""
    scheduling_gates: bool = True
    """The API server holds pods back by scheduling gates (Kubernetes 1.27 and later). Where it drops them,
    the scan pod is created only once the old pods have ended, and its start is waited for."""
    agents_are_pods: bool = False
    """Agents are pods of the chart's DaemonSet, in `namespace`; the chart sets this. A node whose agent's pod
    is missing or not ready counts as not watched. With `false`, the age of the agent's last write decides."""
    node_condition: bool = False
    """Write the condition `AcceleratorHealthy` on each accelerator node, for tools that read it. Tools that
    repair nodes by conditions, as Karpenter and the auto-repair of clouds, can be told to end a node for it:
    they do not ask for Rekindle's budgets, brakes, holds or modes. With `false` Rekindle writes no such
    condition, and removes the ones that it has written."""
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
    """Resources that make a node an accelerator node and a pod a rank. `nvidia.com/mig-*`, virtual NPUs as
    `huawei.com/Ascend910-8c`, `huawei.com/Ascend310P-V`, `-VPro` and `-IPro`, and `iluvatar.ai/*-vgpu` always
    do. The names of chips are HAMi's; what it offers beside them counts memory and cores."""
    accelerator_maps: bool = False
    """Further such resources are read from ConfigMaps `cf-crl-*` in `kube-public` (label
    `features.alauda.io/type: CustomResourceLimitation`) when the controller starts. A key that ends in
    memory, cores or percentage counts no devices and is left out. The chart gives the right to list these
    ConfigMaps."""
    timing: Timing = Timing()
    budgets: Budgets = Budgets()
    placement: Placement = Placement()
    images: Images = Images()
    retention: Retention = Retention()
    room: Rooms = Rooms()
    lease: Lease = Lease()
    repair: Repairs = Repairs()
    signals: Signals = Signals()
