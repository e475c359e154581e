"""Checks whether spares are kept free. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from recover.doctor.case import Finding, Place, Severity
from recover.doctor.installation.installed import Installation
from recover.model.modes import Mode
from recover.stories.words import counted, some
from recover.triage.spare_node import SPARE, Spare, spare_of

__all__ = ["kept_free", "standing"]


def standing(seen: Installation) -> str:
    """Returns the state of the spares in a few words; empty if there are none."""
    spares = _spares(seen)
    reserve = [spare.name for spare in spares if spare.in_reserve]
    parts = [f"{len(reserve)} of {len(spares)} kept free"]
    parts += [
        f"{spare.name} replaces {spare.instead_of or 'a node'} ({spare.incident})"
        for spare in spares
        if spare.lent
    ]
    return ", ".join(parts) if spares else ""


def _spares(seen: Installation) -> list[Spare]:
    found = (spare_of(node) for node in seen.nodes.values())
    return [spare for spare in found if spare is not None and spare.labelled]


def kept_free(seen: Installation) -> Iterator[Finding]:
    """Reports spares that pods may use, except spares that replace a node that is out of service."""
    spares = _spares(seen)
    observing = seen.state is None or seen.state.mode is Mode.OBSERVE
    fresh = [s.name for s in spares if s.taint is None and not s.incident and s.kept is None]
    if fresh:
        yield Finding(
            name="spares-not-kept",
            severity=Severity.RISKS,
            what=f"{counted(len(fresh), 'spare is', 'spares are')} without the taint: {some(fresh, 4)}",
            where=Place(f"Node {fresh[0]}", f"spec.taints[{SPARE}]"),
            means="in mode observe Rekindle sets no taint: pods use these spares like any other node"
            if observing
            else "pods use these spares until the controller sets the taint; a running controller sets "
            "it at once",
            fix=f"kubectl taint node {fresh[0]} {SPARE}=true:NoSchedule",
        )
    taken = [spare.name for spare in spares if spare.taken]
    if taken:
        yield Finding(
            name="spares-in-service",
            severity=Severity.ADVICE,
            what=f"somebody has put {counted(len(taken), 'spare')} into service: {some(taken, 4)}",
            where=Place(f"Node {taken[0]}", f"spec.taints[{SPARE}]"),
            means="these spares replace no node",
            fix=f"kubectl taint node {taken[0]} {SPARE}=true:NoSchedule",
        )
