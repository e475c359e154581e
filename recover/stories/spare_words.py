"""Tells what a spare node does at present, and what would change that. Pure."""

from __future__ import annotations

from datetime import datetime

from detectors.text.printing import one_line
from recover.model import Node
from recover.stories.records import SpareRecord, SpareState
from recover.stories.words import Line, Tone, ago
from recover.triage.spare_node import SPARE, spare_of

__all__ = ["FREE", "as_a_spare", "in_short"]

FREE = "free"


def as_a_spare(node: Node | None, now: datetime) -> tuple[Line, ...]:
    """Returns the line about a spare; nothing for a node that is no spare."""
    spare = spare_of(node) if node is not None else None
    if spare is None:
        return ()
    if spare.lent:
        since = f" {ago(spare.kept.at, now)}" if spare.kept is not None else ""
        out = spare.instead_of or "a node"
        text = (
            f"put into use{since} in place of {out} ({spare.incident}); Rekindle keeps the spare free again "
            f"when {out} is back"
        )
        return (Line(one_line(text), Tone.WAITING),)
    if spare.in_reserve:
        return (Line(f"kept free by the taint {SPARE} until a node of the pool is quarantined", Tone.GOOD),)
    if spare.taken:
        again = f"kubectl taint node {spare.name} {SPARE}=true:NoSchedule"
        text = f"in service, because somebody removed the taint {SPARE}; to keep the node free again: {again}"
        return (Line(one_line(text), Tone.WAITING),)
    if spare.labelled:
        return (Line("a spare by its label; Rekindle does not keep the node free yet", Tone.WAITING),)
    text = (
        "not a spare any more, because its label is gone; in the modes recover and repair, Rekindle removes "
        "what it has written on the node for the spare"
    )
    return (Line(text, Tone.WAITING),)


def in_short(spare: SpareRecord, now: datetime) -> str:
    """Returns the state of a spare for `rekindle status`."""
    match spare.state:
        case SpareState.LENT:
            since = f" {ago(spare.since, now)}" if spare.since is not None else ""
            return one_line(
                f"put into use{since} in place of {spare.instead_of or 'a node'} ({spare.incident})"
            )
        case SpareState.TAKEN:
            return "in service, because somebody removed the taint"
        case SpareState.NOT_KEPT:
            return "not kept free yet"
        case SpareState.UNUSABLE:
            return f"cannot replace a node now: {spare.trouble}"
        case SpareState.FREE:
            return FREE
