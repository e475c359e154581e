"""While a gang trains and nothing is wrong, the test measures what agents and controllers cost on real nodes,
and checks that none of them writes.

REKINDLE_IDLE_S sets how many seconds are watched (default 60). `pytest -s` shows the figures. The agents'
children call a stand-in for NVML, which reads a file at each call. A sample taken while a child is being
forked counts the agent twice: the test prints the peak, and judges the memory that is used for longer.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from tests.cluster.cases import apply
from tests.cluster.cluster import Cluster
from tests.cluster.install import SYSTEM, listed
from tests.cluster.installed.steppers import NAMESPACE, steppers, stepping
from tests.cluster.installed.usage import MIB, Sample, requests, sample, stored, until_quiet

pytestmark = pytest.mark.real_nodes

IDLE_S = float(os.environ.get("REKINDLE_IDLE_S", "60"))
SAMPLE_S = 2.0
AGENT_PSS_BYTES_MAX = 64 * MIB
MAY_BE_IDLE = {
    # One of the controllers leads; the others check whether it still does.
    "rekindle-controller patch leases",
    # An agent's request for its spec: an empty patch, which stores nothing.
    "rekindle-agent patch nodehealths/status",
}


class Cost(msgspec.Struct, frozen=True):
    """Cost of one pod, over the time that it was watched."""

    pss_bytes_max: int
    """Most memory in two consecutive samples: a disposable child lives for less than the time between
    them."""
    pss_bytes_peak: int
    """Most memory in any sample."""
    cgroup_bytes_max: int
    cpu_percent: float
    """CPU time in percent of one core."""

    @classmethod
    def of(cls, samples: Sequence[Sample], seconds: float) -> Cost:
        return cls(
            pss_bytes_max=max(min(a.pss_bytes, b.pss_bytes) for a, b in pairwise(samples)),
            pss_bytes_peak=max(s.pss_bytes for s in samples),
            cgroup_bytes_max=max(s.cgroup_bytes for s in samples),
            cpu_percent=100 * (samples[-1].cpu_s - samples[0].cpu_s) / seconds,
        )

    def __str__(self) -> str:
        memory = f"{self.pss_bytes_max / MIB:.1f} MiB PSS"
        peak = (
            f"{self.pss_bytes_peak / MIB:.1f} in one sample, {self.cgroup_bytes_max / MIB:.1f} in its cgroup"
        )
        return f"{memory} ({peak}), {self.cpu_percent:.2f} % of a core"


def test_while_a_gang_trains_we_write_nothing_and_cost_little(cluster: Cluster) -> None:
    apply(cluster, steppers("idle"))
    stepping(cluster, "idle")
    until_quiet(cluster)
    pods = listed(cluster, "pods", "--selector=app.kubernetes.io/name=rekindle")
    asked_before, stored_before = requests(cluster), stored(cluster)
    position = cluster.plane.audit_position()

    costs = watched(pods)

    asked, changes = requests(cluster) - asked_before, stored(cluster) - stored_before
    writes = our_writes(cluster, position)
    print(f"\n{IDLE_S:g} s on {len(cluster.nodes)} nodes; a gang of two ranks prints a step a second")
    for name, cost in sorted(costs.items()):
        print(f"  {name}: {cost}")
    print(f"  goals of an agent: <= {AGENT_PSS_BYTES_MAX / MIB:g} MiB PSS, <= 0.2 % of a core")
    print(f"  requests to our kinds, by the API server's metrics: {told(asked)}")
    print(f"  stored of them: {told(changes)}")
    print(f"  our requests that could write, by its audit log: {told(writes)}")
    cluster.kubectl("delete", "job", "idle", f"--namespace={NAMESPACE}")
    assert changes == Counter()
    assert writes.keys() <= MAY_BE_IDLE
    agents = {name: cost for name, cost in costs.items() if name.startswith("rekindle-agent")}
    assert len(agents) == len(cluster.nodes)
    assert all(cost.pss_bytes_max <= AGENT_PSS_BYTES_MAX for cost in agents.values())


def watched(pods: Sequence[Mapping[str, Any]]) -> dict[str, Cost]:
    """Returns the cost of each pod, by the pod's name."""
    samples: dict[str, list[Sample]] = {pod["metadata"]["name"]: [] for pod in pods}
    began = time.monotonic()
    while True:
        for pod in pods:
            samples[pod["metadata"]["name"]].append(sample(pod))
        took_s = time.monotonic() - began
        if took_s >= IDLE_S:
            return {name: Cost.of(taken, took_s) for name, taken in samples.items()}
        time.sleep(min(SAMPLE_S, IDLE_S - took_s))


def our_writes(cluster: Cluster, since: int) -> Counter[str]:
    """Returns how often Rekindle's accounts have written since then, by `ACCOUNT VERB RESOURCE`."""
    ours = f"system:serviceaccount:{SYSTEM}:"
    return Counter(
        f"{write.user.username.removeprefix(ours)} {write.verb} "
        + "/".join(part for part in (write.object_ref.resource, write.object_ref.subresource) if part)
        for write in cluster.plane.audited(since)
        if write.user.username.startswith(ours)
    )


def told(counted: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counted.items())) or "none"
