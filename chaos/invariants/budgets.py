"""Checks the limits of how many nodes may be quarantined, on every level, and the brake.

A node counts while Rekindle's taint keeps new pods off the node. A soft taint does not count for any limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from chaos.apiserver.kinds import Object
from chaos.invariants.base import Check
from chaos.invariants.write import Write
from chaos.simulated.reading import is_closed, note, our_taint
from recover.api import Act
from recover.api.reasons import Reason
from recover.k8s.kinds import INCIDENTS
from recover.policy.settings import Budgets

__all__ = ["BrakeOfOneClass", "SoftTaintsAreNotLimited", "WithinLimits", "over_limit"]


class WithinLimits(Check):
    """Quarantines stay within the limits of the cluster, the pool and the rack, and within the limit of an
    hour.

    Harm if missed: a storm of false findings empties the cluster.
    """

    def violations(self, write: Write) -> Iterator[str]:
        if not write.takes_node_out:
            return
        nodes, limits = self.facts.nodes(), self.facts.settings.budgets
        yield from over_limit(write.body, nodes, [node for node in nodes if is_closed(node)], limits)
        recent = self.facts.taken_out_within_the_hour(write.at)
        if recent > limits.quarantines_per_hour_max:
            yield f"{recent} quarantines within an hour"


class BrakeOfOneClass(Check):
    """For faults of one class that were detected within the window, the controller quarantines only as many
    nodes as just do not engage the brake.

    Harm if missed: a broken driver update takes node after node out of service.
    """

    def violations(self, write: Write) -> Iterator[str]:
        if not write.takes_node_out:
            return
        limits, nodes, node = self.facts.settings.budgets, self.facts.nodes(), write.body
        detected = {
            incident["metadata"]["name"]: incident["spec"].get("detectedAt", "")
            for incident in self.facts.incidents()
        }
        begins = write.at - timedelta(seconds=limits.brake_window_s)
        fault = (our_taint(node) or {}).get("value")
        struck = {
            other["metadata"]["name"]
            for other in nodes
            if is_closed(other)
            and (our_taint(other) or {}).get("value") == fault
            and (found := detected.get(str(note(other).get("incident")), ""))
            and datetime.fromisoformat(found) > begins
        } | {node["metadata"]["name"]}
        if len(struck) >= limits.brake_nodes_min and 100 * len(struck) > limits.brake_percent * len(nodes):
            yield (
                f"{len(struck)} of {len(nodes)} nodes were quarantined for {fault}, and no brake "
                "prevented this"
            )


class SoftTaintsAreNotLimited(Check):
    """The controller refuses a quarantine because of a budget only if the node has a fatal fault.

    Harm if missed: a harmless sign, which would get a soft taint, uses the budget that a dead GPU needs.
    """

    def violations(self, write: Write) -> Iterator[str]:
        if not write.by_controller or write.resource != INCIDENTS:
            return
        for record in (write.new or {}).get("status", {}).get("actions", []):
            did = (record["action"], record["outcome"], record.get("reason"))
            faults = self.facts.truth.faults.get(record["target"], [])
            is_refused = did == (Act.QUARANTINE_NODE, "refused", Reason.BUDGET_EXHAUSTED)
            if is_refused and not any(fault.cordons for fault in faults):
                yield f"a limit prevented the taint PreferNoSchedule on {record['target']}"


def over_limit(node: Object, nodes: list[Object], out: list[Object], limits: Budgets) -> Iterator[str]:
    """Yields the limits that are exceeded while the nodes `out` are quarantined: the limit of the cluster,
    and the limits of the pool and the rack of `node`."""
    limit = min(limits.quarantined_nodes_max, _share(len(nodes), limits.quarantined_percent_max))
    if len(out) > limit:
        yield f"{len(out)} of {len(nodes)} nodes are quarantined; the limit is {limit}"
    for label, what in ((limits.pool_label, "pool"), (limits.domain_label, "domain")):
        value = node["metadata"].get("labels", {}).get(label)
        if value is None:
            continue
        peers = [n for n in nodes if n["metadata"].get("labels", {}).get(label) == value]
        away = sum(1 for n in out if n["metadata"].get("labels", {}).get(label) == value)
        most = limits.domain_nodes_max if what == "domain" else _share(len(peers), limits.pool_percent_max)
        if away > most:
            yield f"{away} of {len(peers)} nodes of {what} {value} are quarantined; the limit is {most}"


def _share(total: int, percent: float) -> int:
    return max(1, int(total * percent / 100))
