"""Checks that a node is quarantined only for hardware that is broken in the node's present boot."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from chaos.apiserver.kinds import Object
from chaos.invariants.base import Check
from chaos.invariants.write import Write
from chaos.simulated.reading import HOLD, our_taint
from chaos.simulated.truth import HardwareFault
from recover.k8s.kinds import NODES
from recover.model.modes import Mode

__all__ = ["QuarantinedForACause"]


class QuarantinedForACause(Check):
    """A node is not quarantined for a fault from before the mode began, nor before a line that lowers the
    severity can come, nor for a fault for which a person has released the node, nor while the node is on
    hold. Only a fatal fault justifies a taint that keeps new pods off the node.

    Harm if missed: a healthy node is taken out of service.
    """

    def violations(self, write: Write) -> Iterator[str]:
        old, new = write.old, write.new
        if not write.by_controller or write.resource != NODES or old is None or new is None:
            return
        taint = our_taint(new)
        if taint is None or taint == our_taint(old):
            return
        name, keeps_pods_off = new["metadata"]["name"], taint["effect"] == "NoSchedule"
        is_closed_for_repair = self.facts.settings.mode is Mode.REPAIR and our_taint(old) is not None
        grounds = self._grounds(new, any_harm=not keeps_pods_off or is_closed_for_repair)
        if not grounds:
            yield f"{name} was quarantined without hardware evidence of this boot"
        elif all(fault.told_at < self.facts.truth.acting_since for fault in grounds):
            yield f"{name} was quarantined for a fault that was seen before the mode was enabled"
        elif (
            keeps_pods_off
            and not is_closed_for_repair
            and all(fault.settles and write.at < fault.at + self._settling() for fault in grounds)
        ):
            yield f"{name} was quarantined before the next lines could lower the severity"
        if old["metadata"].get("annotations", {}).get(HOLD):
            yield f"{name} was quarantined although a person had put a hold on the node"
        if all(self.facts.endings.is_answered(fault, new) for fault in grounds):
            yield f"{name} was quarantined again for a fault for which a person had ended a quarantine"

    def _grounds(self, node: Object, *, any_harm: bool) -> list[HardwareFault]:
        faults = self.facts.truth.harms(node["metadata"]["name"], node["status"]["nodeInfo"]["bootID"])
        return [fault for fault in faults if fault.cordons or any_harm]

    def _settling(self) -> timedelta:
        """Returns the settling time less a second: the controller dates a line from a clock that is ahead by
        the creation of the Incident, which is written in whole seconds."""
        return timedelta(seconds=self.facts.settings.timing.settle_s - 1)
