"""A gang that is light enough for a test per fault: an Indexed Job of two ranks of chaos.training. Each rank
uses all GPUs of its node, so the ranks are on two of the three nodes. No operator is needed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

from tests.cluster.cases import apply
from tests.cluster.cluster import GPUS_PER_NODE, Cluster
from tests.cluster.faults import rank
from tests.cluster.gangs import CLAIM, MOUNT, NAMESPACE, VOLUME
from tests.cluster.images import BASE

__all__ = ["RANKS", "Gang", "create", "lay_names", "slow_to_stop"]

RANKS = 2
SUBDOMAIN = "ranks"
CHECKPOINT_EVERY = 20
STEP_S = 0.05
STOP_S = 15
MEET_S = 600
"""Time in seconds that a rank waits for a peer that finds no room yet."""
SOURCE = Path(__file__).parents[3]
_SHOWN = {"source": SOURCE, "environment": Path(sys.prefix), "python": Path(sys.base_prefix)}
"""Folders of this machine that the pods see, read-only: the training, numpy and the Python on which they
run."""


class Gang(msgspec.Struct, frozen=True):
    """A gang that has opted in. `name` is the name of the job and of its folder on the volume."""

    name: str
    annotations: dict[str, str] = {}
    restart_policy: str = "Never"
    pod: dict[str, Any] = {}
    """Fields that are added to the pod's spec."""
    lifecycle: dict[str, Any] = {}
    """Lifecycle hooks of the container."""

    @property
    def folder(self) -> Path:
        """The gang's folder, as this machine sees it."""
        return VOLUME / self.name

    def newest(self) -> int:
        """Returns the step of the newest complete checkpoint, or 0 if there is none."""
        return max((int(m.parent.name.removeprefix("step-")) for m in self._markers()), default=0)

    def harm(self, what: str) -> list[Path]:
        """Harms all ranks at one step of the next seconds, as a fault of the program does. Returns the files
        that disappear once it has happened."""
        step = self.newest() + 3 * CHECKPOINT_EVERY
        harms = [self.folder / f"harm-{number}" for number in range(RANKS)]
        for file in harms:
            new = file.with_suffix(".new")
            new.write_text(f"{what} {step}", encoding="utf-8")
            new.replace(file)
        return harms

    def _markers(self) -> list[Path]:
        return list(self.folder.glob("step-*/commit.json"))


def slow_to_stop(name: str) -> Gang:
    """Returns a gang whose stop takes long enough for a test to see it by kubectl and to intervene, on a busy
    machine, too."""
    pod = {"terminationGracePeriodSeconds": STOP_S + 5}
    return Gang(name, pod=pod, lifecycle={"preStop": {"sleep": {"seconds": STOP_S}}})


def lay_names(cluster: Cluster) -> None:
    """Creates the Service by which the ranks of every gang find each other."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": SUBDOMAIN, "namespace": NAMESPACE},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"app": SUBDOMAIN},
            "ports": [{"port": 29500}],
        },
    }
    apply(cluster, service)


def create(cluster: Cluster, gang: Gang) -> None:
    notes = {"rekindle.dev/checkpoint": f"{MOUNT}/{gang.name};format=rekindle-sharded", **gang.annotations}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": gang.name,
            "namespace": NAMESPACE,
            "labels": {"rekindle.dev/auto-recovery": "enabled"},
            "annotations": notes,
        },
        "spec": {
            "completionMode": "Indexed",
            "completions": RANKS,
            "parallelism": RANKS,
            "backoffLimit": 6,
            "template": {"metadata": {"labels": {"app": SUBDOMAIN}}, "spec": _pod(gang)},
        },
    }
    apply(cluster, job)


def _pod(gang: Gang) -> dict[str, Any]:
    first = f"{gang.name}-0.{SUBDOMAIN}.{NAMESPACE}.svc.cluster.local"
    folder = f"{MOUNT}/{gang.name}"
    command = [sys.executable, str(Path(rank.__file__)), "--steps=1000000", f"--step-time-s={STEP_S}"]
    command += [f"--checkpoint-dir={folder}", f"--checkpoint-every={CHECKPOINT_EVERY}"]
    command += [f"--world-size={RANKS}", f"--master-addr={first}", f"--rendezvous-timeout-s={MEET_S}"]
    mounts = [{"name": name, "mountPath": str(path), "readOnly": True} for name, path in _SHOWN.items()]
    volumes = [{"name": name, "hostPath": {"path": str(path)}} for name, path in _SHOWN.items()]
    container = {
        "name": "train",
        "image": BASE,
        "imagePullPolicy": "Never",
        "command": command,
        "env": [{"name": "PYTHONPATH", "value": str(SOURCE)}, {"name": "OMP_NUM_THREADS", "value": "1"}],
        "resources": {"limits": {"nvidia.com/gpu": GPUS_PER_NODE, "memory": "256Mi"}},
        "volumeMounts": [{"name": "checkpoints", "mountPath": MOUNT}, *mounts],
        **({"lifecycle": gang.lifecycle} if gang.lifecycle else {}),
    }
    return {
        "subdomain": SUBDOMAIN,
        "restartPolicy": gang.restart_policy,
        "terminationGracePeriodSeconds": 5,
        "containers": [container],
        "volumes": [{"name": "checkpoints", "persistentVolumeClaim": {"claimName": CLAIM}}, *volumes],
        **gang.pod,
    }
