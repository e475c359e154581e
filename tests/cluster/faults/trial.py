"""One gang that trains, the fault that it meets, and what the job's owner sees with kubectl, with the
times."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from tests.cluster.cases import until
from tests.cluster.cluster import Cluster
from tests.cluster.faults.gang import RANKS, Gang, create
from tests.cluster.gangs import NAMESPACE
from tests.cluster.install import SYSTEM, listed, one
from tests.cluster.node import Node

__all__ = ["Trial", "cordoned", "quarantined", "release_all", "uids"]

LIMIT_S = 170.0
"""Limit of each wait in seconds: the machine is shared, and a recovery may wait for a lease, a lost node and
a backoff. It is below the 180 s after which Rekindle gives up a stop."""
_QUARANTINE = "rekindle.dev/quarantined-by"
_TIMES = (
    ("stop ordered", "Stopping"),
    ("all ranks gone", "Choosing"),
    ("start ordered", "Resuming"),
    ("all ranks run", "Verifying"),
    ("first new step", "Succeeded"),
)
_GOOD = {
    ("CheckpointVerified", "True", "Complete"),
    ("EnvironmentDelivered", "True", "Read"),
    ("ProgressVerified", "True", "Resumed"),
}


class Trial:
    def __init__(self, cluster: Cluster, gang: Gang) -> None:
        self._cluster = cluster
        self.gang = gang
        self.first_pods: list[Any] = []
        """Pods from the time before the fault, by rank."""
        self._struck_at = datetime.now(UTC)

    def begin(self) -> None:
        """Creates the gang. Returns when the gang has a checkpoint, its kubelets report that it runs, and the
        agents know its steps."""
        create(self._cluster, self.gang)
        self.until("a checkpoint", lambda: self.gang.newest() > 0)
        self.until("ranks that run", self._all_run)
        self.first_pods = self.pods()
        self.until("steps in the NodeHealths", lambda: uids(self.first_pods) <= self._uids_with_steps())

    def _all_run(self) -> bool:
        return [pod["status"]["phase"] for pod in self.pods()] == ["Running"] * RANKS

    def _uids_with_steps(self) -> set[str]:
        healths = listed(self._cluster, "nodehealths.rekindle.dev")
        told = [pod for health in healths for pod in health.get("status", {}).get("pods", [])]
        return {pod["uid"] for pod in told if "firstStep" in pod}

    def end(self) -> None:
        """Removes the gang. Afterwards only the objects that report about it are left."""
        self._cluster.kubectl(
            "delete", "job", self.gang.name, f"--namespace={NAMESPACE}", "--ignore-not-found"
        )
        until(f"the end of {self.gang.name}", lambda: not self._all_pods(), LIMIT_S)

    # --- faults ------------------------------------------------------------------------------------------

    def node(self, rank: int) -> Node:
        """Returns the node where that rank ran before the fault."""
        return self._cluster.nodes[self.first_pods[rank]["spec"]["nodeName"]]

    def strike(self) -> None:
        """Records the moment of the fault: the times are counted from here."""
        self._struck_at = datetime.now(UTC)

    def harm(self, what: str) -> None:
        """Harms the ranks' program, on all ranks in the same way."""
        files = self.gang.harm(what)
        self.until(what, lambda: not any(file.exists() for file in files))
        self.strike()

    # --- observations ------------------------------------------------------------------------------------

    def pods(self) -> list[Any]:
        """Returns the pods that have not ended, by rank."""
        alive = [pod for pod in self._all_pods() if pod["status"]["phase"] not in ("Succeeded", "Failed")]
        return sorted(alive, key=lambda pod: str(pod["metadata"]["name"]))

    def _all_pods(self) -> list[Any]:
        return listed(self._cluster, "pods", f"--selector=batch.kubernetes.io/job-name={self.gang.name}")

    def nodes(self) -> set[str]:
        return {pod["spec"].get("nodeName", "") for pod in self.pods()}

    def job(self) -> Any:
        return one(self._cluster, "job", self.gang.name, NAMESPACE)

    def recovery(self) -> Any:
        """Returns the gang's Recovery, or an empty mapping before there is one. A second Recovery is a
        failure."""
        found = listed(self._cluster, "recoveries.rekindle.dev")
        mine = [body for body in found if body["spec"]["gang"]["name"] == self.gang.name]
        assert len(mine) <= 1, [body["metadata"]["name"] for body in mine]
        return mine[0] if mine else {}

    def incident(self) -> Any:
        """Returns the Incident that the gang's Recovery names."""
        return one(self._cluster, "incident.rekindle.dev", self.recovery()["spec"]["incident"])

    def until_phase(self, *phases: str) -> Any:
        """Returns the Recovery, once it is in one of these phases."""
        self.until(" or ".join(phases), lambda: self._phase() in phases)
        return self.recovery()

    def _phase(self) -> str:
        return str(self.recovery().get("status", {}).get("phase", ""))

    def recovered(self, *, attempts: int = 1) -> Any:
        """Returns the Recovery once it has succeeded, and asserts all that this must mean: the gang resumed
        right after the newest checkpoint, its ranks got the name of this checkpoint, and it has trained
        since, in new pods and without another restart."""
        recovery = self.until_phase("Succeeded", "Escalated", "Failed")
        status = recovery["status"]
        self._tell(status)
        print(f"  {self.incident()['status']['summary']}")
        assert status["phase"] == "Succeeded", status
        assert status.get("attempt", 1) == attempts, status
        assert status["resumedStep"] == status["checkpoint"]["step"] + 1, status
        conditions = {(c["type"], c["status"], c["reason"]) for c in status["conditions"]}
        assert conditions == _GOOD, status["conditions"]
        pods = self.pods()
        self.trains_on()
        assert uids(self.pods()) == uids(pods), "its pods were made anew once more"
        assert len(pods) == RANKS
        assert not uids(pods) & uids(self.first_pods)
        assert self.restarts() == 0
        return self.recovery()

    def trains_on(self) -> None:
        """Waits until two more checkpoints are complete."""
        seen = self.gang.newest()
        self.until("a newer checkpoint", lambda: self.gang.newest() > seen)
        seen = self.gang.newest()
        self.until("another newer checkpoint", lambda: self.gang.newest() > seen)

    def restarts(self) -> int:
        """Returns the number of restarts of the present pods' containers."""
        return sum(
            status["restartCount"] for pod in self.pods() for status in pod["status"]["containerStatuses"]
        )

    def until(self, what: str, is_so: Callable[[], bool]) -> None:
        """Waits for the condition. Fails with what is known of the gang."""
        try:
            until(f"{self.gang.name}: {what}", is_so, LIMIT_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._known()}") from None

    def _known(self) -> str:
        shown = []
        for kind in ("recoveries.rekindle.dev", "incidents.rekindle.dev"):
            bodies = listed(self._cluster, kind)
            shown += [
                f"{body['metadata']['name']}: {body.get('status')}" for body in bodies if self._is_about(body)
            ]
        shown += [f"{pod['metadata']['name']}: {pod['status']}" for pod in self._all_pods()]
        log = ("logs", f"--namespace={SYSTEM}", "--tail=20", "--prefix")
        selector = "--selector=app.kubernetes.io/component=controller"
        return "\n".join([*shown, self._cluster.kubectl(*log, selector)])

    def _is_about(self, body: Any) -> bool:
        victims = [body["spec"].get("gang", {}), *body.get("status", {}).get("victims", [])]
        return any(victim.get("name") == self.gang.name for victim in victims)

    def _tell(self, status: Any) -> None:
        at = {entered["phase"]: datetime.fromisoformat(entered["at"]) for entered in status["phases"]}
        since = {name: (at[phase] - self._struck_at).total_seconds() for name, phase in _TIMES if phase in at}
        told = ", ".join(f"{name} {took_s:.1f} s" for name, took_s in since.items())
        lost = f"{status.get('lostSteps')} steps lost"
        print(f"\n{self.gang.name}: {told} after the fault; {lost}")


def uids(pods: list[Any]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


def quarantined(cluster: Cluster) -> set[str]:
    """Returns the nodes that Rekindle has quarantined."""
    nodes = listed(cluster, "nodes")
    return {
        node["metadata"]["name"] for node in nodes if _QUARANTINE in node["metadata"].get("annotations", {})
    }


def cordoned(cluster: Cluster) -> set[str]:
    """Returns the nodes that take no pods, no matter who cordoned them."""
    return {
        node["metadata"]["name"] for node in listed(cluster, "nodes") if node["spec"].get("unschedulable")
    }


def release_all(cluster: Cluster) -> None:
    """Uncordons all nodes, as a person would who has checked them. Nothing of Rekindle stays on the nodes."""
    names = cordoned(cluster)
    if names:
        cluster.kubectl("uncordon", *sorted(names))
    until("our hands off all nodes", lambda: not quarantined(cluster), LIMIT_S)
    until("no taint on any node", lambda: not _tainted(cluster), LIMIT_S)


def _tainted(cluster: Cluster) -> set[str]:
    """Returns the nodes with a taint. Kubernetes, too, removes its taints only some time after an
    uncordon."""
    return {node["metadata"]["name"] for node in listed(cluster, "nodes") if node["spec"].get("taints")}
