"""Runs the node agent: connects the sources to the core, and the core to the publisher.

kmsg, NVML, ports, volumes, the node itself, pod logs, PodResources
    -> AgentCore -> Publisher -> NodeHealth.status

The sinks of volumes and of the node itself are in sample_sinks.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import structlog

from detectors.agent.publish import Publisher
from detectors.agent.recipe_lines import RecipeLines
from detectors.agent.sample_sinks import HostEvents, VolumeEvents
from detectors.client.credentials import Credentials
from detectors.client.kubeapi import KubeApi
from detectors.folds.core import AgentCore, Dirty
from detectors.folds.gpu_series import gpu_series
from detectors.folds.gpu_states import BusGpus
from detectors.folds.holders import HeldDevices
from detectors.rules import KernelRules
from detectors.rules.catalogues import Catalogues
from detectors.rules.clock_drift import Answered
from detectors.rules.engine_faults import engine_row
from detectors.rules.fabric_ports import PortSample
from detectors.rules.fabric_rows import fabric_rows
from detectors.rules.facts import KernelLine, PodRef
from detectors.rules.gpu_health import GpuHealth, answered
from detectors.rules.host_state_rows import host_state_rows
from detectors.rules.volume_rows import volume_rows
from detectors.service.clocks import WallClock, until_next_s
from detectors.service.gpu_metrics import GpuMetrics
from detectors.service.http_status import serve
from detectors.service.metrics import Metrics
from detectors.service.rate_limit import RateLimit
from detectors.service.settings import AgentSettings, Export
from detectors.sources import inventory, kmsg
from detectors.sources.exporters import has_dcgm_exporter
from detectors.sources.fabric import Fabric
from detectors.sources.host import Host, HostReader
from detectors.sources.nvml import Nvml
from detectors.sources.pod_logs import PodLogs
from detectors.sources.pod_resources import PodResources
from detectors.sources.volumes import VolumeReader, Volumes
from detectors.text.pci import PciAddress
from detectors.wire.contract import CoverageState, NodeHealth, NodeHealthStatus, Source
from detectors.wire.fitting import fit
from detectors.wire.gpu_sample import Sample
from detectors.wire.sane import NotSaneError, demand_sane

__all__ = ["AgentCore", "AgentOptions", "Dirty", "core_of", "run"]

_log = structlog.get_logger("agent")

_TICK_S = 1.0
_FLUSH_S = 0.5
_NVML_WAIT_S = 10.0
"""Maximum time for which the agent, at its start, does not read the kernel log yet because only NVML knows to
which GPUs the MIG devices of the pods belong."""
_SAMPLES_KEPT = 2
"""Number of intervals between samples for which scrapes still get the readings of the last sample."""


class AgentOptions(msgspec.Struct, frozen=True):
    """The inputs of one run of the agent."""

    node: str
    credentials: Credentials
    host_root: Path = Path("/")
    proc: Path = Path("/proc")
    """Folder from which pressure and the number of processes are read; the same in each container."""
    listen_host: str = "0.0.0.0"
    listen_port: int = 9101
    settings: AgentSettings = AgentSettings()


async def run(options: AgentOptions, stop: asyncio.Event) -> None:
    """Runs until `stop` is set. Raises `OSError` if the status port is not available."""
    metrics = Metrics()
    core = core_of(options.settings, boot_id=_boot_id(options.host_root))
    async with KubeApi(options.credentials, user_agent="rekindle-agent") as api:
        agent = _Agent(options, core, metrics, api)
        async with serve(options.listen_host, options.listen_port, metrics, ready=lambda: agent.ready):
            work = asyncio.create_task(agent.work(), name="agent")
            stopping = asyncio.create_task(stop.wait(), name="stop")
            await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if work.done():
                work.result()  # the work ends only by an error
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work
            await agent.publisher.flush(_FLUSH_S)


def core_of(settings: AgentSettings, *, boot_id: str) -> AgentCore:
    """Returns a core with the rows of the packaged catalogues and those of the user's file. Raises
    `detectors.text.strict.BadValueError` for a bad row of the package."""
    catalogues = Catalogues.load(settings.catalogue)
    for problem in catalogues.problems:
        _log.error("catalogue: not used, the rest is", problem=problem)
    return AgentCore(
        settings,
        boot_id=boot_id,
        kernel_rules=KernelRules(catalogues.user),
        gpu_health=GpuHealth(catalogues.user),
        port_rows=fabric_rows(catalogues.user),
        volume_rows=volume_rows(catalogues.user),
        host_rows=host_state_rows(catalogues.user),
        engine=engine_row(catalogues.user),
        log_errors=catalogues.log_errors,
        catalogue_problems=catalogues.problems,
    )


class _Agent:
    """One run: takes the events of the sources (each through a sink) and wakes the publisher."""

    def __init__(self, options: AgentOptions, core: AgentCore, metrics: Metrics, api: KubeApi) -> None:
        self._options = options
        self._settings = options.settings
        self._core = core
        self._metrics = metrics
        self._api = api
        self.kernel_log_read = False
        """Whether the agent has read all lines that the kernel log contained at the start, or cannot read the
        log."""
        self._recipes = RecipeLines(core, metrics)
        self._logs = PodLogs(options.host_root, _LogEvents(self), self._settings.logs, metrics)
        self._fabric = Fabric(options.host_root, _FabricEvents(self), self._settings.fabric)
        host = HostReader(options.host_root, boot_id=core.boot_id, proc=options.proc)
        self._host = Host(host, HostEvents(self), self._settings.host)
        volumes = VolumeReader(options.host_root, self._settings.volumes)
        self._volumes = Volumes(volumes, VolumeEvents(self), self._settings.volumes)
        self.gpu_metrics = GpuMetrics(
            series_max=self._settings.gpu_metrics.series_max,
            kept_s=_SAMPLES_KEPT * self._settings.nvml.every_s + self._settings.nvml.deadline_s,
            clock_s=time.monotonic,
        )
        metrics.registry.register(self.gpu_metrics)
        self._nvml = Nvml(_NvmlEvents(self, options), self._settings.nvml)
        self.devices = PodResources(options.host_root, _DeviceEvents(self), self._settings.pod_resources)
        self.publisher = Publisher(
            api, options.node, core, self._settings.publishing, metrics, on_reply=self._heard
        )

    @property
    def core(self) -> AgentCore:
        return self._core

    @property
    def recipes(self) -> RecipeLines:
        return self._recipes

    @property
    def metrics(self) -> Metrics:
        return self._metrics

    @property
    def ready(self) -> bool:
        """Whether the agent is ready. It is not ready before the kernel log has been read, since the
        controller takes readiness for a sign of that."""
        return self.publisher.ready and self.kernel_log_read

    def _restore(self, status: NodeHealthStatus) -> None:
        try:
            demand_sane(status)
        except NotSaneError as error:
            _log.error(
                "the stored status of the NodeHealth is not usable, starting without it", error=str(error)
            )
        else:
            self._core.restore(status)

    async def work(self) -> None:
        """Runs all parts. Reads nothing before it knows where an earlier run stopped: nothing could be
        published before anyway."""
        stored = await self.publisher.first_reply()
        if stored is not None:
            self._restore(stored.status)
            self._core.spec(stored.spec)
            self._nvml.close_devices_for(stored.spec.hands_off)
        self._recipes.changed()
        self.take(inventory.from_proc(self._options.host_root))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._nvml.run(), name="nvml")
            tasks.create_task(self.devices.run(), name="pod_resources")
            tasks.create_task(self._kmsg(), name="kmsg")
            tasks.create_task(self._fabric.run(), name="fabric")
            tasks.create_task(self._sample_volumes(), name="volumes")
            tasks.create_task(self._host.run(), name="host")
            tasks.create_task(self._logs.run(), name="pod_logs")
            tasks.create_task(self._tick(), name="tick")
            tasks.create_task(self.publisher.run(), name="publisher")

    def changed(self) -> None:
        self.publisher.wake()

    def cover(self, source: Source, state: CoverageState, why: str = "") -> None:
        if source is Source.KMSG and state is CoverageState.BLIND:
            self.kernel_log_read = True
        self._metrics.source_covered.labels(source).set(state is CoverageState.COVERED)
        self._core.cover(source, state, datetime.now(UTC), why=why)
        self.changed()

    def take(self, found: inventory.Inventory) -> None:
        self.read_bus()
        if found.devices or found.driver_version:
            self._core.inventory(found.devices, found.driver_version, found.mig_devices)
            self.changed()

    def read_bus(self) -> None:
        self._core.on_bus(inventory.addresses(self._options.host_root))

    async def _kmsg(self) -> None:
        path = self._options.host_root / "dev/kmsg"
        if not self._core.boot_id:
            why = (
                f"{_boot_id_path(self._options.host_root)}: there is no boot id, so the agent cannot "
                "distinguish old findings from new findings. Restart the agent when the file is there"
            )
            _log.error("kernel log is not read", why=why)
            self.cover(Source.KMSG, CoverageState.BLIND, why)
            return
        # Then a device that broke before the agent started is published with its pods at once.
        await self.devices.asked.wait()
        if self._core.lacks_mig_devices:
            with contextlib.suppress(TimeoutError):  # the broken device may let NVML hang
                async with asyncio.timeout(_NVML_WAIT_S):
                    await self._nvml.asked.wait()
        await kmsg.follow(path, _KernelEvents(self, self._options.host_root), after=self._core.sequence)

    async def _sample_volumes(self) -> None:
        # Otherwise the pods of an earlier run's findings would count as gone.
        await self.devices.asked.wait()
        await self._volumes.run()

    def sample_volumes_again(self) -> None:
        self._volumes.sample_again()

    async def _tick(self) -> None:
        longest_s = 0.0
        clock = WallClock(time.time(), time.monotonic())
        while True:
            before_s = time.monotonic()
            pause_s = until_next_s(_TICK_S, before_s)
            await asyncio.sleep(pause_s)
            longest_s = max(longest_s, time.monotonic() - before_s - pause_s)
            self._metrics.loop_stall_s_max.set(longest_s)
            self._metrics.findings.set(sum(finding.cleared_at is None for finding in self._core.findings))
            if step_s := clock.set_by_s(time.time(), time.monotonic()):
                _log.warning("the clock was set", by_s=round(step_s, 1))
                self._core.clock_set(timedelta(seconds=step_s), datetime.now(UTC))
            now = datetime.now(UTC)
            self._core.tick(now, unread=self._logs.unread(now))
            self.changed()

    def prefer(self) -> None:
        """Gives priority to logs of pods that have devices, or that the controller has named."""
        self._logs.prefer(self._core.priority_pods)

    def _heard(self, reply: NodeHealth) -> None:
        api = self._api
        answer = Answered(api.date, api.asked_s, api.answered_s, api.took_s)
        self._core.api_answered(answer, datetime.now(UTC))
        self._logs.reread(self._core.spec(reply.spec))
        self.prefer()
        self._nvml.close_devices_for(reply.spec.hands_off)
        self._recipes.changed()
        self.changed()


class _KernelEvents:
    """The kernel log's sink."""

    def __init__(self, agent: _Agent, host_root: Path) -> None:
        self._agent = agent
        self._host_root = host_root
        self._told_bad, self._told_lost, self._told_foreign = RateLimit(), RateLimit(), RateLimit()

    def line(self, line: KernelLine) -> None:
        core, foreign = self._agent.core, self._agent.core.foreign_lines
        is_edge = core.kernel_line(line)
        if core.foreign_lines > foreign and self._told_foreign.may_tell(time.monotonic()):
            self._agent.read_bus()  # the device may have come since
            foreign = core.foreign_lines
            is_edge = core.kernel_line(line)
            if core.foreign_lines > foreign:
                _log.warning(
                    "a line of the kernel log names a device that this node does not have: no finding",
                    line=line.text[:200],
                    further_since_last=self._told_foreign.take_held_back(),
                )
        if is_edge:
            self._agent.devices.ask_again()
        self._agent.changed()

    def passed(self, sequence: int) -> None:
        self._agent.core.passed(sequence)
        self._agent.metrics.kernel_records.inc()

    def lost(self, count: int, why: str) -> None:
        """Counts records that the agent has missed. It reads the later records, so the kernel log counts as
        covered again."""
        self._agent.metrics.kernel_records_lost.inc(count)
        if self._told_lost.may_tell(time.monotonic()):
            before = self._told_lost.take_held_back()
            _log.warning("kernel records lost", count=count, why=why, further_since_last=before)
        self._agent.cover(Source.KMSG, CoverageState.COVERED, why)

    def bad(self, text: str) -> None:
        self._agent.metrics.kernel_records_bad.inc()
        if self._told_bad.may_tell(time.monotonic()):
            before, expected = self._told_bad.take_held_back(), "prio,seq,usec,flags;text"
            _log.warning(
                "not a kernel record; skipped", text=text, expected=expected, further_since_last=before
            )

    def restarted(self) -> int:
        """Handles a file that was replaced or truncated. In the same boot its sequences continue; in another
        boot they begin again. Returns the sequence after which records are new."""
        boot_id = _boot_id(self._host_root)
        if boot_id and boot_id != self._agent.core.boot_id:
            _log.warning("the node has booted", boot_id=boot_id)
            self._agent.core.new_boot(boot_id)
            self._agent.changed()
        return self._agent.core.sequence

    def misplaced(self) -> None:
        _log.warning("what was published as read is not in the kernel log, which is read from its beginning")
        self._agent.core.misplaced()

    def covered(self) -> None:
        self._agent.cover(Source.KMSG, CoverageState.COVERED)

    def caught_up(self) -> None:
        self._agent.kernel_log_read = True
        self._agent.core.caught_up()

    def blind(self, why: str) -> None:
        self._agent.cover(Source.KMSG, CoverageState.BLIND, why)


