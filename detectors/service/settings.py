"""Defines the agent's settings, as small groups, each field with its unit, default and reason; and the
loader.

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
"""30 years. Python's clocks cannot add an infinite time to another time."""
_OVERRIDE_CHARS_MAX = 200
"""Number of characters of an override that a message shows."""

Seconds = Annotated[float, Meta(ge=0, le=_SECONDS_MAX)]
PositiveSeconds = Annotated[float, Meta(gt=0, le=_SECONDS_MAX)]
Bytes = Annotated[int, Meta(ge=1024, le=2**40)]


class SettingsError(Exception):
    """A settings file or override that cannot be used: names file, field, value and what was expected."""


class Chain(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How kernel lines fold into findings."""

    repeat_s: PositiveSeconds = 2.0
    """If a hardware fault of severity `pending` or `fatal` occurs again on the same subject after a pause of
    at least this time, the agent begins a new finding. After a shorter pause the agent raises the `count` of
    the finding. Each further finding of the same fault doubles this minimum, up to 10 s. For all other faults
    the minimum is 60 s. If `repeat_s` is longer than 10 s, it takes the place of the 10 s; if it is longer
    than 60 s, also of the 60 s."""
    consequence_s: PositiveSeconds = 10.0
    """Time within which the agent treats further codes on the same device as consequences of the first code
    (the Xids 48, 171, 63 and 154 appear within seconds)."""


class Logs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the agent reads the logs of training pods."""

    stall_min_s: PositiveSeconds = 600.0
    """Minimum time without a step after which a pod counts as stalled: evaluations and checkpoints take
    minutes. The time is three times as long when a first evaluation or checkpoint may begin without a log
    line: at the end of an epoch or of the run, and after 500, 1000, 2500 or another usual number of steps.
    The same applies after the fifth, tenth and twentieth step, because many scripts print every step
    until then, and later only some steps."""
    stall_factor: Annotated[float, Meta(ge=2, le=1e6)] = 10.0
    """Minimum time without a step after which a pod counts as stalled, as a multiple of the median time of a
    step. The time is also at least one and a half times the longest time between two lines with a step. If
    the log prints only some of the steps, the agent adds the usual time between two of these lines to this
    minimum."""
    pause_s: PositiveSeconds = 1800.0
    """Minimum time after a line about a checkpoint or an evaluation before the pod counts as stalled. The
    hang-timeout of a job takes precedence over this time."""
    containers_max: Annotated[int, Meta(ge=1, le=4096)] = 256
    """Maximum number of containers whose logs the agent reads at once. If more containers run, the agent
    prefers containers whose pods hold devices, or whose pods the controller has named. The NodeHealth's
    coverage then says that the agent does not read the logs of some pods."""
    read_bytes: Bytes = 64 * 1024
    """Maximum number of bytes that the agent reads of one file before it reads the next file, so that a pod
    that prints gigabytes does not delay the other pods."""
    read_pause_s: PositiveSeconds = 0.025
    """Pause between two reads of one log file. This pause and `read_bytes` together limit how many bytes per
    second the agent reads of one file."""
    node_bytes_per_s: Annotated[float, Meta(ge=1024, le=1e12)] = 4e6
    """Maximum number of bytes per second that the agent reads from all log files of the node together. The
    agent reads the remaining bytes later, and skips bytes only beyond `backlog_bytes_max`. Reading uses at
    most half of one core, even if the lines of a log need much time."""
    backlog_bytes_max: Bytes = 8 * 1024 * 1024
    """Maximum number of unread bytes of a log file. If a file has more unread bytes, the agent
    continues near the end of the file, and counts the skipped bytes in a metric."""
    line_bytes_max: Bytes = 16 * 1024
    """Maximum length of a log line, in bytes. The agent cuts longer lines: containerd also splits lines at
    16 KiB."""
    ended_poll_s: PositiveSeconds = 0.5
    """Time between two checks whether the cgroup of a pod still exists, if the kernel does not tell the agent
    of removed cgroups (inotify). By its cgroup the agent notices that a pod has ended."""
    ended_keep_s: Seconds = 900.0
    """Minimum time for which the agent keeps an ended container in NodeHealth.status, so that the controller
    can read the container's last lines."""
    excluded_namespaces: tuple[str, ...] = ("kube-*", "rekindle-system")
    """Namespaces whose logs the agent never opens. A trailing `*` matches any rest."""


class Nvml(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The GPUs' inventory and health, which the agent reads in a child process, because a call of the
    driver may never return."""

    enabled: bool = True
    """With `false`, the agent reads the inventory from /proc/driver/nvidia, and the health of the GPUs
    from the kernel log only."""
    deadline_s: PositiveSeconds = 60.0
    """Time limit of a call of the driver, which can take 6 to 45 s in a GSP timeout. After the limit, the
    agent no longer waits for the child process, and reports that NVML does not answer."""
    every_s: PositiveSeconds = 30.0
    """Time between two reads of the health of the GPUs."""
    confirm_s: PositiveSeconds = 10.0
    """Time between two reads of the GPUs, if several reads must give the same answer before the agent reports
    a state."""
    refresh_s: PositiveSeconds = 3600.0
    """Time between two reads of GPUs that no pod uses and that the driver does not keep ready: without
    persistence mode each read would start the GPU."""
    gpus_expected: Annotated[int, Meta(ge=0, le=64)] = 0
    """Number of GPUs that the node should have. If the node has fewer GPUs, the node is a suspect. With
    0, the agent expects the largest number of GPUs that the PCI bus, this boot or the last boot has shown."""
    retry_s: PositiveSeconds = 60.0
    """Wait after the first failure of NVML, before the agent uses NVML again. Each further failure doubles
    the wait, up to `refresh_s`."""
    hands_off_max_s: PositiveSeconds = 3600.0
    """Maximum time for which the agent does not use NVML because a repair needs the devices. This time must
    be longer than any step of a repair."""


class Export(StrEnum):
    OFF = "off"
    AUTO = "auto"
    """On, unless the node has a pod of NVIDIA's dcgm-exporter, which exports the same readings and more."""
    ON = "on"


class GpuMetrics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Readings of the GPUs (such as utilization) in the agent's metrics, for dashboards
    (docs/monitoring.md#gpus)."""

    export: Export = Export.OFF
    """`on`, `off` or `auto`. With `auto`, the agent exports the readings of the GPUs unless the node has a
    pod of NVIDIA's dcgm-exporter, which exports the same readings and more. The agent takes these readings
    together with the health of the GPUs (`nvml.every_s`)."""
    series_max: Annotated[int, Meta(ge=1, le=20_000)] = 1000
    """Maximum number of series about GPUs and their pods in one scrape. The agent leaves out further series,
    series of pods first, and reports their number in a metric. A GPU has 10 series, a MIG GPU instance 2, a
    pod up to 3 for each GPU or instance."""


class Fabric(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The ports of InfiniBand and RoCE adapters, which the agent reads in /sys."""

    enabled: bool = True
    """With `false`, the agent learns of faults of ports only from the kernel log."""
    every_s: PositiveSeconds = 15.0
    """Time between two reads of the ports, by the clock: the agents of all nodes read at the same moments."""
    deadline_s: PositiveSeconds = 10.0
    """Time limit of a read of the ports, because the firmware of an adapter may hang. After the limit, the
    agent stops waiting for the read, and reports that the source is blind."""
    dead_s: Seconds = 60.0
    """If a port has had no link for this time, and a rank that was on the node when the link was lost has
    ended or makes no more steps, the agent reports the port as dead. If an adapter has been missing on the
    bus for this time, the agent reports the adapter as gone."""
    settle_s: Seconds = 300.0
    """Time after a boot, and after the load of the driver, in which the agent does not judge a port. When a
    port that was down has been active for this time, the agent treats the port as healthy."""
    flap_window_s: PositiveSeconds = 300.0
    """If a link goes down twice within this time, the agent reports the link as flapping."""
    errors_per_hour: Annotated[int, Meta(ge=0, le=10**9)] = 120
    """Maximum number of errors of a link within an hour. If the link has more errors, the agent reports a
    note. A link may have one wrong bit in 10^12 (InfiniBand), and a healthy link has none after its error
    correction."""


class Volumes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The volumes that pods with accelerators mount. The agent reads their free space in a child process,
    because a call may never return."""

    enabled: bool = True
    """With `false`, the agent learns of full, silent and broken volumes only from the kernel log and from
    the logs of pods."""
    every_s: PositiveSeconds = 60.0
    """Time between two reads of the volumes. After the end of a rank the agent reads earlier. For a network
    volume, each read is one request to the file server."""
    pause_s: PositiveSeconds = 5.0
    """Minimum time between two reads of the volumes. The minimum also applies after the end of a rank."""
    deadline_s: PositiveSeconds = 60.0
    """Time limit of a call to a file system. If a volume does not answer within this time, the agent reports
    the volume as silent. The failover of a file server may take most of this time."""
    full_bytes: Annotated[int, Meta(ge=0, le=2**60)] = 2**30
    """Limit of the free space in bytes. The agent reports a volume as full if at most this number of bytes,
    and at most `full_percent` of the size of the volume, are free for its users."""
    full_percent: Annotated[float, Meta(ge=0, le=100)] = 1.0
    """Percentage for the free space and for the free inodes (files). It counts for the free space only
    together with `full_bytes`. If at most this percentage of the inodes is free, the agent reports the volume
    as full, whatever the free space."""


class Host(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The node itself, which the agent reads in /proc and /sys."""

    enabled: bool = True
    """With `false`, the agent learns of faults of the node only from the kernel log."""
    every_s: PositiveSeconds = 30.0
    """Time between two reads of pressure and processes."""
    clock_s: PositiveSeconds = 2.0
    """Maximum difference between the node's clock and the API server's clock. If the difference is greater,
    the agent reports a note, because the log times of different nodes can then hardly be compared."""
    memory_percent: Annotated[float, Meta(gt=0, le=100)] = 10.0
    """Maximum percentage of the last five minutes in which all work of the node waited for memory. If the
    percentage is greater, the agent reports a note."""
    io_percent: Annotated[float, Meta(gt=0, le=100)] = 60.0
    """Maximum percentage of the last five minutes in which all work of the node waited for disks or file
    servers. If the percentage is greater, the agent reports a note. Checkpoints cause some of these waits."""
    cpu_percent: Annotated[float, Meta(gt=0, le=100)] = 90.0
    """Maximum percentage of the last five minutes in which some work of the node waited for a processor, for
    example because of too many data loaders. If the percentage is greater, the agent reports a note."""
    pids_percent: Annotated[float, Meta(gt=0, le=100)] = 85.0
    """Maximum percentage of the node's process ids that are in use. If the percentage is greater, the agent
    reports a note. The kubelet evicts pods when few process ids are free."""


class PodResources(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The agent asks the kubelet which pod holds which device, in a child process, because a call may
    never return."""

    enabled: bool = True
    """With `false`, the agent does not ask the kubelet, and Rekindle assumes that every GPU pod of the node
    holds the broken device."""
    deadline_s: PositiveSeconds = 5.0
    """Time limit of a call to the kubelet. When the agent starts, it waits for the first answer before it
    reads the kernel log."""
    pause_s: PositiveSeconds = 1.0
    """Pause between two calls to the kubelet, so that pods that start together need one call."""
    retry_s: PositiveSeconds = 5.0
    """Wait after the first failed call to the kubelet. Each further failure doubles the wait, up to
    `retry_max_s`. For a new pod or finding the agent calls at once."""
    retry_max_s: PositiveSeconds = 300.0
    """Maximum wait after a failed call to the kubelet: even on a node without new pods or findings, the agent
    asks the kubelet again within this time."""


class Publishing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When the agent writes NodeHealth.status, and reads the spec."""

    refresh_s: PositiveSeconds = 600.0
    """Maximum time that minor changes, such as counts, wait before the agent writes them."""
    idle_refresh_s: Seconds = 600.0
    """Maximum time between two writes of NodeHealth.status, even if nothing changes, so that the age of the
    status shows whether the agent runs. 0 means no limit: if agents are pods, their readiness shows whether
    they run (the chart sets 0)."""
    ask_s: PositiveSeconds = 300.0
    """Time between two reads of NodeHealth.spec. The agent has no permission to get its NodeHealth. The agent
    reads the spec from the answer to an empty patch, which changes nothing."""
    ask_busy_s: PositiveSeconds = 5.0
    """Time between two reads of NodeHealth.spec while a pod is stalled, a finding is open, or a repair needs
    the devices."""
    ask_busy_for_s: Seconds = 3600.0
    """Maximum time for which the agent reads the spec every `ask_busy_s` because of one open finding: after
    this time the controller has decided about the finding."""
    ask_broken_s: PositiveSeconds = 30.0
    """Time between two reads of NodeHealth.spec after `ask_busy_for_s`, as long as a device of the node is
    broken: a repair that waited for pods to end may then need the device."""
    burst_writes: Annotated[int, Meta(ge=1, le=10_000)] = 20
    """Maximum number of important changes that the agent writes at once within `burst_window_s`. Further
    changes wait, and the agent writes them together."""
    burst_window_s: PositiveSeconds = 10.0
    """Length of the window for `burst_writes`."""
    missing_retry_s: PositiveSeconds = 3.0
    """Time between two tries of the agent's first write, while the controller has not yet created the
    NodeHealth of this node."""
    retry_max_s: PositiveSeconds = 5.0
    """Maximum time between two tries of the same write to the API server, if the write fails."""
    ready_within_s: PositiveSeconds = 660.0
    """Maximum time without an answer of the API server before /readyz fails. The default is twice `ask_s`
    plus one minute."""


class Catalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    extra: str = ""
    """Path of a TOML file with further rows, which replace packaged rows of the same code. The chart sets
    this path, and its value `settings.catalogue` is the text of the file. The tables are `[[xid]]`,
    `[[sxid]]`, `[[gpu_driver]]`, `[[network]]`, `[[pcie]]`, `[[host_memory]]`, `[[storage]]`, `[[host]]`,
    `[[engine]]`, `[[gpu_health]]`, `[[fabric]]`, `[[volumes]]`, `[[host_states]]` and `[[log_error]]`. The
    agent reports bad rows, and skips them."""


class Confinement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rights of its container that the agent gives up before it reads anything (SECURITY.md)."""

    enabled: bool = True
    """With `true`, the agent keeps only the capability CAP_SYSLOG. With Landlock (Linux 5.13) the agent uses
    in /dev only the devices of NVIDIA or Iluvatar, the kernel log, and harmless devices such as /dev/null,
    and writes no file. If /dev lacks a device of NVIDIA, NVML must be able to create the device: the agent
    then also keeps the capabilities CAP_MKNOD and CAP_CHOWN, and its access to all of /dev."""


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

    Raises `SettingsError`. An override's value is read as JSON if it is valid JSON, otherwise as a string.
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
