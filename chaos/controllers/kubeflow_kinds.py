"""PyTorchJob, PaddleJob and TFJob for kubeflow.py: the place of their replicas in the spec, the replicas
whose success is the job's, and the environment of each pod.

Local processes have no DNS, so ranks meet at the loopback address. Source: training-operator 1.9.4, and the
variables that the real one sets in its pods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from chaos.apiserver.kinds import TF_ROLES, Object
from detectors.wire.resource import Resource
from recover.k8s.kinds import PADDLEJOBS, PYTORCHJOBS, TFJOBS

__all__ = ["PADDLE", "PYTORCH", "TENSORFLOW", "KubeflowKind", "Replica"]

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
    policy: str = "OnFailure"
    """Restart policy that the operator gives to a role without one."""
    is_ended_by_worker_0: bool = False
    """Whether a job without chief or master succeeds when its worker 0 succeeds. Otherwise all workers must
    succeed."""
    fails_with_deleted_pods: bool = False
    """Whether a pod that is deleted while it runs fails the job, whatever the restart policy."""

    def deciding(self, replicas: Sequence[Replica]) -> Sequence[Replica]:
        """Returns the replicas whose success is the job's success."""
        chiefs = [one for one in replicas if one.role in ("Chief", "Master")]
        if chiefs or not self.is_ended_by_worker_0:
            return chiefs or replicas
        return [one for one in replicas if (one.role, one.index) == ("Worker", 0)] or replicas

    def replicas_of(self, job: Object) -> list[Replica]:
        """Returns the replicas in the order of their roles. Raises KeyError for a job that admission would
        refuse."""
        specs = job["spec"][self.replica_specs]
        return [
            Replica(role, index, rank, specs[role].get("restartPolicy", self.policy), specs[role]["template"])
            for rank, (role, index) in enumerate(
                (role, index)
                for role in TF_ROLES
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


def _tensorflow(job: Object, replica: Replica, replicas: Sequence[Replica], port: int) -> list[Object]:
    """Returns the variable TF_CONFIG, or nothing for a job with a single replica. The cluster in TF_CONFIG
    does not contain the evaluators. All ranks share the loopback address here, so each has its own port."""
    if len(replicas) == 1:
        return []
    cluster: dict[str, list[str]] = {}
    for one in replicas:
        if one.role != "Evaluator":
            cluster.setdefault(one.role.lower(), []).append(f"{LOOPBACK}:{port + one.rank}")
    task = {"type": replica.role.lower(), "index": replica.index}
    config = {"cluster": cluster, "task": task, "environment": "cloud"}
    return _entries(TF_CONFIG=msgspec.json.encode(config).decode())


def _entries(**variables: str) -> list[Object]:
    return [{"name": name, "value": value} for name, value in variables.items()]


PYTORCH = KubeflowKind(PYTORCHJOBS, "pytorchReplicaSpecs", "pytorchjob-port", 23456, _pytorch)
PADDLE = KubeflowKind(PADDLEJOBS, "paddleReplicaSpecs", "master", 36543, _paddle)
TENSORFLOW = KubeflowKind(
    TFJOBS,
    "tfReplicaSpecs",
    "tfjob-port",
    2222,
    _tensorflow,
    policy="Never",
    is_ended_by_worker_0=True,
    fails_with_deleted_pods=True,
)
