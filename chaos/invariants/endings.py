"""Keeps when people ended the quarantine of a node, and when the controller wrote the node's Incidents. The
objects do not keep the first: the controller writes its own time, which may be hours later."""

from __future__ import annotations

from datetime import datetime

from chaos.apiserver.kinds import Object
from chaos.invariants.write import Write
from chaos.simulated.reading import is_cordoned, note, our_taint, released_at
from chaos.simulated.truth import HardwareFault
from recover.k8s.kinds import INCIDENTS, NODES

__all__ = ["Endings"]


class Endings:
    def __init__(self) -> None:
        self._by_people: dict[str, datetime] = {}
        """Time at which a person last ended a quarantine, by node."""
        self._begun: dict[str, datetime] = {}
        """Time at which the controller last began a quarantine, by node."""
        self._explained: dict[str, list[datetime]] = {}
        """Times of the controller's writes of Incidents, by their node."""

    def saw(self, write: Write) -> None:
        if write.resource == INCIDENTS and write.by_controller and write.body["spec"].get("node"):
            self._explained.setdefault(write.body["spec"]["node"], []).append(write.at)
        elif _ends_quarantine(write):
            self._by_people[write.body["metadata"]["name"]] = write.at
        elif _begins_quarantine(write):
            self._begun[write.body["metadata"]["name"]] = write.at

    def ended_at(self, node: Object) -> datetime | None:
        """Returns when the last quarantine of the node ended: as the controller has recorded it or, if that
        is earlier, when a person ended it."""
        name = node["metadata"]["name"]
        recorded, ended, begun = released_at(node), self._by_people.get(name), self._begun.get(name)
        if recorded is None or ended is None:
            return recorded
        is_of_an_earlier_one = begun is not None and ended < begun < recorded
        return recorded if is_of_an_earlier_one else min(recorded, ended)

    def is_answered(self, fault: HardwareFault, node: Object) -> bool:
        """Whether the end of the node's quarantine has answered the fault: the fault came before, and the
        controller has written an Incident of the node in between. Otherwise nobody can know which of the two
        came first."""
        ended = self.ended_at(node)
        if ended is None or fault.at > ended:
            return False
        name = node["metadata"]["name"]
        if self._by_people.get(name) != ended:
            return True  # a repair has ended the quarantine, and the controller knows when
        return any(fault.at <= at < ended for at in self._explained.get(name, ()))


def _ends_quarantine(write: Write) -> bool:
    """Whether a person ends the quarantine of a node with this write."""
    if write.by_controller or write.resource != NODES or write.old is None or write.new is None:
        return False
    return _is_out(write.old) and not _is_out(write.new)


def _begins_quarantine(write: Write) -> bool:
    if not write.by_controller or write.resource != NODES or write.old is None or write.new is None:
        return False
    return not _is_out(write.old) and _is_out(write.new)


def _is_out(node: Object) -> bool:
    """Whether the node is in quarantine, and no person has ended the quarantine."""
    taken = note(node)
    is_open = taken.get("cordoned") and not is_cordoned(node)
    return bool(taken) and our_taint(node) is not None and not is_open
