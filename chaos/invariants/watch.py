"""Passes every write to the simulated API to every safety check, and collects the violations that the checks
find."""

from __future__ import annotations

from datetime import datetime

from chaos.apiserver.store import Audit, MemoryCluster
from chaos.invariants import ALL
from chaos.invariants.facts import Facts
from chaos.invariants.write import Write
from chaos.simulated.oracle import unlike
from chaos.simulated.reading import is_of_repair
from chaos.simulated.truth import Truth
from recover.k8s.kinds import LEASES
from recover.model import World
from recover.model.actions import Plan
from recover.policy.settings import Settings
from recover.runtime.decision_loop import Decide

__all__ = ["Invariants"]

_KUBELETS = "system:node:"


class Invariants:
    """`violations` are sentences, each of which names its write. `last_write_at` is the time of the
    controller's last write, including Events. `facts` are what the checks compare the writes with."""

    def __init__(self, store: MemoryCluster, truth: Truth, settings: Settings, *, controller: str) -> None:
        self.facts = Facts(store, truth, settings)
        self.violations: list[str] = []
        self.last_write_at: datetime | None = None
        self._checks = [check(self.facts) for check in ALL]
        self._controller = controller
        self._seen = store.version

    def decided(self, loop: str, decide: Decide, world: World, now: datetime, plan: Plan) -> None:
        """Compares a decision with the oracle. The controller calls this after every decision."""
        self.violations += [
            f"{loop} at {now:%H:%M:%S}: {found}" for found in unlike(decide, world, now, plan)
        ]

    async def saw(self, audit: Audit) -> None:
        """Checks the changes of a write. The store calls this after every write, with its audit entry."""
        if not audit.changed or (audit.resource == LEASES and audit.user.startswith(_KUBELETS)):
            return  # lease renewals of kubelets are half of all writes, and no check is about them
        store, namespace = self.facts.store, self.facts.settings.namespace
        changes = store.history(audit.resource).since(self._seen)
        self._seen = store.version
        for change in changes:
            old, new = change.old.body if change.old else None, change.new.body if change.new else None
            write = Write(
                audit=audit,
                old=old,
                new=new,
                by_controller=audit.user == self._controller,
                of_repair=is_of_repair(new or old or {"metadata": {}}, namespace),
            )
            if write.by_controller:
                self.last_write_at = write.at
            self.facts.saw(write)
            for check in self._checks:
                self.violations += [f"{write.what}: {found}" for found in check.violations(write)]
