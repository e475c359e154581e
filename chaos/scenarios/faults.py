"""Injects the faults of a scenario where real faults would appear: a kernel record, a signal to a rank's
process."""

from __future__ import annotations

import asyncio
import re
import signal
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from chaos.apiserver.kinds import Object
from chaos.cluster.containers import Exit
from chaos.scenarios.manifests import NAMESPACE
from chaos.scenarios.scenario import Fault, LogLine, When, Xid
from chaos.scenarios.stage import Stage
from recover.k8s.kinds import PODS

__all__ = ["XID_TEXTS", "StepLine", "inject", "last_step_line", "rank_pod", "wait_for"]

_STEP = re.compile(rb"^\S+ \w+ \w ((?:.* )?step (\d+)/.*)$", re.MULTILINE)
"""Pattern of a line of a container's log with a step: time, stream and tag of the container runtime, then the
text."""
XID_TEXTS = {
    13: "pid=4242, name=python3, Graphics SM Warp Exception on (GPC 9, TPC 1, SM 1): Out Of Range Address",
    48: "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer.",
    79: "GPU has fallen off the bus.",
    95: "pid=7062, Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No",
}
POLL_S = 0.01


def rank_pod(stage: Stage, job: str, rank: int) -> Object | None:
    """Returns the pod of that rank that is not being deleted, for each kind of job that a scenario may have.
    Returns None if there is none."""
    for pod in stage.objects(PODS):
        meta = pod["metadata"]
        if meta["namespace"] == NAMESPACE and "deletionTimestamp" not in meta and _rank(pod, job) == rank:
            return pod
    return None


def _rank(pod: Object, job: str) -> int | None:
    """Returns the pod's rank by the numbering of manifests.py: the workers of a PyTorchJob come after its
    master."""
    labels = pod["metadata"].get("labels", {})
    if labels.get("training.kubeflow.org/job-name") == job:
        index = int(labels["training.kubeflow.org/replica-index"])
        has_master = labels["training.kubeflow.org/operator-name"] == "pytorchjob-controller"
        is_worker = labels["training.kubeflow.org/replica-type"] == "worker"
        return index + 1 if has_master and is_worker else index
    if labels.get("batch.kubernetes.io/job-name") == job:
        return int(labels["batch.kubernetes.io/job-completion-index"])
    return None


async def wait_for(stage: Stage, job: str, when: When) -> None:
    """Waits until the moment of the fault. There is no time limit."""
    while _last_step(stage, job) < when.step:
        await asyncio.sleep(POLL_S)
    if when.writing_checkpoint:
        while not _half_written(stage.folder / "checkpoints", when.step):
            await asyncio.sleep(POLL_S / 2)


class StepLine(msgspec.Struct, frozen=True):
    """A step that the first rank has printed."""

    step: int
    text: str


def last_step_line(stage: Stage, job: str) -> StepLine | None:
    """Reads the first rank's own log file, as the agent of its node does. Returns None if it has printed no
    step yet."""
    pod = rank_pod(stage, job, 0)
    if pod is None or not pod["spec"].get("nodeName"):
        return None
    logs = stage.cluster.hosts[pod["spec"]["nodeName"]].log_folder(pod).glob("*/*.log")
    found = [match for log in logs for match in _STEP.findall(log.read_bytes()[-4096:])]
    lines = [StepLine(int(step), text.decode(errors="replace")) for text, step in found]
    return max(lines, key=lambda line: line.step, default=None)


def _last_step(stage: Stage, job: str) -> int:
    line = last_step_line(stage, job)
    return line.step if line else 0


def _half_written(checkpoints: Path, after: int) -> bool:
    """Whether a checkpoint of that step, or of a later one, has shards and no commit marker yet."""
    for folder in checkpoints.glob("step-*"):
        later = folder.name[5:].isdecimal() and int(folder.name[5:]) >= after
        if later and not (folder / "commit.json").exists() and any(folder.glob("shard-*")):
            return True
    return False


def inject(stage: Stage, job: str, fault: Fault) -> tuple[str, str]:
    """Injects the fault now. Returns the node and a description. The rank must be running."""
    if fault.xid is not None:
        return _xid(stage, job, fault.xid)
    if fault.log_line is not None:
        return _log_line(stage, job, fault.log_line)
    assert fault.pod_crash is not None
    pod = _running(stage, job, fault.pod_crash.rank)
    number = signal.Signals[f"SIG{fault.pod_crash.signal}"]
    stage.cluster.crash_pod(pod["metadata"]["name"], Exit.by_signal(number), NAMESPACE)
    node = pod["spec"]["nodeName"]
    return node, f"rank {fault.pod_crash.rank} on {node} crashes with {number.name}"


def _xid(stage: Stage, job: str, xid: Xid) -> tuple[str, str]:
    pod = _running(stage, job, xid.rank)
    node = pod["spec"]["nodeName"]
    address = stage.cluster.hosts[node].gpus[0].pci.rsplit(".", 1)[0]
    text = xid.text or XID_TEXTS.get(xid.code, "test record")
    stage.cluster.append_kmsg(node, f"NVRM: Xid (PCI:{address}): {xid.code}, {text}")
    if xid.kills:
        stage.cluster.crash_pod(pod["metadata"]["name"], Exit.by_signal(signal.SIGABRT), NAMESPACE)
    return node, f"kernel of {node}, where rank {xid.rank} runs: Xid {xid.code}, {text}"


def _log_line(stage: Stage, job: str, line: LogLine) -> tuple[str, str]:
    pod = _running(stage, job, line.rank)
    node = pod["spec"]["nodeName"]
    log = max(stage.cluster.hosts[node].log_folder(pod).glob("*/*.log"))
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
    with log.open("ab", buffering=0) as file:
        file.write(f"{stamp} stdout F {line.text}\n".encode())
    return node, f"rank {line.rank} on {node} prints: {line.text}"


def _running(stage: Stage, job: str, rank: int) -> Object:
    pod = rank_pod(stage, job, rank)
    assert pod is not None, f"rank {rank} of {job} has no pod to strike"
    return pod
