"""One spare node: what its label, taint and annotations say, and the patches that change them. Pure;
spares.py decides.

A spare carries a label that people set, and our taint, which keeps pods out. While it stands in for a node
that is out, the taint is away and an annotation names the incident; both change in one patch. A note in a
second annotation holds what gives the node back exactly as it was.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from detectors.wire.contract import key
from recover.k8s.kinds import NODES
from recover.model import Node, Taint
from recover.model.actions import Patch
from recover.model.taints import as_written

__all__ = ["KEPT", "SPARE", "SPARE_FOR", "Kept", "Spare", "others", "spare_of"]

SPARE = key("spare")
"""People's label, with any value but `false`; and the taint."""
SPARE_FOR = key("spare-for")
"""Annotation on a spare that takes pods: the incident whose node it stands in for."""
KEPT = key("spare-kept")
"""Annotation on a spare: our note."""
_EFFECT = "NoSchedule"


class Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """Our note on a spare. Without it we have not seen the node as a spare before."""

    at: datetime
    laid: bool
    """True where we laid the taint; False where a person had."""
    value: str = "true"
    """The taint's."""
    node: str = ""
    """In whose place it takes pods."""
    declined: str = ""
    """The incident for which a person did not want it: they laid the taint again."""


class Spare(msgspec.Struct, frozen=True):
    node: Node
    labelled: bool
    taint: Taint | None
    kept: Kept | None
    incident: str
    """Of the node that it stands in for; empty where it does not."""

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def in_reserve(self) -> bool:
        return self.labelled and self.taint is not None

    @property
    def lent(self) -> bool:
        return self.labelled and self.taint is None and bool(self.incident)

    @property
    def taken(self) -> bool:
        """A person took the taint off: the node is in service, and we leave it so."""
        return self.labelled and self.taint is None and not self.incident and self.kept is not None

    @property
    def instead_of(self) -> str:
        return self.kept.node if self.kept is not None else ""

    def keep(self, now: datetime) -> Patch | None:
        """What is not yet as it must be, between two services; None where nothing is."""
        if not self.labelled:
            return self._ended()
        if self.taint is None:
            is_new = not self.incident and self.kept is None
            return self._patch("keep-spare", Kept(now, laid=True), taint="true") if is_new else None
        if self.incident:
            declined = Kept(now, laid=False, value=self.taint.value, declined=self.incident)
            return self._patch("keep-spare", declined, taint=self.taint.value)
        if self.kept is None:
            noted = Kept(now, laid=False, value=self.taint.value)
            return self._patch("keep-spare", noted, taint=self.taint.value)
        return None

    def lift(self, instead_of: str, incident: str, now: datetime) -> Patch:
        """Lets pods in, in place of that node."""
        assert self.taint is not None, "only a spare in reserve is lifted"
        before = self.kept or Kept(now, laid=False, value=self.taint.value)
        kept = msgspec.structs.replace(before, at=now, node=instead_of)
        return self._patch("lift-spare", kept, taint=None, incident=incident)

    def give_back(self, now: datetime) -> Patch:
        """Keeps new pods out again. What runs there stays."""
        before = self.kept or Kept(now, laid=True)
        kept = msgspec.structs.replace(before, at=now, node="")
        return self._patch("return-spare", kept, taint=kept.value)

    def decline(self, now: datetime) -> Patch:
        """As a person does who lays the taint again: it serves that incident no more."""
        before = self.kept or Kept(now, laid=True)
        kept = msgspec.structs.replace(before, at=now, node="", declined=self.incident)
        return self._patch("decline-spare", kept, taint=kept.value)

    def _ended(self) -> Patch:
        """A person took the label off: the node is no spare any more, and nothing of ours stays."""
        laid = self.kept is not None and self.kept.laid
        stays = self.taint.value if self.taint is not None and not laid else None
        return self._patch("end-spare", None, taint=stays)

    def _patch(self, what: str, kept: Kept | None, *, taint: str | None, incident: str = "") -> Patch:
        """`taint` is its value, None where it is to be away. Taints are one list, so other people's are
        written as they are, on exactly the version that was seen."""
        ours = [Taint(SPARE, _EFFECT, taint)] if taint is not None else []
        notes = {
            KEPT: msgspec.json.encode(kept).decode() if kept is not None else None,
            SPARE_FOR: incident or None,
        }
        return Patch(
            what=what,
            resource=NODES,
            name=self.node.name,
            uid=self.node.uid,
            version=self.node.version,
            body={
                "metadata": {"annotations": notes},
                "spec": {"taints": as_written([*others(self.node), *ours])},
            },
        )


def spare_of(node: Node) -> Spare | None:
    """None where neither people nor we have ever called it a spare."""
    label, incident = node.labels.get(SPARE), node.annotations.get(SPARE_FOR, "")
    labelled = label is not None and label.lower() != "false"
    if not labelled and not incident and KEPT not in node.annotations:
        return None
    taint = next((taint for taint in node.taints if _is_ours(taint)), None)
    return Spare(node, labelled, taint, _note(node.annotations.get(KEPT, "")), incident)


def others(node: Node) -> list[Taint]:
    """Everybody else's taints."""
    return [taint for taint in node.taints if not _is_ours(taint)]


def _is_ours(taint: Taint) -> bool:
    return taint.key == SPARE and taint.effect == _EFFECT


def _note(text: str) -> Kept | None:
    """People may have garbled it; then it is as if we had not seen the node before."""
    try:
        return msgspec.json.decode(text, type=Kept) if text else None
    except (msgspec.MsgspecError, RecursionError):
        return None
