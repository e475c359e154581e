"""PyTorchJob and PaddleJob for kubeflow.py: the place of their replicas in the spec, and the environment of
each pod.

Local processes have no DNS, so ranks meet at the loopback address. Source: training-operator 1.9.4, and the
variables that the real one sets in its pods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from chaos.apiserver.kinds import Object
from detectors.wire.resource import Resource
from recover.k8s.kinds import PADDLEJOBS, PYTORCHJOBS

__all__ = ["PADDLE", "PYTORCH", "KubeflowKind", "Replica"]

LOOPBACK = "127.0.0.1"


class Replica(msgspec.Struct, frozen=True):
    """One pod that the job should have."""

    role: str
    index: int
    rank: int
    policy: str
    template: Object


class KubeflowKind(msgspec.Struct, frozen=True):
    resource: Resource
    replica_specs: str
    port_name: str
    port: int
    """Port at which ranks meet unless the first replica's template has a port with this name."""
    environment: Callable[[Object, Replica, Sequence[Replica], int], list[Object]]
    """Returns the variables of a replica of the job. The further arguments are all replicas and the port."""

    def replicas_of(self, job: Object) -> list[Replica]:
        """Returns the replicas, masters first. Raises KeyError for a job that admission would refuse."""
        specs = job["spec"][self.replica_specs]
        return [
            Replica(role, index, rank, specs[role].get("restartPolicy", "OnFailure"), specs[role]["template"])
            for rank, (role, index) in enumerate(
                (role, index)
                for role in ("Master", "Worker")
                if role in specs
                for index in range(int(specs[role].get("replicas", 1)))
            )
        ]

    def variables_of(self, job: Object, replica: Replica) -> list[Object]:
        """Returns the variables that the training-operator adds to each of the pod's containers."""
        replicas = self.replicas_of(job)
        containers = replicas[0].template["spec"]["containers"]
        ports = [port for container in containers for port in container.get("ports", [])]
        port = next((int(p["containerPort"]) for p in ports if p.get("name") == self.port_name), self.port)
        unbuffered = {"name": "PYTHONUNBUFFERED", "value": "1"}
        return [unbuffered, *self.environment(job, replica, replicas, port)]


def _pytorch(job: Object, replica: Replica, replicas: Sequence[Replica], port: int) -> list[Object]:
    return _entries(
        MASTER_PORT=str(port), MASTER_ADDR=LOOPBACK, WORLD_SIZE=str(len(replicas)), RANK=str(replica.rank)
    )


def _paddle(job: Object, replica: Replica, replicas: Sequence[Replica], port: int) -> list[Object]:
    """Returns the variables of a PaddleJob, without a rank: Paddle's launcher assigns ranks where the ranks
    meet."""
    found = _entries(PADDLE_JOB_ID=job["metadata"]["name"], PADDLE_NNODES=str(len(replicas)))
    if replica.rank == 0:
        address = {"fieldRef": {"fieldPath": "status.podIP"}}
        found += [{"name": "POD_IP_DUMMY", "valueFrom": address}]
        found += _entries(PADDLE_MASTER=f"$(POD_IP_DUMMY):{port}")
    else:
        found += _entries(PADDLE_MASTER=f"{LOOPBACK}:{port}")
    if replicas[0].role == "Master":  # a Master means parameter servers and trainers, and not a collective
        found += _entries(**{f"PADDLE_{'SERVER' if replica.role == 'Master' else 'TRAINER'}_NUM": "1"})
    return found


def _entries(**variables: str) -> list[Object]:
    return [{"name": name, "value": value} for name, value in variables.items()]


PYTORCH = KubeflowKind(PYTORCHJOBS, "pytorchReplicaSpecs", "pytorchjob-port", 23456, _pytorch)
PADDLE = KubeflowKind(PADDLEJOBS, "paddleReplicaSpecs", "master", 36543, _paddle)
