"""Leaves out an object that cannot be judged, so that all others are still judged. Pure: failures are
returned.

Such a failure is a defect of Rekindle that an unforeseen object has exposed. Without this module one agent,
or one job, could end triage for the whole cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from recover.diagnose.diagnosis import Diagnosis
from recover.k8s.bodies import regarding
from recover.model import Gang, Node, World
from recover.model.actions import Failure

__all__ = ["about_diagnosis", "about_gang", "about_node", "caught", "each", "undecided"]

S = TypeVar("S")
T = TypeVar("T")


def caught(about: Mapping[str, str], decide: Callable[[], T]) -> T | Failure:
    """Returns the decision about one object, or the failure if no decision was possible."""
    try:
        return decide()
    except Exception as error:  # noqa: BLE001  (the caller logs and counts it: runtime/decision_loop.py)
        return Failure(about=about, error=error)


def each(
    subjects: Iterable[S], about: Callable[[S], Mapping[str, str]], decide: Callable[[S], T]
) -> tuple[list[T], list[Failure]]:
    """Returns the decisions about the subjects, in their order, and the failures."""
    decided: list[T] = []
    failures = []
    for subject in subjects:
        found = caught(about(subject), partial(decide, subject))
        if isinstance(found, Failure):
            failures.append(found)
        else:
            decided.append(found)
    return decided, failures


def undecided(world: World, failures: Iterable[Failure]) -> set[str]:
    """Returns the Incidents of the objects that could not be judged. For these objects a missing diagnosis
    proves nothing."""
    abouts = [failure.about for failure in failures]
    nodes = {about["name"] for about in abouts if about["kind"] == "Node"}
    uids = {about["uid"] for about in abouts}
    return {
        name
        for name, incident in (world.incidents.items() if abouts else ())
        if incident.spec.node in nodes or (incident.spec.gang and incident.spec.gang.uid in uids)
    }


def about_node(node: Node) -> dict[str, str]:
    return regarding("v1", "Node", node.name, node.uid)


def about_gang(gang: Gang) -> dict[str, str]:
    ref = gang.ref
    return regarding(ref.api_version, ref.kind, ref.name, ref.uid, ref.namespace)


def about_diagnosis(world: World, diagnosis: Diagnosis) -> dict[str, str]:
    node = world.nodes.get(diagnosis.node)
    if node is not None:
        return about_node(node)
    assert diagnosis.gang is not None, "a diagnosis is about a node that is there, or about a gang"
    return about_gang(diagnosis.gang)
