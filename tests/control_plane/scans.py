"""Scan pods on KWOK nodes. No container runs there, so the test reports what the kubelet of a scan pod would
report.

A job keeps its checkpoints on NFS, which a scan may mount. Nothing reads the NFS here.
"""

from __future__ import annotations

from typing import Any

from detectors.wire.resource import MergePatch
from recover.checkpoints.scan_result import Checkpoint, ScanMessage, encode_message
from recover.k8s.kinds import PODS
from tests.control_plane.stage import NAMESPACE, RealStage

__all__ = ["SCANS", "answered", "checkpoint", "says_kubelet", "scan_of", "with_checkpoints"]

SCANS = "rekindle.dev/scan-of"
"""Label of the scan pods."""
_VOLUME = {"name": "checkpoints", "nfs": {"server": "nfs.example", "path": "/llm"}}
_MOUNT = {"name": "checkpoints", "mountPath": "/checkpoints"}


def with_checkpoints(job: dict[str, Any]) -> dict[str, Any]:
    """Returns the manifest of a Job or PyTorchJob, changed so that its ranks keep their checkpoints on
    NFS."""
    job["metadata"]["annotations"]["rekindle.dev/checkpoint"] = "/checkpoints"
    spec = job["spec"]
    replicas = [spec] if "template" in spec else spec["pytorchReplicaSpecs"].values()
    for replica in replicas:
        pod = replica["template"]["spec"]
        pod["volumes"] = [_VOLUME]
        for container in pod["containers"]:
            container["volumeMounts"] = [_MOUNT]
    return job


def checkpoint(step: int) -> Checkpoint:
    path, format_ = f"step-{step}", "rekindle-sharded"
    return Checkpoint(step=step, path=path, format=format_, complete=True, reason="", bytes=1)


async def scan_of(stage: RealStage, recovery: str = "") -> Any:
    """Returns the active scan pod, of that Recovery if one is given: its scheduling gate is removed, and it
    has not ended."""
    scans = await stage.all(PODS, NAMESPACE, f"{SCANS}={recovery}" if recovery else SCANS)
    return next((scan for scan in scans if _looks(scan)), None)


def _looks(scan: Any) -> bool:
    is_there = "deletionTimestamp" not in scan["metadata"]
    is_released = not scan["spec"].get("schedulingGates")
    return is_there and is_released and scan["status"]["phase"] not in ("Succeeded", "Failed")


async def says_kubelet(stage: RealStage, phase: str, state: dict[str, Any], recovery: str = "") -> None:
    """Reports the state of the scan's container as its kubelet would, once KWOK has started the container."""

    async def is_up() -> Any:
        scan = await scan_of(stage, recovery)
        return scan if scan and scan["status"].get("containerStatuses") else None

    scan = await stage.until("scan that is up", is_up)
    container = {"name": "scan", "image": "none", "imageID": "", "ready": False, "restartCount": 0}
    status = {"phase": phase, "containerStatuses": [{**container, "state": state}]}
    path = PODS.path(scan["metadata"]["name"], NAMESPACE, "status")
    await stage.api.request("PATCH", path, body={"status": status}, content_type=MergePatch)


async def answered(stage: RealStage, step: int, recovery: str = "") -> None:
    """The scan finds the checkpoint of that step, and ends."""
    message = encode_message(ScanMessage(chosen=checkpoint(step))).decode()
    await says_kubelet(stage, "Succeeded", {"terminated": {"exitCode": 0, "message": message}}, recovery)
