"""The controller's settings: small groups, each field with its unit, default and reason.

Read from TOML by detectors.settings.load; unknown fields are refused. docs/reference/settings.md is generated
from this file.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from recover.model import Mode

__all__ = ["Budgets", "Images", "Lease", "Retention", "Settings", "Timing"]

Seconds = Annotated[float, Meta(ge=0)]
PositiveSeconds = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]
Percent = Annotated[float, Meta(ge=0, le=100)]
DnsLabel = Annotated[str, Meta(pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]


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
    """Old pods on living nodes must be gone by then; afterwards a person is called."""
    fence_wait_s: Seconds = 300.0
    """Without proof that a node is off, its pods with no or shared volumes are given up after this long
    (Kubernetes' own default toleration of an unreachable node)."""
    scan_deadline_s: Seconds = 30.0
    """The checkpoint scan's limit; then the framework's own logic decides."""
    resume_deadline_s: Seconds = 600.0
    """All pods must run by then; afterwards the recovery is Blocked with the scheduler's reason."""
    per_rank_s: Seconds = 0.3
    """Stop and resume may take this long for each rank where that is longer than their deadlines: Kubernetes'
    own controllers send 20 requests a second, and a pod takes several (2,000 were not gone in 180 s)."""
    verify_deadline_s: Seconds = 2700.0
    """The first new step must come by then. Loading a large checkpoint from NFS takes 33 min on average
    (Lablup, 504 B200)."""
    checkpoint_grace_s: Seconds = 1800.0
    """A contained or pending fault waits this long for the gang's next checkpoint before it is moved."""
    recovery_window_s: Seconds = 86400.0
    """The window of `recoveries_per_gang_max`."""


class Budgets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits on what may be taken out. Where an absolute and a percentage stand, the smaller counts, at
    least 1."""

    quarantined_percent_max: Percent = 5.0
    """Of the cluster's accelerator nodes."""
    quarantined_nodes_max: Count = 1000
    quarantines_per_hour_max: Count = 20
    pool_percent_max: Percent = 10.0
    """Of the nodes that share the value of `pool_label`."""
    pool_label: str = "node.kubernetes.io/instance-type"
    domain_nodes_max: Count = 1
    """At a time, of the nodes that share the value of `domain_label` (a rack or an NVLink domain)."""
    domain_label: str = "nvidia.com/gpu.clique"
    brake_percent: Percent = 3.0
    """One fault class on more than this share of the nodes, and on `brake_nodes_min`, within
    `brake_window_s`, is no set of single faults: nothing disruptive is done until the window has passed."""
    brake_nodes_min: Count = 5
    brake_window_s: Seconds = 300.0
    attempts_per_cause_max: Count = 3
    """Of one gang, without progress of its steps."""
    recoveries_per_gang_max: Count = 48
    """In `timing.recovery_window_s`. Llama 3 405B saw 8.6 interruptions a day."""


class Images(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    scan: str = "rekindle:latest"
    """Image of the scan pod: this package is all it needs."""


class Retention(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long closed Incidents and ended Recoveries stay."""

    days: Annotated[float, Meta(gt=0)] = 30.0
    objects_max: Count = 5000
    """Of each of the two kinds; beyond it the oldest go first."""
    look_again_s: Annotated[float, Meta(gt=0)] = 3600.0
    """Age comes without any change, so it is looked for this often."""


class Lease(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long one controller may write, so that no second one does at the same time. Kubernetes' own values.
    `duration_s` less `renew_deadline_s` is also how long one write may take."""

    duration_s: Count = 15
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


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mode: Mode = Mode.OBSERVE
    """`observe` says what it would do; `recover` quarantines nodes and restarts opted-in gangs."""
    namespace: DnsLabel = "rekindle-system"
    """Where the controller keeps its own ConfigMap and its Lease: that of the chart's release."""
    accelerators: tuple[str, ...] = (
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "nvidia.com/mps-core",
        "tencent.com/vcuda-core",
        "huawei.com/Ascend910",
        "huawei.com/Ascend310",
        "huawei.com/Ascend310P",
        "huawei.com/npu",
        "iluvatar.com/gpu",
        "amd.com/gpu",
    )
    """Resources that make a node an accelerator node and a pod a rank; `nvidia.com/mig-*` always does."""
    timing: Timing = Timing()
    budgets: Budgets = Budgets()
    images: Images = Images()
    retention: Retention = Retention()
    lease: Lease = Lease()
