"""The agent as a pod of a real node: how it ends and begins again, with its pod and with its node, and how it
follows logs that the kubelet rotates."""

from __future__ import annotations

import contextlib
import gzip
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from chaos.simulated.lines import CONTAINED
from tests.cluster.cases import apply, until
from tests.cluster.cluster import Cluster
from tests.cluster.gpus import gpu_id
from tests.cluster.install import SYSTEM, listed
from tests.cluster.installed.agents import agent_on, boot, health, in_agent, until_ready
from tests.cluster.installed.people import mend
from tests.cluster.installed.steppers import NAMESPACE, steppers
from tests.cluster.kernel_log import xid
from tests.cluster.node import Node
from tests.cluster.record import ClusterError

pytestmark = pytest.mark.real_nodes

NODE = "spare-1"
LIMIT_S = 120.0
ENDS_WITHIN_S = 25.0
"""Time in seconds within which the agent must end. Its grace period is longer; after it the agent would be
killed."""
STEPS = 3000
CHATTY = f"""
import time
for step in range(1, {STEPS} + 1):
    print(f"step {{step}} loss 0.25 and what else a training has to say", flush=True)
    time.sleep(0.005)
"""
ROTATIONS_MIN = 2
SCRAPE = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9101/metrics').read().decode())"


@pytest.fixture(autouse=True)
def tidied(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.kubectl("delete", "jobs", "--all", f"--namespace={NAMESPACE}")
    mend(cluster)


def found(cluster: Cluster) -> list[tuple[str, str, int]]:
    """Returns code, device and count of each finding on the node that is not cleared, except the note of a
    boot."""
    told = health(cluster, NODE).get("findings", [])
    findings = [f for f in told if "clearedAt" not in f and f["code"] != "node-booted"]
    return sorted((f["code"], f["subject"]["device"], f.get("count", 1)) for f in findings)


def test_an_agent_that_is_ended_goes_at_once_and_the_next_one_loses_and_repeats_nothing(
    cluster: Cluster,
) -> None:
    node = cluster.nodes[NODE]
    first, second = (("xid-94", gpu_id(NODE, gpu), 1) for gpu in (0, 1))
    xid(node, CONTAINED, gpu=0)
    until("the finding", lambda: found(cluster) == [first], LIMIT_S)
    before, began = health(cluster, NODE), time.monotonic()

    cluster.kubectl("delete", "pod", agent_on(cluster, NODE), f"--namespace={SYSTEM}")
    gone_s = time.monotonic() - began
    xid(node, CONTAINED, gpu=1)  # while no agent reads
    left = health(cluster, NODE)

    ready_s = until_ready(cluster, NODE)
    until("both findings", lambda: found(cluster) == sorted([first, second]), LIMIT_S)
    print(f"\nan agent's pod was gone after {gone_s:.1f} s, the next one Ready {ready_s:.1f} s later")
    assert gone_s < ENDS_WITHIN_S
    for told in (left, health(cluster, NODE)):  # the first may already contain the next agent's line
        assert all(finding in told["findings"] for finding in before["findings"])


def test_after_a_boot_the_agent_is_there_again_and_tells_of_the_new_boot_alone(cluster: Cluster) -> None:
    node = cluster.nodes[NODE]
    xid(node, CONTAINED)
    until("the finding", lambda: len(found(cluster)) == 1, LIMIT_S)
    told_s = boot(cluster, NODE)
    assert [one["code"] for one in health(cluster, NODE).get("findings", [])] in ([], ["node-booted"])
    xid(node, CONTAINED)
    until("the finding of this boot", lambda: len(found(cluster)) == 1, LIMIT_S)
    print(f"\nthe agent told of the new boot {told_s:.1f} s after it began")
    (finding,) = (one for one in health(cluster, NODE)["findings"] if one["code"] != "node-booted")
    assert finding["bootId"] == node.boot_id
    assert finding["id"] == f"{node.boot_id[:8]}-kmsg-0"


def test_every_step_is_read_once_while_the_kubelet_rotates_the_log(cluster: Cluster) -> None:
    node = cluster.nodes[NODE]
    with rotating(cluster, node):
        read_before = read_bytes(cluster)
        apply(cluster, steppers("chatty", count=1, gpus=0, program=CHATTY, only_on=NODE))
        until("its rank", lambda: len(made(cluster, "chatty")) == 1, LIMIT_S)
        (pod,) = made(cluster, "chatty")
        until("its last step", lambda: last_step(cluster, pod) == STEPS, LIMIT_S)
        until("the end of its last rotation", lambda: is_at_rest(node, pod), LIMIT_S)

    written, read = [text(file) for file in logs(node, pod)], read_bytes(cluster) - read_before
    print(f"\n{STEPS} steps in {len(written)} files, {sum(map(len, written))} bytes; {read} were read")
    assert len(written) > ROTATIONS_MIN
    assert sum(part.count(b" step ") for part in written) == STEPS
    assert read == sum(map(len, written))
    assert progress(cluster, pod)["firstStep"] == 1


def made(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    """Returns the pods of that gang, including ended pods."""
    return listed(cluster, "pods", f"--selector=steppers={name}")


@contextmanager
def rotating(cluster: Cluster, node: Node) -> Iterator[None]:
    """While the block runs, that kubelet rotates logs as soon as they have 10 KiB."""
    file = node.folder / "kubelet.yaml"
    usual = file.read_text(encoding="utf-8")
    soon = {"containerLogMaxSize": "10Ki", "containerLogMaxFiles": 50, "containerLogMonitorInterval": "3s"}
    file.write_text(yaml.safe_dump({**yaml.safe_load(usual), **soon}), encoding="utf-8")
    restart_kubelet(cluster, node)
    try:
        yield
    finally:
        file.write_text(usual, encoding="utf-8")
        restart_kubelet(cluster, node)


def restart_kubelet(cluster: Cluster, node: Node) -> None:
    """Restarts the kubelet. Returns when the new kubelet answers, and has reported the node's GPUs."""
    node.kill_programs("kubelet", "gpu-plugin")
    before = heartbeats(cluster, node)
    node.restart_programs()

    def answers() -> bool:
        with contextlib.suppress(ClusterError):
            return in_agent(cluster, node.name, "python", "-c", "print('here')") == "here\n"
        return False

    until(f"the kubelet of {node.name}", answers, LIMIT_S)
    until(f"the word of {node.name}", lambda: heartbeats(cluster, node) != before, LIMIT_S)
    cluster.wait_until_ready(node.name)


def heartbeats(cluster: Cluster, node: Node) -> list[str]:
    """Returns the times of the kubelet's last reports about the node. A kubelet reports at least every 10
    s."""
    return [str(c["lastHeartbeatTime"]) for c in cluster.node_status(node.name)["conditions"]]


def logs(node: Node, pod: dict[str, Any]) -> list[Path]:
    folder = f"{NAMESPACE}_{pod['metadata']['name']}_{pod['metadata']['uid']}"
    return list((node.folder / "var-log" / "pods" / folder / "train").iterdir())


def is_at_rest(node: Node, pod: dict[str, Any]) -> bool:
    """Whether no log file is being compressed. A compressed file exists twice for a moment."""
    names = [file.name for file in logs(node, pod)]
    return not any(name.endswith(".tmp") or f"{name}.gz" in names for name in names)


def text(file: Path) -> bytes:
    return gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()


def progress(cluster: Cluster, pod: dict[str, Any]) -> dict[str, Any]:
    """Returns what the agent has published about the pod."""
    told = health(cluster, NODE).get("pods", [])
    return next((p for p in told if p["uid"] == pod["metadata"]["uid"]), {})


def last_step(cluster: Cluster, pod: dict[str, Any]) -> int | None:
    return progress(cluster, pod).get("lastStep")


def read_bytes(cluster: Cluster) -> int:
    """Returns how many bytes of pods' logs that agent has read since its start."""
    scraped = in_agent(cluster, NODE, "python", "-c", SCRAPE)
    (value,) = re.findall(r"^rekindle_agent_log_bytes_total (\S+)$", scraped, re.MULTILINE)
    return int(float(value))
