"""An object that cannot be judged is left out, and all others go on. Pure: what failed is returned.

Such a failure is a defect of ours, which an object that nobody foresaw has brought to light. Without this one
agent, or one job, could end triage for the whole cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from recover.k8s.bodies import regarding
from recover.model import Gang, Node, World
from recover.model.actions import Failure

__all__ = ["Apart", "about_gang", "about_node"]


class Apart:
    """`with apart(about_node(node)):` around what is decided of one object."""

    def __init__(self) -> None:
        self.failures: list[Failure] = []

    @contextmanager
    def __call__(self, about: Mapping[str, str]) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001  (whoever looks logs and counts it: runtime/whole_loop.py)
            self.failures.append(Failure(about=about, error=error))

    def undecided(self, world: World) -> set[str]:
        """The incidents of what could not be judged: that nothing is found of it says nothing."""
        nodes = {failure.about["name"] for failure in self.failures if failure.about["kind"] == "Node"}
        uids = {failure.about["uid"] for failure in self.failures}
        return {
            name
            for name, incident in (world.incidents.items() if self.failures else ())
            if incident.spec.node in nodes or (incident.spec.gang and incident.spec.gang.uid in uids)
        }


def about_node(node: Node) -> dict[str, str]:
    return regarding("v1", "Node", node.name, node.uid)


def about_gang(gang: Gang) -> dict[str, str]:
    ref = gang.ref
    return regarding(ref.api_version, ref.kind, ref.name, ref.uid, ref.namespace)
