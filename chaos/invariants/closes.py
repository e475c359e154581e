"""Checks that an Incident of a node closes only once its fault is over."""

from __future__ import annotations

from collections.abc import Iterator

from chaos.invariants.base import Check
from chaos.invariants.write import Write
from chaos.simulated.reading import REPAIR_OVER, note, our_taint, repair_phase
from recover.k8s.kinds import INCIDENTS

__all__ = ["ClosesWhenOver"]


class ClosesWhenOver(Check):
    """No Incident closes while its node is quarantined for it. No Incident closes while the node's agent
    still shows the fatal fault that is its evidence, unless another Incident is open about that node. Both
    rules end with the repair: an Incident whose repair is over may close before the node returns to service.

    Harm if missed: nobody knows why the node is out of service, or the close answers a fault that still
    exists.
    """

    def violations(self, write: Write) -> Iterator[str]:
        if not write.by_controller or write.resource != INCIDENTS or write.new is None or write.old is None:
            return
        name, status = write.new["metadata"]["name"], write.new.get("status", {})
        if status.get("phase") != "Closed" or write.old.get("status", {}).get("phase") == "Closed":
            return
        node = self.facts.node(write.new["spec"].get("node", ""))
        if node is None or repair_phase(write.new) in REPAIR_OVER:
            return
        if note(node).get("incident") == name and our_taint(node) is not None:
            yield (
                f"the Incident was closed while {node['metadata']['name']} was quarantined for this Incident"
            )
        incidents = self.facts.incidents()
        goes_on = any(
            other["spec"].get("node") == write.new["spec"]["node"]
            and other.get("status", {}).get("phase", "Open") == "Open"
            for other in incidents
        )
        shown = {evidence["code"] for evidence in status.get("evidence", [])}
        for code in () if goes_on else self.facts.reports.known(node, incidents, write.at):
            if code in shown:
                yield f"the Incident was closed while {node['metadata']['name']} still showed {code}"
