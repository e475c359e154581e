"""Measures what pods cost: memory and CPU as the kernel counts them for the pods' cgroups, and requests as
the API server counts them. The measured programs are not involved."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tests.cluster.cases import until
from tests.cluster.cluster import Cluster
from tests.cluster.record import ClusterError, cgroup_hierarchies

__all__ = ["MIB", "Sample", "requests", "sample", "stored", "until_quiet"]

MIB = 1024 * 1024
GROUP = "rekindle.dev"
QUIET_S = 10.0
"""Time in seconds without a write of Rekindle's objects after which Rekindle is at rest. During a start, or
at the end of a gang, Rekindle is not at rest."""
QUIET_WITHIN_S = 180.0
LOOK_S = 1.0
_ROW = re.compile(r"(?P<name>\w+)\{(?P<labels>.*)\} (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_WRITES = {"create", "update", "delete"}


class Sample(msgspec.Struct, frozen=True):
    """A sample of one pod, its children and its pause container."""

    pss_bytes: int
    """Memory of the pod's processes: a page that n of them share counts 1/n for each."""
    cgroup_bytes: int
    """Memory that is compared with the pod's limit. It includes the files that the pod has read and the
    kernel caches."""
    cpu_s: float
    """CPU time in seconds since the pod's start, including processes that have ended."""


def sample(pod: Mapping[str, Any]) -> Sample:
    """Takes a sample. Raises ClusterError if the pod has no cgroup on this machine."""
    cpu, memory = (
        _cgroup(pod, "cpuacct.usage", "cpu.stat"),
        _cgroup(pod, "memory.usage_in_bytes", "memory.current"),
    )
    return Sample(
        pss_bytes=sum(_pss_bytes(pid) for pid in set(_processes(memory.parent))),
        cgroup_bytes=int(memory.read_text(encoding="ascii")),
        cpu_s=_cpu_s(cpu),
    )


def _cgroup(pod: Mapping[str, Any], *files: str) -> Path:
    """Returns the first of these files that the pod's cgroup has in any hierarchy. Version 1's file comes
    before version 2's."""
    pattern = f"rekindle-*/kubepods/**/pod{pod['metadata']['uid']}"
    folders = [folder for hierarchy in cgroup_hierarchies() for folder in hierarchy.glob(pattern)]
    for file in files:
        for folder in folders:
            if (folder / file).exists():
                return folder / file
    raise ClusterError(f"pod {pod['metadata']['name']} has no cgroup with {' or '.join(files)}")


def _cpu_s(file: Path) -> float:
    text = file.read_text(encoding="ascii")
    if file.name == "cpuacct.usage":
        return int(text) / 1e9
    return int(dict(line.split() for line in text.splitlines())["usage_usec"]) / 1e6


def _processes(cgroup: Path) -> Iterator[int]:
    for file in cgroup.rglob("cgroup.procs"):
        yield from map(int, file.read_text(encoding="ascii").split())


def _pss_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0  # the process has ended meanwhile, as disposable children do
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def requests(cluster: Cluster) -> Counter[str]:
    """Returns the number of requests to Rekindle's own kinds, as the API server has counted them, by `VERB
    RESOURCE`."""
    found: Counter[str] = Counter()
    for labels, count in _counted(cluster, "apiserver_request_total"):
        what = "/".join(part for part in (labels["resource"], labels["subresource"]) if part)
        found[f"{labels['verb']} {what}"] += count
    return found


def stored(cluster: Cluster) -> Counter[str]:
    """Returns the number of writes of Rekindle's own kinds that have reached etcd. A patch that changes
    nothing does not reach etcd."""
    found: Counter[str] = Counter()
    for labels, count in _counted(cluster, "etcd_request_duration_seconds_count"):
        if labels["operation"] in _WRITES:
            found[f"{labels['operation']} {labels['resource']}"] += count
    return found


def until_quiet(cluster: Cluster) -> None:
    """Returns when Rekindle has written all that it has to report about earlier faults."""
    seen, since = stored(cluster), time.monotonic()

    def quiet() -> bool:
        nonlocal seen, since
        if (now := stored(cluster)) != seen:
            seen, since = now, time.monotonic()
        time.sleep(LOOK_S)
        return time.monotonic() - since > QUIET_S

    until("the end of our writes", quiet, QUIET_WITHIN_S)


def _counted(cluster: Cluster, metric: str) -> Iterator[tuple[dict[str, str], int]]:
    """Yields the API server's rows of that metric for Rekindle's kinds."""
    for line in cluster.kubectl("get", "--raw", "/metrics").splitlines():
        row = _ROW.fullmatch(line)
        if row is not None and row["name"] == metric:
            labels = dict(_LABEL.findall(row["labels"]))
            if labels.get("group") == GROUP:
                yield labels, int(float(row["value"]))
