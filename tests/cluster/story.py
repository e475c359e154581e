"""The acts of the story that test_from_nothing.py checks and demo.py shows, each with its time.

A reboot is simulated here: the repair's own Job requests it on the node, and the process that keeps the node
performs it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.chart.helm import HelmError
from tests.cluster.build import cached
from tests.cluster.cases import until
from tests.cluster.cluster import Cluster, started
from tests.cluster.gangs import NAMESPACE, Gang, lay_storage, train, training
from tests.cluster.install import Release, label_nodes, listed
from tests.cluster.kernel_log import xid
from tests.cluster.product import product_image
from tests.cluster.record import ClusterError

__all__ = ["FIRST_GPU", "SECOND_GPU", "SPARE", "SPARE_KEY", "Story", "Times", "begun"]

FIRST_GPU, SECOND_GPU = 0, 1
SPARE = "spare-1"
SPARE_KEY = "rekindle.dev/spare"
"""Key of the spare's label and of its taint, both set by people."""
STEPS = 400
LIMIT_S = 240.0
"""Time limit in seconds for anything that takes seconds: the machine may be busy."""
_SLOW = {"step_s": 0.4, "save_s": 2.0}
"""A pace with a save every 4 s that takes 2 s, so that a fault can soon occur during a save."""
_REPAIR_WORDS = {
    "Waiting": "until its pods are gone",
    "Rebooting": "a simulated reboot, to Ready in another boot",
    "Validating": "validation, to its return",
}
_FAST = {"step_s": 0.0, "save_s": 0.0}


class Times:
    """Durations of all phases."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._rows: list[tuple[str, float]] = []
        self._beside: list[tuple[str, float]] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self._rows.append((name, time.monotonic() - began))
        self._tell(f"{name}: {self._rows[-1][1]:.1f} s")

    def beside(self, name: str, took_s: float) -> None:
        """Records something that went on at the same time, with its own duration."""
        self._beside.append((name, took_s))

    def table(self) -> str:
        rows = [*self._rows, ("all of it", sum(took_s for _, took_s in self._rows))]
        rows += [(f"beside it: {name}", took_s) for name, took_s in self._beside]
        return "\n".join(f"  {took_s:6.1f} s  {name}" for name, took_s in rows)


class Story:
    def __init__(self, cluster: Cluster, release: Release, times: Times) -> None:
        self.cluster = cluster
        self.release = release
        self.times = times
        self.gang = Gang("gang", steps=STEPS, labels={"rekindle.dev/auto-recovery": "enabled"})

    def train_undisturbed(self) -> Gang:
        """Starts the same training under another name, which nobody disturbs. Returns at once."""
        undisturbed = Gang("undisturbed", steps=STEPS)
        undisturbed.set_pace(**_FAST)
        train(self.cluster, undisturbed)
        return undisturbed

    def train(self) -> None:
        """Starts the opted-in gang and waits until it has a checkpoint."""
        self.gang.set_pace(**_SLOW)
        train(self.cluster, self.gang)
        self.until("a checkpoint", lambda: bool(self.gang.complete()))

    def hurry(self) -> None:
        """Lets the opted-in gang train at full speed."""
        self.gang.set_pace(**_FAST)

    def finished(self, gang: Gang) -> bytes:
        """Waits for the gang's end and returns its final weights. Its job and its pods are gone then."""
        self.until(f"the end of {gang.name}", gang.weights.exists)
        self.cluster.kubectl("delete", "pytorchjob", gang.name, f"--namespace={NAMESPACE}")
        self.until("its pods' end", lambda: not self.pods(gang))
        return gang.weights.read_bytes()

    def strike(self, node: str, gpu: int) -> int:
        """Writes Xid 79 into the kernel log of that node while the gang saves. Returns the step of the newest
        complete checkpoint at that moment."""
        self.until("a moment between two saves", lambda: not self.gang.is_saving())
        self.until("the next save", self.gang.is_saving)
        xid(self.cluster.nodes[node], gpu=gpu)
        return self.gang.complete()[-1]

    def until(self, what: str, is_so: Callable[[], bool]) -> None:
        """Waits for the condition. Meanwhile, reboots each node on which something requests a reboot."""
        until(what, lambda: self._boots() or is_so(), LIMIT_S)

    def _boots(self) -> bool:
        for node in self.cluster.nodes.values():
            if node.reboot_asked.exists():
                node.simulated_reboot()
        return False

    def pods(self, gang: Gang) -> list[dict[str, Any]]:
        return listed(self.cluster, "pods", f"--selector=training.kubeflow.org/job-name={gang.name}")

    def nodes(self) -> dict[str, str]:
        """Returns the node of each of the gang's pods, by the pod's name."""
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in self.pods(self.gang)}

    def incidents(self) -> list[dict[str, Any]]:
        """Returns the Incidents, oldest first."""
        found = listed(self.cluster, "incidents.rekindle.dev")
        return sorted(found, key=lambda body: str(body["spec"]["detectedAt"]))

    def is_stale(self) -> bool:
        """Whether the oldest Incident says that its fault was seen before the present mode began."""
        records = self.incidents()[0]["status"]["actions"]
        reasons = {r["action"]: r.get("reason") for r in records}
        return {reasons["quarantine-node"], reasons["restart-gang"]} == {"StaleEvidence"}

    def recoveries(self) -> list[dict[str, Any]]:
        return listed(self.cluster, "recoveries.rekindle.dev")

    def recovery(self) -> dict[str, Any]:
        """Returns the status of the only Recovery, or an empty mapping before there is one."""
        found = self.recoveries()
        assert len(found) <= 1, f"{len(found)} recoveries"
        return dict(found[0].get("status", {})) if found else {}

    def repair(self) -> dict[str, Any]:
        """Returns what the newest Incident reports about the repair of its node."""
        return dict(self.incidents()[-1]["status"].get("repair", {}))

    def note_repair(self) -> None:
        """Records the times of the newest Incident's repair, which continues while the gang starts again."""
        phases = self.repair()["phases"]
        for began, ended in itertools.pairwise(phases):
            took = datetime.fromisoformat(ended["at"]) - datetime.fromisoformat(began["at"])
            name = _REPAIR_WORDS.get(began["phase"], began["phase"])
            self.times.beside(f"the node: {name}", took.total_seconds())

    def last_words(self) -> str:
        """Returns the state of everything, for the case that the story breaks off."""
        kinds = ("incidents.rekindle.dev", "recoveries.rekindle.dev")
        whole = [self.cluster.kubectl("get", kind, "--all-namespaces", "--output=yaml") for kind in kinds]
        wide = self.cluster.kubectl("get", "pods,nodes,jobs", "--all-namespaces", "--output=wide")
        return "\n".join([*whole, wide])


@contextmanager
def begun(folder: Path, tell: Callable[[str], None]) -> Iterator[Story]:
    """Yields the story of a cluster with the project's image, a spare node, the training-operator and
    storage, but without a release of the chart. `folder` is for Helm."""
    times = Times(tell)
    image = product_image()
    with ExitStack() as stack:
        with times.phase("cluster up, with the training-operator"):
            cluster = stack.enter_context(started(cached(), [image]))
            stack.enter_context(training(cluster))
            lay_storage(cluster)
            label_nodes(cluster)
            cluster.kubectl("label", "node", SPARE, f"{SPARE_KEY}=true")
            cluster.kubectl("taint", "node", SPARE, f"{SPARE_KEY}=true:NoSchedule")
        story = Story(cluster, Release(cluster, folder), times)
        try:
            yield story
        except (AssertionError, ClusterError, HelmError):
            tell(story.last_words())
            raise
