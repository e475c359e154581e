"""Folds all events of the agent: events in, NodeHealth.status out. No file, no clock, no network.

agent/wiring.py passes the events of the sources to the core and its status to the publisher; a simulation
passes events directly.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from enum import IntEnum

import msgspec

from detectors import __version__, rules
from detectors.catalog.log_errors import LogErrorRow, packaged_log_errors
from detectors.catalog.signature_rows import SignatureRow, packaged_signatures
from detectors.folds.chain import Chain, Change
from detectors.folds.engine_faults import EngineFaults
from detectors.folds.fabric import FabricFold
from detectors.folds.gpu_states import BusGpus, GpuStates, expected_gpus
from detectors.folds.holders import HeldDevices, Holders, MigDevice, Share
from detectors.folds.host import HostFold
from detectors.folds.pod_folds import PodFolds
from detectors.folds.pods import PodFold
from detectors.folds.states import Folded
from detectors.folds.status_size import leaving_out
from detectors.folds.volumes import VolumeFold
from detectors.rules import KernelRules, signatures
from detectors.rules.boot_records import Boot
from detectors.rules.clock_drift import Answered
from detectors.rules.engine_faults import EngineRow, engine_row
from detectors.rules.fabric_ports import PortSample
from detectors.rules.fabric_rows import FabricRow, fabric_rows
from detectors.rules.facts import Draft, HostFacts, KernelLine, PodRef, Seen, addresses_of
from detectors.rules.gpu_health import GpuHealth
from detectors.rules.host_pressure import HostSample
from detectors.rules.host_state_rows import BOOTS, LASTING, HostStateRow
from detectors.rules.host_state_rows import host_state_rows as packaged_host_states
from detectors.rules.signatures import Signatures
from detectors.rules.volume_rows import VolumeRow
from detectors.rules.volume_rows import volume_rows as packaged_volumes
from detectors.rules.volume_states import VolumeSample
from detectors.service.settings import AgentSettings
from detectors.text.pci import PciAddress, parse_pci
from detectors.wire.contract import (
    Coverage,
    CoverageState,
    Device,
    Family,
    Finding,
    LogPosition,
    NodeHealthSpec,
    NodeHealthStatus,
    Severity,
    Source,
    Subject,
)
from detectors.wire.exceptions import is_exception
from detectors.wire.fitting import fit, fitted
from detectors.wire.gpu_sample import Sample
from detectors.wire.training import Edge

__all__ = ["AgentCore", "Dirty"]

_FAMILIES = {
    Source.NVML: [Family.GPU_HEALTH],
    Source.FABRIC: [Family.NETWORK],
    Source.VOLUMES: [Family.STORAGE],
    Source.HOST: [Family.HOST],
}
"""Families of faults that are read from the sources other than the kernel log."""


_EXCEPTION_TOLD = timedelta(minutes=15)
"""Time after a program's exception during which the pods of shared GPUs are published. The controller looks
within minutes for the pod that may have ended a rank (its setting `timing.blame_window_s`)."""


class Dirty(IntEnum):
    """How soon the status must be published."""

    NOTHING = 0
    COARSE = 1
    """Counts changed. The status is published at the next refresh."""
    EDGE = 2
    """The status is published at once."""


class AgentCore:
    """Keeps all that the agent knows. Times are UTC and come in with each event."""

    def __init__(
        self,
        settings: AgentSettings,
        *,
        boot_id: str,
        kernel_rules: KernelRules | None = None,
        gpu_health: GpuHealth | None = None,
        port_rows: Mapping[str, FabricRow] | None = None,
        volume_rows: Mapping[str, VolumeRow] | None = None,
        host_rows: Mapping[str, HostStateRow] | None = None,
        engine: EngineRow | None = None,
        log_errors: tuple[LogErrorRow, ...] | None = None,
        recipes: tuple[SignatureRow, ...] | None = None,
        catalogue_problems: tuple[str, ...] = (),
    ) -> None:
        self._settings = settings
        self._kernel_rules = kernel_rules or KernelRules()
        self._recipes = packaged_signatures() if recipes is None else recipes
        self._sought = signatures.signatures_of(self._recipes)
        self._catalogue_problems = fit(NodeHealthStatus, "catalogue_problems", list(catalogue_problems))
        self._host = HostFacts(boot_id=boot_id)
        self._holders = Holders()
        self._free_device_bytes: int | None = None
        self._chain = Chain(settings.chain, boot_id)
        self._port_rows = fabric_rows() if port_rows is None else port_rows
        self._fabric = FabricFold(settings.fabric, self._port_rows)
        self._volume_rows = packaged_volumes() if volume_rows is None else volume_rows
        self._volumes = VolumeFold(settings.volumes, self._volume_rows)
        self._host_state = HostFold(settings.host, packaged_host_states() if host_rows is None else host_rows)
        self._engine_row = engine_row() if engine is None else engine
        self._engine_faults = EngineFaults(self._engine_row)
        self._exception_at: datetime | None = None
        """Time of the last exception of a program on a node where pods shared a GPU; None once that is no
        longer recent."""
        self._knows_holders = False
        """Whether the pods that are known to have devices had them when the kernel lines were written."""
        self._gpu_states = GpuStates(gpu_health or GpuHealth(), settings.nvml.gpus_expected)
        self._coverage: dict[Source, Coverage] = {}
        self._pods = PodFolds(settings.logs, packaged_log_errors() if log_errors is None else log_errors)
        self._unread_pods: frozenset[str] = frozenset()
        self._spec = NodeHealthSpec()
        self._hands_off = ""
        self._sequence = -1
        self._dirty = Dirty.NOTHING
        self.foreign_lines = 0
        """Number of lines of the kernel log that make no finding only because the node has no such device."""

    @property
    def dirty(self) -> Dirty:
        return self._dirty

    @property
    def boot_id(self) -> str:
        return self._host.boot_id

    @property
    def sequence(self) -> int:
        """Sequence of the last kernel record that was read; -1 before the first."""
        return self._sequence

    @property
    def findings(self) -> list[Finding]:
        return self._chain.findings

    @property
    def sought(self) -> Signatures:
        """Signatures of the log lines that recipes search for."""
        return self._sought

    def mark_written(self) -> None:
        """Records that the last `status` is in the API."""
        self._dirty = Dirty.NOTHING

    def mark_unwritten(self) -> None:
        """Records that the last `status` is not in the API, or that nobody knows whether it is."""
        self._mark(Dirty.EDGE)

    def restore(self, status: NodeHealthStatus) -> None:
        """Continues from the status that an earlier run of this agent wrote. Call this before the first
        event."""
        if status.boot_id != self.boot_id:
            self._gpu_states.last_boot(len(status.devices))
            if status.boot_id:
                self._host_state.earlier_boot()
            return
        devices = tuple(
            msgspec.structs.replace(device, pods=[], instance_pods=[]) for device in status.devices
        )
        self._host = msgspec.structs.replace(
            self._host,
            devices=devices,
            driver_version=status.driver_version,
            addresses=self._host.addresses | addresses_of(devices),
        )
        self._chain.restore(status.findings, status.folded)
        self._holders.restore(status.devices)
        self._pods.restore(status.pods)
        if status.kmsg is not None and status.kmsg.boot_id == self.boot_id:
            self._sequence = max(self._sequence, status.kmsg.sequence)
            # If the agent continues to read there without a gap, the kernel log was covered all the time.
            self._coverage = {
                entry.source: entry
                for entry in status.coverage
                if entry.source is Source.KMSG and entry.families == rules.families()
            }

    def misplaced(self) -> None:
        """Drops the restored position in the kernel log, because it is wrong: the log is read again, and is
        covered from now on."""
        self._sequence = -1
        self._knows_holders = False
        self._coverage.pop(Source.KMSG, None)
        self._mark(Dirty.EDGE)

    def was_open(self, ref: PodRef) -> bool:
        """Whether an earlier run of this agent published the container as not ended."""
        published = self._pods.published_before(ref)
        return published is not None and published.edge is not Edge.ENDED

    def new_boot(self, boot_id: str) -> None:
        self._host = msgspec.structs.replace(self._host, boot_id=boot_id)
        self._sequence = -1
        self._holders = Holders()
        self._gpu_states.last_boot(len(self._host.devices))
        self._gpu_states.begin_anew()
        self._chain.new_boot(boot_id)
        self._fabric = FabricFold(self._settings.fabric, self._port_rows)
        self._volumes = VolumeFold(self._settings.volumes, self._volume_rows)
        self._engine_faults = EngineFaults(self._engine_row)
        self._mark(Dirty.EDGE)

    def inventory(
        self,
        devices: Iterable[Device],
        driver_version: str,
        mig_devices: Mapping[str, MigDevice] | None = None,
        *,
        expected: frozenset[PciAddress] = frozenset(),
    ) -> None:
        """Takes the devices that NVML shows. `mig_devices` is by UUID; None if they are not known. `expected`
        are the places where GPUs should be.

        NVML shows no GPU that has fallen off the bus. A GPU that is broken or expected keeps its entry, so
        that later evidence belongs to the same GPU.
        """
        before = self._devices(), self._host.driver_version
        shown = tuple(devices)
        places = {parse_pci(device.pci) for device in shown}
        broken = {parse_pci(pci) for pci in self._chain.broken_devices}
        silent = (broken | expected) - places
        lost = tuple(device for device in self._host.devices if parse_pci(device.pci) in silent)
        self._host = msgspec.structs.replace(
            self._host,
            devices=fit(NodeHealthStatus, "devices", (*shown, *lost)),
            driver_version=driver_version,
            addresses=self._host.addresses | addresses_of(shown),
        )
        if mig_devices is not None:
            self._holders.mig_devices(mig_devices)
        if before != (self._devices(), driver_version):
            self._mark(Dirty.EDGE)

    def gpus(
        self,
        sample: Sample,
        devices: Iterable[Device],
        mig_devices: Mapping[str, MigDevice] | None,
        bus: BusGpus,
        now: datetime,
    ) -> bool:
        """Takes one sample of all GPUs by NVML, and the `devices` that it shows. Returns True if the next
        sample should come soon."""
        expected = expected_gpus(self._host, bus)
        self.on_bus(expected)
        self.inventory(devices, sample.driver_version, mig_devices, expected=expected)
        folded = self._gpu_states.fold(self._chain, sample, self._host, bus, now)
        self._folded(folded)
        return folded.is_doubtful

    def nvml_silent(self, times: int, why: str, now: datetime) -> None:
        """Records that the driver has given no answer at all, `times` times in succession."""
        self._folded(self._gpu_states.silent(self._chain, times, why, now))

    @property
    def gpu_shares(self) -> list[Share]:
        """GPUs that the pods of the node have."""
        return self._holders.shares(self._host.devices)

    @property
    def holds_devices(self) -> bool:
        """Whether any pod of the node is known to have a device."""
        return bool(self._holders.uids_with_gone)

    @property
    def lacks_mig_devices(self) -> bool:
        """Whether a pod has a MIG device, and NVML has not shown yet to which GPU the MIG device belongs."""
        return self._holders.lacks_mig_devices(self._host.devices)

    @property
    def pods_with_devices(self) -> frozenset[str]:
        """Uids of the pods on the node that were given devices."""
        return self._holders.there

    def on_bus(self, addresses: frozenset[PciAddress]) -> None:
        """Adds all places on the bus that are taken, by any driver. A place that was taken once stays one of
        the node's places."""
        self._host = msgspec.structs.replace(self._host, addresses=self._host.addresses | addresses)

    def pods_listed(self, pods: Iterable[HeldDevices], there: frozenset[str]) -> None:
        """Takes the kubelet's report about the devices of pods. `there` are the uids of the node's pods."""
        before, priority = self._devices(), self.priority_pods
        self._holders.listed(pods, there)
        self._priority_pods_were(priority)
        if self._pods.hold_devices(self._holders.uids_with_gone) or before != self._devices():
            self._mark(Dirty.EDGE)

    def device_memory(self, free_bytes: int | None) -> None:
        """Takes the least free memory of any device, as just read; None if it is not known. This alone causes
        no write."""
        self._free_device_bytes = free_bytes

    def devices_closed(self, step: str) -> None:
        """Records the step of a repair for which no process of the agent has a device open; empty when the
        step is over."""
        if step != self._hands_off:
            self._hands_off = step
            self._chain.forget_repeats()
            self._gpu_states.begin_anew()
            self._mark(Dirty.EDGE)

    def cover(self, source: Source, state: CoverageState, now: datetime, *, why: str = "") -> None:
        """Records that a source is read from now on, or is blind. The same report again changes nothing."""
        why = fit(Coverage, "why", why)
        known = self._coverage.get(source)
        if known is None or known.state is not state or known.why != why:
            families = rules.families() if source is Source.KMSG else _FAMILIES.get(source, [])
            self._coverage[source] = fitted(
                Coverage, source=source, state=state, since=now, why=why, families=families
            )
            self._mark(Dirty.EDGE)

    def kernel_line(self, line: KernelLine) -> bool:
        """Takes one line of the kernel log. Returns True if the line made an edge of a finding."""
        self._sequence = max(self._sequence, line.sequence)
        draft = self._kernel_rules.read(line, self._host)
        if draft is None:
            anywhere = msgspec.structs.replace(self._host, addresses=frozenset())
            self.foreign_lines += self._kernel_rules.read(line, anywhere) is not None
            return False
        is_edge = self._changed(self._chain.add(draft, line))
        if is_exception(draft.subject, draft.fault, draft.severity):
            self._had_exception(line.at)
        if draft.place and self._knows_holders:
            is_edge |= self._added(self._engine_faults.line(draft, line, self._tenant_of))
        return is_edge

    def caught_up(self) -> None:
        """Records that the agent has read what the kernel log contained at the start: lines are current from
        here on."""
        self._knows_holders = True

    def ports(self, sample: PortSample, now: datetime) -> bool:
        """Takes one sample of the network ports. Returns True if the sample made an edge of a finding."""
        ranks = self._pods.ranks(self._holders.there, now)
        folded = self._fabric.fold(self._chain, sample, now, ranks)
        self._folded(folded)
        return folded.is_edge

    def volumes(self, sample: VolumeSample, now: datetime) -> None:
        """Takes one sample of the volumes of the pods that have devices."""
        self._folded(self._volumes.fold(self._chain, sample, now))

    def booted(self, boot: Boot, now: datetime) -> None:
        """Takes what is known about the present boot."""
        if boot.boot_id == self.boot_id:
            self._folded(self._host_state.booted(self._chain, boot, now))

    def host(self, sample: HostSample, now: datetime) -> None:
        """Takes one sample of the node's pressure and processes."""
        self._folded(self._host_state.fold(self._chain, sample, now))

    def api_answered(self, answer: Answered, now: datetime) -> None:
        """Takes an answer of the API server, which contains the time of the server's clock."""
        self._folded(self._host_state.answered(self._chain, answer, now))

    def pods_changed(self, now: datetime) -> None:
        """Records that a pod came or went."""
        self._fabric.pods_changed(now)

    def passed(self, sequence: int) -> None:
        """Takes note that all records up to this one have been read."""
        self._sequence = max(self._sequence, sequence)

    def log_line(self, pod: PodRef, text: str, at: datetime) -> frozenset[str]:
        """Takes one line of a container's log. Returns the names of the recipes whose issue the line
        shows."""
        hits = signatures.read(self._sought, text)
        if self._pod(pod).line(text, at, hits):
            self._mark(Dirty.EDGE)
        return signatures.shown_by(hits)

    def pod_ended(self, pod: PodRef, at: datetime) -> None:
        self._pods.hold_devices(self._holders.uids_with_gone & {pod.uid})
        if self._pod(pod).end(at, self._free_device_bytes):
            self._mark(Dirty.EDGE)

    def pod_removed(self, pod: PodRef) -> None:
        """Records that the log of the container no longer exists."""
        self._pods.removed(pod)

    def pod_left(self, pod: PodRef) -> None:
        """Records that the agent no longer follows the container, although the container runs."""
        if self._pods.left(pod):
            self._mark(Dirty.EDGE)

    def is_silent(self, pod: PodRef) -> bool:
        """Whether nothing is published about this container."""
        return self._pods.is_silent(pod)

    @property
    def priority_pods(self) -> frozenset[str]:
        """Uids of the pods whose logs matter most: the pods that were given devices, and the pods that the
        controller names."""
        return self._holders.uids_with_gone | {pod.uid for pod in self._spec.pods}

    def logs_left_out(self, uids: frozenset[str]) -> None:
        """Records the pods of which not all logs are read, because too many containers run."""
        if bool(uids) != bool(self._unread_pods) or (uids ^ self._unread_pods) & self.priority_pods:
            self._mark(Dirty.EDGE)
        self._unread_pods = uids

    def logs_scanned(self, now: datetime, left_out: Collection[PodRef] = ()) -> None:
        """Records that all logs of this node have been found: a container that was published before and has
        no log any more has ended."""
        for ref in self._pods.vanished(left_out):
            self.pod_ended(ref, now)
            self._pods.removed(ref)

    def spec(self, spec: NodeHealthSpec) -> list[PodRef]:
        """Takes the `spec` that the controller wrote. Returns the containers whose log must be read again
        from its start.

        A new request id requests a fresh status, which then names the id as served.
        """
        if spec.request != self._spec.request:
            self._mark(Dirty.EDGE)
        if spec.signatures != self._spec.signatures:
            self._sought = signatures.signatures_of(self._recipes, spec.signatures)
        priority, self._spec = self.priority_pods, spec
        self._priority_pods_were(priority)
        return self._pods.job_settings(spec.pods)

    def tick(self, now: datetime, unread: Collection[PodRef] = ()) -> None:
        """Finds stalls and first checkpoints, and forgets what nobody needs any more of containers that ended
        long ago. `unread` are the containers whose last lines have not been read yet; no stall is found in
        them."""
        if self._pods.stalled(now, unread):
            self._mark(Dirty.EDGE)
        if self._exception_at is not None and now - self._exception_at > _EXCEPTION_TOLD:
            before, self._exception_at = self._devices(), None
            self._mark(Dirty.COARSE if before != self._devices() else Dirty.NOTHING)
        self._added(self._engine_faults.tick(now))
        if self._pods.tidied(now) | self._pods.begin_to_save():
            self._mark(Dirty.COARSE)

    def clock_set(self, by: timedelta, now: datetime) -> None:
        """Adjusts to a jump of the wall clock by `by`, forwards or back, since the last tick. `now` is by the
        new time."""
        self._pods.clock_set(by, now)
        self._fabric.clock_set(by, now)
        self._host_state.clock_set()

    def ask_every_s(self, now: datetime) -> float:
        """Returns the time until the agent reads its `spec` again. The sooner the controller may have a
        request, the shorter this time is."""
        publishing = self._settings.publishing
        recent = timedelta(seconds=publishing.ask_busy_for_s)
        is_busy = self._pods.any_stalled or any(
            finding.cleared_at is None and now - finding.last_seen < recent and not _is_of_node(finding)
            for finding in self._chain.findings
        )
        if is_busy or self._hands_off:
            return publishing.ask_busy_s
        return publishing.ask_broken_s if self._chain.device_broken else publishing.ask_s

    def status(self, now: datetime) -> NodeHealthStatus:
        pods, left_out = self._pods.published(self.priority_pods)
        status = fitted(
            NodeHealthStatus,
            boot_id=self.boot_id,
            agent_version=__version__,
            driver_version=self._host.driver_version,
            observed_at=now,
            refresh_s=self._settings.publishing.idle_refresh_s,
            devices=list(self._devices()),
            coverage=[self._coverage[source] for source in Source if source in self._coverage],
            findings=self._chain.findings,
            folded=self._chain.folded,
            pods=pods,
            kmsg=LogPosition(boot_id=self.boot_id, sequence=self._sequence) if self._sequence >= 0 else None,
            catalogue_problems=self._catalogue_problems,
            served_request=self._spec.request,
            hands_off=self._hands_off,
        )
        return leaving_out(status, left_out | self._unread_pods, self.priority_pods)

    def _priority_pods_were(self, before: frozenset[str]) -> None:
        """Requests a write if the pods with priority have changed while pods are left out: the status then
        lists the pods with priority of which everything is published."""
        if before != self.priority_pods and (self._unread_pods or self._pods.are_many):
            self._mark(Dirty.COARSE)

    def _had_exception(self, at: datetime) -> None:
        if not self._holders.are_shared(self._host.devices):
            return
        before, self._exception_at = self._devices(), max(at, self._exception_at or at)
        if before != self._devices():
            self._mark(Dirty.EDGE)

    def _devices(self) -> tuple[Device, ...]:
        """Returns the devices. They include their pods only while a device is broken, or shortly after an
        exception of a program on a shared device: otherwise each start of a pod would be a write."""
        devices = self._host.devices
        if not self._chain.device_broken and self._exception_at is None:
            return devices
        return self._holders.placed(devices)

    def _pod(self, ref: PodRef) -> PodFold:
        return self._pods.fold(ref, self._spec.pods, self._sought)

    def _tenant_of(self, subject: Subject) -> str:
        """Returns the namespace of the only pod that has the device; empty if not exactly one pod has it."""
        pod = self._holders.sole(self._host.devices, subject.device, subject.gpu_instance)
        return pod.namespace if pod is not None else ""

    def _added(self, found: list[tuple[Draft, Seen]]) -> bool:
        edges = [self._changed(self._chain.add(draft, seen)) for draft, seen in found]
        return any(edges)

    def _folded(self, folded: Folded) -> None:
        if folded.is_edge or folded.is_count:
            self._mark(Dirty.EDGE if folded.is_edge else Dirty.COARSE)

    def _changed(self, change: Change) -> bool:
        if change is not Change.NOTHING:
            self._mark(Dirty.EDGE if change is Change.EDGE else Dirty.COARSE)
        return change is Change.EDGE

    def _mark(self, dirty: Dirty) -> None:
        self._dirty = max(self._dirty, dirty)


def _is_of_node(finding: Finding) -> bool:
    """Whether the finding is a note about the node itself, to which the controller does not react: each node
    has such a note after a boot."""
    return finding.code in (*BOOTS, *LASTING) and finding.severity is Severity.INFO