class _NvmlEvents:
    """NVML's sink."""

    def __init__(self, agent: _Agent, options: AgentOptions) -> None:
        self._agent = agent
        self._host_root = options.host_root
        self._export = options.settings.gpu_metrics.export
        self._shown: frozenset[PciAddress] | None = None
        self._bus = BusGpus()

    def sampled(self, sample: Sample) -> bool:
        core, found = self._agent.core, inventory.of_sample(sample)
        if (shown := answered(sample)) != self._shown:
            self._shown = shown
            self._bus = inventory.bus_of(sample, self._host_root)
            self._agent.read_bus()
        is_doubtful = core.gpus(sample, found.devices, found.mig_devices, self._bus, datetime.now(UTC))
        core.device_memory(found.free_device_bytes)
        if any(gpu.readings is not None for gpu in sample.gpus):
            self._agent.gpu_metrics.sampled(gpu_series(sample, core.gpu_shares))
        else:
            self._agent.gpu_metrics.clear()
        self._agent.changed()
        return is_doubtful

    def wants_readings(self) -> bool:
        if self._export is Export.AUTO:
            return not has_dcgm_exporter(self._host_root)
        return self._export is Export.ON

    def is_in_use(self) -> bool:
        return self._agent.core.holds_devices

    def silent(self, times: int, why: str) -> None:
        self._agent.core.nvml_silent(times, why, datetime.now(UTC))
        self._agent.changed()

    def values_unknown(self) -> None:
        self._agent.core.device_memory(None)
        self._agent.gpu_metrics.clear()

    def devices_closed(self, step: str) -> None:
        self._agent.core.devices_closed(step)
        self._agent.changed()

    def covered(self) -> None:
        self._agent.cover(Source.NVML, CoverageState.COVERED)

    def blind(self, why: str) -> None:
        self._agent.cover(Source.NVML, CoverageState.BLIND, why)


