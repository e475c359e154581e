"""The agent's settings: small groups, each field with its unit, default and reason; and the loader.

The controller reads its own groups with the same `load`.
"""

from __future__ import annotations

import json
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from detectors.text.strict import BadValueError, convert

__all__ = [
    "AgentSettings",
    "Catalogue",
    "Chain",
    "Confinement",
    "Export",
    "Fabric",
    "GpuMetrics",
    "Host",
    "Logs",
    "Nvml",
    "PodResources",
    "PositiveSeconds",
    "Publishing",
    "Seconds",
    "SettingsError",
    "Volumes",
    "load",
]

T = TypeVar("T")

_SECONDS_MAX = 1e9
"""30 years: an infinite time is no time that Python's clocks can add to another."""
_OVERRIDE_CHARS_MAX = 200
"""Of one in a message."""

Seconds = Annotated[float, Meta(ge=0, le=_SECONDS_MAX)]
PositiveSeconds = Annotated[float, Meta(gt=0, le=_SECONDS_MAX)]
Bytes = Annotated[int, Meta(ge=1024, le=2**40)]


class SettingsError(Exception):
    """A settings file or override that cannot be used: names file, field, value and what was expected."""


class Chain(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How kernel lines fold into findings."""

    repeat_s: PositiveSeconds = 60.0
    """The same code on the same subject within this time adds to the count; later it is a new finding."""
    consequence_s: PositiveSeconds = 10.0
    """Codes on the same device within this time of the first are its consequences (48, 171, 63, 154 come
    seconds apart)."""


class Logs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the logs of training pods are followed."""

    stall_min_s: PositiveSeconds = 600.0
    """No pod is called stalled before this: evaluation and checkpoints take minutes. Where a first one is
    likely due that nothing announces, it is three times as long: at the end of an epoch or of the run, and
    after 500, 1000, 2500 or another usual number of steps."""
    stall_factor: Annotated[float, Meta(ge=2, le=1e6)] = 10.0
    """... nor before this many times the median step, nor before one and a half times the longest pause that
    the job has made between two lines with a step. Where a line tells of many steps, the usual pause between
    two such lines is added."""
    pause_s: PositiveSeconds = 1800.0
    """After a line that tells of a checkpoint or an evaluation no pod is called stalled before this. A job's
    own hang-timeout is not affected."""
    containers_max: Annotated[int, Meta(ge=1, le=4096)] = 256
    """So many containers are followed at once. Of more, those whose pods hold devices or are named by the
    controller come first; what is left out is told in the NodeHealth's coverage."""
    read_bytes: Bytes = 64 * 1024
    """Read of one file at a time, so that a pod that prints gigabytes starves nobody."""
    read_pause_s: PositiveSeconds = 0.025
    """Between two reads of one file. With `read_bytes` it bounds the rate of one file."""
    node_bytes_per_s: Annotated[float, Meta(ge=1024, le=1e12)] = 4e6
    """Read of all files together; each that prints more waits for its turn. It takes half a core's time at
    most, however slowly the lines of a log are read."""
    backlog_bytes_max: Bytes = 8 * 1024 * 1024
    """A file further behind than this is continued near its end; what is skipped is counted in a metric."""
    line_bytes_max: Bytes = 16 * 1024
    """Longer lines are cut: containerd splits at 16 KiB anyway."""
    ended_poll_s: PositiveSeconds = 0.5
    """How often it is checked that a followed pod's cgroup still exists."""
    ended_keep_s: Seconds = 900.0
    """An ended container stays in the status at least this long, for its tail to be read."""
    excluded_namespaces: tuple[str, ...] = ("kube-*", "rekindle-system")
    """Logs that are never opened. A trailing `*` matches any rest."""


class Nvml(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The GPUs' inventory and health, asked for by a child process that may be lost."""

    enabled: bool = True
    """False leaves the inventory to /proc/driver/nvidia, and the GPUs' health to the kernel log alone."""
    deadline_s: PositiveSeconds = 60.0
    """A driver call can block 6-45 s in a GSP timeout; beyond this the child is given up, which is told."""
    every_s: PositiveSeconds = 30.0
    """How often the GPUs are asked."""
    confirm_s: PositiveSeconds = 10.0
    """How soon again, where an answer must be heard several times before it counts."""
    refresh_s: PositiveSeconds = 3600.0
    """How often GPUs are asked which no pod uses, and which the driver does not keep ready: without its
    persistence mode each look would start them."""
    gpus_expected: Annotated[int, Meta(ge=0, le=64)] = 0
    """How many GPUs the node should have; with fewer it is suspect. 0: as many as PCI, this boot and the last
    one have shown."""
    retry_s: PositiveSeconds = 60.0
    """First wait after a failure; doubled up to `refresh_s`."""
    hands_off_max_s: PositiveSeconds = 3600.0
    """NVML is left alone while a repair has asked for the devices, but for no step of it longer than this,
    which is longer than any step may take."""


class Export(StrEnum):
    OFF = "off"
    AUTO = "auto"
    """Unless the node has a pod of NVIDIA's dcgm-exporter, which tells the same and more."""
    ON = "on"


class GpuMetrics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Readings of the GPUs among the agent's metrics, for dashboards (docs/monitoring.md#gpus)."""

    export: Export = Export.OFF
    """`on`, `off`, or `auto`: on, unless the node has a pod of NVIDIA's dcgm-exporter, which tells the same
    and more. The GPUs are read in the look at their health (`nvml.every_s`)."""
    series_max: Annotated[int, Meta(ge=1, le=20_000)] = 1000
    """More series than this are left out of a scrape, those of pods first, and counted. A GPU has 10, a MIG
    GPU instance 2, a pod up to 3 for each GPU or instance."""


class Fabric(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The ports of InfiniBand and RoCE adapters, read in /sys."""

    enabled: bool = True
    """False leaves the ports to the kernel log alone."""
    every_s: PositiveSeconds = 15.0
    """Time between two looks, by the clock: the agents of all nodes look at the same moments."""
    deadline_s: PositiveSeconds = 10.0
    """Beyond this a look is given up, which is told: the firmware of an adapter may hang."""
    dead_s: Seconds = 60.0
    """A port without a link for this long under a rank is dead, and an adapter that misses on the bus for
    this long is gone."""
    settle_s: Seconds = 300.0
    """After a boot, and after its driver was loaded, a port is not judged for this long. A port that was down
    counts as well again after this long."""
    flap_window_s: PositiveSeconds = 300.0
    """A link that goes down twice within this time flaps."""
    errors_per_hour: Annotated[int, Meta(ge=0, le=10**9)] = 120
    """More errors of a link than this are noted. A link may have one wrong bit in 10^12 (InfiniBand), and a
    sound one has none after its error correction."""


class Volumes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The volumes that pods with accelerators mount, asked for their room in a child process that may be
    lost."""

    enabled: bool = True
    """False leaves full, silent and broken volumes to the kernel log and to the logs of pods."""
    every_s: PositiveSeconds = 60.0
    """Time between two looks, and the end of a rank brings one sooner. Each asks the server of a volume in a
    network once."""
    pause_s: PositiveSeconds = 5.0
    """Between two looks at least this long."""
    deadline_s: PositiveSeconds = 60.0
    """A volume that does not answer one call within this time is silent. A file server that is failed over
    may take most of this."""
    full_bytes: Annotated[int, Meta(ge=0, le=2**60)] = 2**30
    """A volume is full where no more bytes than this are free for its users, and no larger share than
    `full_percent`."""
    full_percent: Annotated[float, Meta(ge=0, le=100)] = 1.0
    """... of its bytes, or of its inodes (files)."""


class Host(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The node itself, read in /proc and /sys."""

    enabled: bool = True
    """False leaves the node itself to the kernel log alone."""
    every_s: PositiveSeconds = 30.0
    """Time between two looks at pressure and processes."""
    clock_s: PositiveSeconds = 2.0
    """A clock that is further than this from the API server's is noted: times of different nodes' logs can
    hardly be compared then."""
    memory_percent: Annotated[float, Meta(gt=0, le=100)] = 10.0
    """Of five minutes, in which all work of the node waited for memory."""
    io_percent: Annotated[float, Meta(gt=0, le=100)] = 60.0
    """Of five minutes, in which all work waited for disks or file servers. Checkpoints cause some."""
    cpu_percent: Annotated[float, Meta(gt=0, le=100)] = 90.0
    """Of five minutes, in which some work waited for a processor, as where data loaders are too many."""
    pids_percent: Annotated[float, Meta(gt=0, le=100)] = 85.0
    """Of the processes and threads that the node may have. The kubelet evicts pods where few are left."""


class PodResources(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The kubelet is asked which pod holds which device, in a child process that may be lost."""

    enabled: bool = True
    """False leaves it unknown: every GPU pod of the node counts as holding a broken device."""
    deadline_s: PositiveSeconds = 5.0
    """Beyond this the call is given up. At the agent's start the kernel log waits for the first answer."""
    pause_s: PositiveSeconds = 1.0
    """Between two calls: pods that start together are asked for together."""
    retry_s: PositiveSeconds = 5.0
    """First wait after a failure; doubled up to `retry_max_s`. A new pod or finding does not wait for it."""
    retry_max_s: PositiveSeconds = 300.0
    """Longest wait: a kubelet that was missing is found again by then, on a node where nothing happens."""


class Publishing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When NodeHealth.status is written, and the spec asked for."""

    refresh_s: PositiveSeconds = 600.0
    """Changes that are no edges (counts) wait at most this long."""
    idle_refresh_s: Seconds = 600.0
    """The agent writes the status at least this often, even if nothing changes, so that the age of the status
    shows whether the agent lives. 0 switches this off: where agents are pods, their readiness shows it (the
    chart sets 0)."""
    ask_s: PositiveSeconds = 300.0
    """An empty patch, which writes nothing, brings the spec this often."""
    ask_busy_s: PositiveSeconds = 5.0
    """The same while a pod is stalled, a finding of ours is open, or a repair has our devices."""
    ask_busy_for_s: Seconds = 3600.0
    """A finding counts as open for the line above this long; the controller has settled it by then."""
    ask_broken_s: PositiveSeconds = 30.0
    """The same after that, as long as a device of the node is broken: its repair may have waited for pods to
    end, and then asks for the device."""
    burst_writes: Annotated[int, Meta(ge=1, le=10_000)] = 20
    """Edges written at once within `burst_window_s`; more of them wait and go out together."""
    burst_window_s: PositiveSeconds = 10.0
    """The last so many seconds, in which those are counted."""
    missing_retry_s: PositiveSeconds = 3.0
    """Until the controller has created this node's NodeHealth."""
    retry_max_s: PositiveSeconds = 5.0
    """Longest wait between two tries of a write that failed."""
    ready_within_s: PositiveSeconds = 660.0
    """/readyz fails when the API has not answered for this long: two asks and a minute."""


class Catalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    extra: str = ""
    """A TOML file with further rows; they win over the packaged ones. Its tables are `[[xid]]`, `[[sxid]]`,
    `[[gpu_driver]]`, `[[network]]`, `[[pcie]]`, `[[host_memory]]`, `[[storage]]`, `[[host]]`,
    `[[engine]]`, `[[gpu_health]]`, `[[fabric]]`, `[[volumes]]`, `[[host_states]]` and `[[log_error]]`. Bad
    rows are reported and skipped."""


class Confinement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the agent gives up of its container's rights before it reads anything (SECURITY.md)."""

    enabled: bool = True
    """Of all capabilities keep CAP_SYSLOG; with Landlock (Linux 5.13) use in /dev only NVIDIA's devices and
    the kernel log, and write no file. Where /dev lacks a device of NVIDIA's, all of /dev, CAP_MKNOD and
    CAP_CHOWN are kept, with which NVML makes it."""


class AgentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    chain: Chain = Chain()
    logs: Logs = Logs()
    nvml: Nvml = Nvml()
    gpu_metrics: GpuMetrics = GpuMetrics()
    fabric: Fabric = Fabric()
    volumes: Volumes = Volumes()
    host: Host = Host()
    pod_resources: PodResources = PodResources()
    publishing: Publishing = Publishing()
    catalogue: Catalogue = Catalogue()
    confinement: Confinement = Confinement()


def load(path: Path | None, overrides: list[str], type_: type[T]) -> T:
    """Reads a TOML file and `group.field=value` overrides into `type_`, a struct that forbids unknown fields.

    Raises `SettingsError`. An override's value is read as JSON where it is JSON, else as a string.
    """
    data: dict[str, Any] = {}
    file = "(defaults)"
    if path is not None:
        file = str(path)
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise SettingsError(f"{file}: cannot be read: {error.strerror}") from error
        except (ValueError, RecursionError) as error:  # a number may be too long, or a list too deep
            raise SettingsError(f"{file}: not valid TOML: {error}") from error
        _convert(data, type_, file)
    for override in overrides:
        named = (
            f"--set {override:.{_OVERRIDE_CHARS_MAX}}{'...' if len(override) > _OVERRIDE_CHARS_MAX else ''}"
        )
        _apply(data, override, named)
        _convert(data, type_, named)
    return _convert(data, type_, file)


def _convert(data: dict[str, Any], type_: type[T], file: str) -> T:
    try:
        return convert(data, type_, file=file)
    except BadValueError as error:
        raise SettingsError(str(error)) from error


def _apply(data: dict[str, Any], override: str, named: str) -> None:
    name, equals, text = override.partition("=")
    *groups, field = name.strip().split(".")
    if not equals or not field or not all(groups):
        raise SettingsError(f"{named}: expected group.field=value")
    for group in groups:
        inner = data.setdefault(group, {})
        if not isinstance(inner, dict):
            raise SettingsError(f"{named}: {group:.{_OVERRIDE_CHARS_MAX}} is a value, not a group")
        data = inner
    try:
        data[field] = json.loads(text)
    except (ValueError, RecursionError):
        data[field] = text
