"""Reads the label, taint and annotations of one spare node, and builds the patches that change them. Pure;
spares.py decides.

A spare has a label that people set, and our taint, which keeps pods out. While the spare replaces a node that
is out of service, the taint is absent and an annotation names the Incident; both change in one patch. A note
in a second annotation has the facts that make the node a free spare again, exactly as it was before.
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
"""Name of the label that people set, with any value but `false`, and name of the taint."""
SPARE_FOR = key("spare-for")
"""Annotation on a spare that takes pods. Its value is the Incident whose node the spare replaces."""
KEPT = key("spare-kept")
"""Annotation on a spare. Its value is our note."""
_EFFECT = "NoSchedule"


class Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """Our note on a spare. If the note is missing, Rekindle has not seen the node as a spare before."""

    at: datetime
    laid: bool
    """True if Rekindle set the taint, False if a person did."""
    value: str = "true"
    """Value of the taint."""
    node: str = ""
    """Name of the node that the spare replaces."""
    declined: str = ""
    """The Incident for which a person refused the spare, by setting the taint again."""


class Spare(msgspec.Struct, frozen=True):
    node: Node
    labelled: bool
    taint: Taint | None
    kept: Kept | None
    incident: str
    """The Incident of the node that the spare replaces; empty if the spare replaces no node."""

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
        """Whether a person removed the taint: the node is in service, and Rekindle leaves it so."""
        return self.labelled and self.taint is None and not self.incident and self.kept is not None

    @property
    def instead_of(self) -> str:
        return self.kept.node if self.kept is not None else ""

    def keep(self, now: datetime) -> Patch | None:
        """Returns the patch that brings our taint and notes into agreement with what people have set, or None
        if none is needed."""
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
        """Returns the patch that makes the spare take pods in place of the node `instead_of`."""
        assert self.taint is not None, "only a spare in reserve is lifted"
        before = self.kept or Kept(now, laid=False, value=self.taint.value)
        kept = msgspec.structs.replace(before, at=now, node=instead_of)
        return self._patch("lift-spare", kept, taint=None, incident=incident)

    def give_back(self, now: datetime) -> Patch:
        """Returns the patch that keeps new pods out again. Pods that run on the spare stay."""
        before = self.kept or Kept(now, laid=True)
        kept = msgspec.structs.replace(before, at=now, node="")
        return self._patch("return-spare", kept, taint=kept.value)

    def decline(self, now: datetime) -> Patch:
        """Returns the patch that has the same effect as a taint that a person sets again: the spare no longer
        serves its present Incident."""
        before = self.kept or Kept(now, laid=True)
        kept = msgspec.structs.replace(before, at=now, node="", declined=self.incident)
        return self._patch("decline-spare", kept, taint=kept.value)

    def _ended(self) -> Patch:
        """Returns the patch for a node whose label a person removed. The node is no longer a spare, and
        nothing that Rekindle wrote stays."""
        laid = self.kept is not None and self.kept.laid
        stays = self.taint.value if self.taint is not None and not laid else None
        return self._patch("end-spare", None, taint=stays)

    def _patch(self, what: str, kept: Kept | None, *, taint: str | None, incident: str = "") -> Patch:
        """Returns the patch of taint and annotations. `taint` is the value of the taint, or None to remove
        the taint. Taints are one list, so the patch writes other people's taints unchanged and applies only
        to exactly the version that was seen."""
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
    """Returns the spare, or None if neither a person nor Rekindle has ever marked the node as a spare."""
    label, incident = node.labels.get(SPARE), node.annotations.get(SPARE_FOR, "")
    labelled = label is not None and label.lower() != "false"
    if not labelled and not incident and KEPT not in node.annotations:
        return None
    taint = next((taint for taint in node.taints if _is_ours(taint)), None)
    return Spare(node, labelled, taint, _note(node.annotations.get(KEPT, "")), incident)


def others(node: Node) -> list[Taint]:
    """Returns the taints that are not ours."""
    return [taint for taint in node.taints if not _is_ours(taint)]


def _is_ours(taint: Taint) -> bool:
    return taint.key == SPARE and taint.effect == _EFFECT


def _note(text: str) -> Kept | None:
    """Returns the note, or None if there is none or a person has garbled it. Without a note, the node counts
    as a spare that Rekindle sees for the first time."""
    try:
        return msgspec.json.decode(text, type=Kept) if text else None
    except (msgspec.MsgspecError, RecursionError):
        return None