class _FabricEvents:
    """The sink of the network's ports."""

    def __init__(self, agent: _Agent) -> None:
        self._agent = agent

    def sampled(self, sample: PortSample) -> None:
        if self._agent.core.ports(sample, datetime.now(UTC)):
            self._agent.devices.ask_again()
        self._agent.changed()

    def covered(self) -> None:
        self._agent.cover(Source.FABRIC, CoverageState.COVERED)

    def blind(self, why: str) -> None:
        self._agent.cover(Source.FABRIC, CoverageState.BLIND, why)


class _LogEvents:
    """The pod logs' sink."""

    def __init__(self, agent: _Agent) -> None:
        self._agent = agent

    def log_line(self, pod: PodRef, text: str, at: datetime) -> None:
        self._agent.recipes.count(pod, self._agent.core.log_line(pod, text, at), at)
        self._agent.changed()

    def pod_ended(self, pod: PodRef, at: datetime) -> None:
        self._agent.core.pod_ended(pod, at)
        self._agent.sample_volumes_again()
        self._agent.changed()

    def pod_removed(self, pod: PodRef) -> None:
        self._agent.core.pod_removed(pod)
        self._agent.recipes.forget(pod)

    def pod_left(self, pod: PodRef) -> None:
        self._agent.core.pod_left(pod)
        self._agent.recipes.forget(pod)

    def is_silent(self, pod: PodRef) -> bool:
        return self._agent.core.is_silent(pod)

    def is_open(self, pod: PodRef) -> bool:
        return self._agent.core.was_open(pod)

    def pods_changed(self) -> None:
        self._agent.core.pods_changed(datetime.now(UTC))
        self._agent.devices.ask_again()

    def scanned(self, left_out: frozenset[PodRef]) -> None:
        self._agent.core.logs_scanned(datetime.now(UTC), left_out)
        self._agent.changed()

    def covered(self, why: str, left_out: frozenset[str] = frozenset()) -> None:
        self._agent.core.logs_left_out(left_out)
        self._agent.cover(Source.LOGS, CoverageState.COVERED, why)

    def blind(self, why: str) -> None:
        self._agent.cover(Source.LOGS, CoverageState.BLIND, why)


class _DeviceEvents:
    """The sink of the kubelet's reports about devices."""

    def __init__(self, agent: _Agent) -> None:
        self._agent = agent

    def listed(self, pods: Iterable[HeldDevices], there: frozenset[str]) -> None:
        self._agent.core.pods_listed(pods, there)
        self._agent.prefer()
        self._agent.changed()

    def covered(self) -> None:
        self._agent.cover(Source.PODS, CoverageState.COVERED)

    def blind(self, why: str) -> None:
        self._agent.cover(Source.PODS, CoverageState.BLIND, why)


def _boot_id_path(host_root: Path) -> Path:
    return host_root / "proc/sys/kernel/random/boot_id"


def _boot_id(host_root: Path) -> str:
    try:
        boot_id = _boot_id_path(host_root).read_text(encoding="ascii").strip()
        return fit(NodeHealthStatus, "boot_id", boot_id)
    except (OSError, UnicodeDecodeError):
        return ""
