"""Keeps, for the decisions, the refusals of writes that no object shows. observe.py uses this module."""

from __future__ import annotations

from detectors.wire.contract import GROUP
from recover.k8s.kinds import NODES, RECOVERIES
from recover.model import Refusal
from recover.model.actions import Ask, Create, Delete, Ensure, Patch
from recover.model.world import place
from recover.triage.node_condition import STATUS_OF

__all__ = ["Refusals", "Write"]

REFUSED_MAX = 20_000
"""Maximum number of remembered refusals: twice the Nodes of a large cluster, because a policy may refuse a
write to each Node. The write of a forgotten refusal is tried again at once, and its next refusal wakes all
decisions."""

Write = Create | Ensure | Patch | Delete | Ask
"""Kinds of writes whose refusal decisions read."""


class Refusals:
    """The refused writes. `by_place` is World.refused."""

    def __init__(self) -> None:
        self.by_place: dict[str, Refusal] = {}

    def keep(self, action: Write, refusal: Refusal) -> bool:
        """Keeps the refusal. Returns whether it is the first one of this write."""
        name = _place(action)
        is_news = self.by_place.pop(name, None) is None
        self.by_place[name] = refusal
        if len(self.by_place) > REFUSED_MAX:
            del self.by_place[next(iter(self.by_place))]
        return is_news

    def is_known(self, action: Write, words: str) -> bool:
        known = self.by_place.get(_place(action))
        return known is not None and known.words == words

    def forget(self, action: Write) -> None:
        self.by_place.pop(_place(action), None)


def is_our_own_record(action: Write) -> bool:
    """Whether the write belongs to an object in which only Rekindle records something, so that no decision
    reads its refusal. A new Recovery, and a further cause of a Recovery, do not belong to these writes."""
    if isinstance(action, Ask) or action.resource.group != GROUP:
        return False
    adds_cause = isinstance(action, Patch) and not action.subresource  # triage adds a cause to a Recovery
    return not (action.resource == RECOVERIES and (isinstance(action, Create) or adds_cause))


def _place(action: Write) -> str:
    """Returns the key of the write. The status of a Node has a separate key: if it is refused, the Node
    itself may still be written."""
    if isinstance(action, Ask):
        return f"/{action.id}"
    is_status = isinstance(action, Patch) and action.resource == NODES and action.subresource == "status"
    return f"{place(action.resource, action.name, action.namespace)}{STATUS_OF if is_status else ''}"
