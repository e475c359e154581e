"""Real torch gangs on the real nodes: PyTorchJobs of two pods, each with all GPUs of its node, that meet by
DNS and save their checkpoints on a volume that all nodes share.

The training is that of chaos.rigs.torch_training, in the same environment: the pods see this environment's
folders on this machine, read-only. A gang reads its pace from a file, so that a test may slow the gang down.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from chaos.rigs.torch_training.environment import TORCH
from chaos.rigs.torch_training.launch import ENVIRONMENT, PROGRAM, torchrun
from tests.cluster.cases import apply, until
from tests.cluster.cluster import GPUS_PER_NODE, Cluster
from tests.cluster.images import BASE
from tests.cluster.install import one
from tests.cluster.record import FOLDER
from tests.control_plane.operator import training_operator

__all__ = ["CLAIM", "MOUNT", "NAMESPACE", "VOLUME", "Gang", "lay_storage", "train", "training"]

NAMESPACE = "ml"
CLAIM = "checkpoints"
MOUNT = "/checkpoints"
PORT = 23456
VOLUME = FOLDER / "shared"
"""The shared volume. A hostPath is the same folder of this machine on every node, like the export of a file
server elsewhere."""
_WAITS_FOR_MASTER = """
- name: wait-for-master
  image: {{.InitContainerImage}}
  imagePullPolicy: Never
  command:
  - python3
  - -c
  - |
    import socket, time
    while True:
        try:
            socket.getaddrinfo("{{.MasterAddr}}", None)
            break
        except OSError:
            time.sleep(0.2)
"""


class Gang(msgspec.Struct, frozen=True):
    """A training of two ranks. `name` is the name of the job and of its folder on the volume."""

    name: str
    steps: int
    checkpoint_every: int = 10
    labels: dict[str, str] = {}

    @property
    def folder(self) -> Path:
        """The gang's folder, as this machine sees it."""
        return VOLUME / self.name

    @property
    def weights(self) -> Path:
        """The file of the final weights, which exists once the training has ended well."""
        return self.folder / "final-weights"

    def set_pace(self, *, step_s: float, save_s: float) -> None:
        """Sets how many seconds longer each step and each save takes, from the next step on."""
        self.folder.mkdir(parents=True, exist_ok=True)
        new = self.folder / "pace.new"
        new.write_text(f"{step_s} {save_s}", encoding="utf-8")
        new.replace(self.folder / "pace")

    def saves(self) -> list[int]:
        """Returns the steps of all checkpoints that were begun, oldest first."""
        return sorted(int(path.name.removeprefix("step-")) for path in self.folder.glob("step-*"))

    def complete(self) -> list[int]:
        """Returns the steps of the complete checkpoints. DCP writes .metadata last."""
        return [step for step in self.saves() if (self.folder / f"step-{step}" / ".metadata").exists()]

    def is_saving(self) -> bool:
        """Whether the newest checkpoint is being written."""
        saves = self.saves()
        return bool(saves) and saves[-1] not in self.complete()


@contextmanager
def training(cluster: Cluster) -> Iterator[None]:
    """Runs the training-operator beside the control plane while the block runs. The operator's pods wait for
    their master with the project's base image. Raises PlaneError, and MissingError if there is no torch."""
    TORCH.interpreter()
    template = cluster.plane.folder / "wait-for-master.yaml"
    template.write_text(_WAITS_FOR_MASTER, encoding="utf-8")
    flags = [f"-pytorch-init-container-image={BASE}", f"-pytorch-init-container-template-file={template}"]
    with training_operator(cluster.programs, cluster.plane, flags):
        yield


def lay_storage(cluster: Cluster) -> None:
    """Creates the namespace of the gangs, with a claim that is bound to the shared volume. Returns once the
    namespace has the objects that Kubernetes puts into every namespace."""
    VOLUME.mkdir(exist_ok=True)
    size = {"storage": "1Gi"}
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = {**common, "capacity": size, "hostPath": {"path": str(VOLUME)}}
    claim = {**common, "resources": {"requests": size}, "volumeName": CLAIM}
    apply(
        cluster,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": CLAIM}, "spec": volume},
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM, "namespace": NAMESPACE},
            "spec": claim,
        },
    )
    for kind, name in (("serviceaccount", "default"), ("configmap", "kube-root-ca.crt")):
        until(f"{kind} {name}", partial(_is_there, cluster, kind, name))


def _is_there(cluster: Cluster, kind: str, name: str) -> bool:
    return bool(one(cluster, kind, name, NAMESPACE))


def train(cluster: Cluster, gang: Gang) -> None:
    apply(cluster, _job(gang))


def _job(gang: Gang) -> dict[str, Any]:
    replica = {"replicas": 1, "restartPolicy": "OnFailure", "template": {"spec": _pod(gang)}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {
            "name": gang.name,
            "namespace": NAMESPACE,
            "labels": gang.labels,
            "annotations": {"rekindle.dev/checkpoint": f"{MOUNT}/{gang.name};format=torch-dcp"},
        },
        "spec": {
            "runPolicy": {"suspend": False},
            "pytorchReplicaSpecs": {"Master": replica, "Worker": replica},
        },
    }


def _pod(gang: Gang) -> dict[str, Any]:
    python = TORCH.interpreter()
    folder = f"{MOUNT}/{gang.name}"
    program = [
        f"--steps={gang.steps}",
        f"--checkpoint-dir={folder}",
        f"--checkpoint-every={gang.checkpoint_every}",
        f"--pace-file={folder}/pace",
        f"--output={folder}/final-weights",
    ]
    command = torchrun(
        python,
        nodes=2,
        per_node=1,
        node="$(RANK)",
        address="$(MASTER_ADDR)",
        port="$(MASTER_PORT)",
        program=program,
    )
    environment = {**ENVIRONMENT, "GLOO_SOCKET_IFNAME": "eth0"}
    shown = {"environment": python.parents[1], "python": _installation(python), "program": PROGRAM.parent}
    mounts = [{"name": name, "mountPath": str(path), "readOnly": True} for name, path in shown.items()]
    volumes = [{"name": name, "hostPath": {"path": str(path)}} for name, path in shown.items()]
    return {
        "terminationGracePeriodSeconds": 5,
        "containers": [
            {
                "name": "pytorch",
                "image": BASE,
                "imagePullPolicy": "Never",
                "command": command,
                "env": [{"name": key, "value": value} for key, value in environment.items()],
                "ports": [{"name": "pytorchjob-port", "containerPort": PORT}],
                "resources": {"limits": {"nvidia.com/gpu": GPUS_PER_NODE}},
                "volumeMounts": [{"name": "checkpoints", "mountPath": MOUNT}, *mounts],
            }
        ],
        "volumes": [{"name": "checkpoints", "persistentVolumeClaim": {"claimName": CLAIM}}, *volumes],
    }


def _installation(python: Path) -> Path:
    """Returns the Python installation from which the environment was made: it has the standard library."""
    lines = (python.parents[1] / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
    (home,) = (line.partition("=")[2].strip() for line in lines if line.startswith("home ="))
    return Path(home).parent
