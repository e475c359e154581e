"""The safety invariants of taking nodes out, a part of invariants.py: limits of every level, and the brake.

A node counts while our taint keeps new pods off it. A soft taint takes no place of a broken node.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from chaos.cluster.kinds import Object
from chaos.simulate.reading import is_closed, note, our_taint
from chaos.simulate.truth import Truth
from recover.settings import Budgets

__all__ = ["BudgetChecks", "over_limit"]


class BudgetChecks:
    def __init__(self) -> None:
        self.taken: dict[tuple[str, str], datetime] = {}
        """When each Incident took its node out. A person may uncordon the node, and another fault of the same
        Incident takes it out once more: that is one node of the hour still."""

    def recent(self, at: datetime) -> int:
        """How many nodes were taken out in the hour before."""
        return sum(1 for taken in self.taken.values() if taken > at - timedelta(hours=1))

    def quarantined(
        self, node: Object, nodes: list[Object], incidents: list[Object], limits: Budgets, at: datetime
    ) -> Iterator[str]:
        """What is wrong with the controller's taint that is new on this node. `nodes` are as they are now."""
        if not is_closed(node):
            return
        self.taken.setdefault((str(note(node).get("incident")), node["metadata"]["name"]), at)
        out = [n for n in nodes if is_closed(n)]
        yield from over_limit(node, nodes, out, limits)
        if (recent := self.recent(at)) > limits.quarantines_per_hour_max:
            yield f"{recent} quarantines within an hour"
        yield from self._brake(node, out, len(nodes), incidents, limits, at)

    def refused(self, incident: Object | None, truth: Truth) -> Iterator[str]:
        """After a write of an Incident: a soft taint was refused, as if it took a place."""
        for record in (incident or {}).get("status", {}).get("actions", []):
            did = (record["action"], record["outcome"], record.get("reason"))
            faults = truth.faults.get(record["target"], [])
            if did == ("quarantine-node", "refused", "BudgetExhausted") and not any(
                f.cordons for f in faults
            ):
                yield f"a limit kept a soft taint off {record['target']}"

    def _brake(
        self,
        node: Object,
        out: list[Object],
        count: int,
        incidents: list[Object],
        limits: Budgets,
        at: datetime,
    ) -> Iterator[str]:
        """Of one class, detected within the window, no more may be out than just did not trip the brake."""
        detected = {i["metadata"]["name"]: i["spec"].get("detectedAt", "") for i in incidents}
        begins = at - timedelta(seconds=limits.brake_window_s)
        fault = (our_taint(node) or {}).get("value")
        struck = {
            n["metadata"]["name"]
            for n in out
            if (our_taint(n) or {}).get("value") == fault
            and (found := detected.get(str(note(n).get("incident")), ""))
            and datetime.fromisoformat(found) > begins
        } | {node["metadata"]["name"]}
        if len(struck) >= limits.brake_nodes_min and 100 * len(struck) > limits.brake_percent * count:
            yield f"{len(struck)} of {count} nodes were taken out for {fault}, and no brake stopped it"


def over_limit(node: Object, nodes: list[Object], out: list[Object], limits: Budgets) -> Iterator[str]:
    """Which limit is exceeded where these nodes are out, as far as this node is concerned."""
    limit = min(limits.quarantined_nodes_max, _share(len(nodes), limits.quarantined_percent_max))
    if len(out) > limit:
        yield f"{len(out)} of {len(nodes)} nodes are quarantined, the limit is {limit}"
    for label, what in ((limits.pool_label, "pool"), (limits.domain_label, "domain")):
        value = node["metadata"].get("labels", {}).get(label)
        if value is None:
            continue
        peers = [n for n in nodes if n["metadata"].get("labels", {}).get(label) == value]
        away = sum(1 for n in out if n["metadata"].get("labels", {}).get(label) == value)
        most = limits.domain_nodes_max if what == "domain" else _share(len(peers), limits.pool_percent_max)
        if away > most:
            yield f"{away} of {len(peers)} nodes of {what} {value} are quarantined, the limit is {most}"


def _share(total: int, percent: float) -> int:
    return max(1, int(total * percent / 100))
