"""Faults of a GPU that only NVML reports, on real nodes. The child in the agent's container calls a stand-in
for the library, which answers as the test has set."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.cases import apply, until
from tests.cluster.cluster import GPUS_PER_NODE, Cluster
from tests.cluster.gpus import all_well, gpu_id
from tests.cluster.install import listed
from tests.cluster.installed.agents import health
from tests.cluster.installed.people import mend, quarantined, recoveries
from tests.cluster.installed.steppers import NAMESPACE, ranks, steppers, stepping

pytestmark = pytest.mark.real_nodes

NODE, OTHER = "worker-1", "worker-2"
LIMIT_S = 180.0


@pytest.fixture(autouse=True)
def tidied(cluster: Cluster) -> Iterator[None]:
    """Afterwards there is no gang, and all GPUs are healthy."""
    yield
    all_well(cluster.nodes[NODE].folder, NODE, GPUS_PER_NODE)
    cluster.kubectl("delete", "jobs", "--all", f"--namespace={NAMESPACE}")
    mend(cluster)


def codes(cluster: Cluster) -> list[str]:
    """Returns the codes of the open findings, without the note that the node has booted: another test may
    have booted it."""
    open_ = (one["code"] for one in health(cluster, NODE).get("findings", []) if "clearedAt" not in one)
    return [code for code in open_ if code != "node-booted"]


def test_a_gpu_that_only_nvml_knows_to_be_lost_is_named_and_its_gang_moves(cluster: Cluster) -> None:
    apply(cluster, steppers("llm", gpus=GPUS_PER_NODE, nodes=[NODE, OTHER]))
    assert {pod["spec"]["nodeName"] for pod in stepping(cluster, "llm")} == {NODE, OTHER}
    before = {pod["metadata"]["uid"] for pod in ranks(cluster, "llm")}
    until("NVML's devices", lambda: "families" in nvml(cluster), LIMIT_S)

    all_well(cluster.nodes[NODE].folder, NODE, GPUS_PER_NODE).answer(1, handle_error=15)

    told_s = until("the finding", lambda: codes(cluster) == ["nvml-gpu-lost"], LIMIT_S)
    moved_s = until("new ranks", lambda: len(anew(cluster, before)) == len(before), LIMIT_S)
    print(
        f"\na GPU that only NVML knew to be lost: told after {told_s:.1f} s, ranks anew {moved_s:.1f} s later"
    )
    assert NODE not in {pod["spec"]["nodeName"] for pod in stepping(cluster, "llm")}
    assert quarantined(cluster) == {NODE}
    assert len(recoveries(cluster, "llm")) == 1
    (finding,) = (one for one in health(cluster, NODE)["findings"] if one["code"] != "node-booted")
    assert finding["subject"]["device"] == gpu_id(NODE, 1)
    incidents = [one["spec"]["fault"] for one in listed(cluster, "incidents.rekindle.dev")]
    assert "application" not in incidents


def nvml(cluster: Cluster) -> dict[str, object]:
    """Returns the coverage of NVML on the node."""
    (row,) = [one for one in health(cluster, NODE)["coverage"] if one["source"] == "nvml"]
    return dict(row)


def anew(cluster: Cluster, before: set[str]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in ranks(cluster, "llm")} - before
