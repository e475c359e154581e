"""The facts with which a check compares a write: the objects of the API after the write, the truth of the
simulation, and the settings of the running controller. The controller's own views are not among them."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from chaos.apiserver.kinds import Object
from chaos.apiserver.store import MemoryCluster
from chaos.invariants.endings import Endings
from chaos.invariants.places import Places
from chaos.invariants.reports import Reports
from chaos.invariants.write import Write
from chaos.simulated.reading import MARK, note
from chaos.simulated.truth import Truth
from recover.k8s.kinds import INCIDENTS, NODEHEALTHS, NODES, RECOVERIES
from recover.policy.settings import Settings

__all__ = ["Facts"]


class Facts:
    """`settings` change when a person starts the controller with other settings."""

    def __init__(self, store: MemoryCluster, truth: Truth, settings: Settings) -> None:
        self.store = store
        self.truth = truth
        self.settings = settings
        self.reports = Reports()
        self.endings = Endings()
        self.places = Places(store)
        self._taken_out_at: dict[tuple[str, str], datetime] = {}
        """Time of the first quarantine by Incident and node. If a person uncordons the node, and another
        fault of the same Incident puts the node into quarantine once more, the node still counts once in the
        hour."""

    def saw(self, write: Write) -> None:
        """Keeps what later objects no longer show. The caller passes each write here before it calls the
        checks."""
        self.endings.saw(write)
        if write.resource == NODES:
            self.places.saw(write.body, write.at, is_gone=write.new is None)
        elif write.resource == NODEHEALTHS and write.new is not None:
            self.reports.saw(write.new, write.at)
        if write.takes_node_out:
            by = str(note(write.body).get("incident")), write.body["metadata"]["name"]
            self._taken_out_at.setdefault(by, write.at)
        if write.starts_gang:
            self.truth.resumed_at[write.body["metadata"]["uid"]] = write.at

    def nodes(self) -> list[Object]:
        return self.store.objects(NODES)

    def node(self, name: str) -> Object | None:
        return next((node for node in self.nodes() if node["metadata"]["name"] == name), None)

    def incidents(self) -> list[Object]:
        return self.store.objects(INCIDENTS)

    def recovery_of(self, job: Object) -> Object:
        """Returns the Recovery that the job's mark names."""
        mark = msgspec.json.decode(job["metadata"]["annotations"][MARK])
        return self.store.read(RECOVERIES, mark["recovery"], job["metadata"]["namespace"]).body

    def has_agent_written(self, node: str) -> bool:
        """Whether an agent has written about the node. The controller creates a NodeHealth, and an agent
        writes its status."""
        written = (health for health in self.store.objects(NODEHEALTHS) if health.get("status"))
        return any(health["metadata"]["name"] == node for health in written)

    def taken_out_within_the_hour(self, at: datetime) -> int:
        """Returns how many nodes the controller has quarantined in the hour before `at`."""
        return sum(1 for taken in self._taken_out_at.values() if taken > at - timedelta(hours=1))
