"""Shows the holds of people on a job, its namespace or a node, for `why` and `status`. Pure.

policy/consent.py reads the annotations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Annotated

from msgspec import Meta

from detectors.text.answers import Record, Time
from recover.model import Gang, NamespaceView, Node
from recover.policy.commands import UNHOLD, release, release_node
from recover.policy.consent import held
from recover.stories.words import Line, Tone

__all__ = ["HoldRecord", "hold_lines", "holds_on_job", "holds_on_namespaces", "holds_on_nodes"]


class HoldRecord(Record, frozen=True, kw_only=True):
    """A hold that is in force."""

    object: Annotated[str, Meta(description="node/NAME, namespace/NAME, or a job as KIND NAMESPACE/NAME")]
    until: Annotated[Time | None, Meta(description="null: until somebody removes the hold")]
    reason: str
    fix: Annotated[str, Meta(description="the command that ends the hold")]


def holds_on_job(
    gang: Gang | None, namespaces: Mapping[str, NamespaceView], now: datetime
) -> list[HoldRecord]:
    """Returns the hold on the job itself, and the hold on its namespace."""
    if gang is None:
        return []
    found = list(_hold(str(gang.ref), gang.annotations, release(gang.ref), now))
    space = namespaces.get(gang.ref.namespace)
    return [*found, *holds_on_namespaces((space,) if space is not None else (), now)]


def holds_on_namespaces(spaces: Iterable[NamespaceView], now: datetime) -> list[HoldRecord]:
    return [
        hold
        for space in spaces
        for hold in _hold(
            f"namespace/{space.name}",
            space.annotations,
            f"kubectl annotate namespace {space.name} {UNHOLD}",
            now,
        )
    ]


def holds_on_nodes(nodes: Iterable[Node], now: datetime) -> list[HoldRecord]:
    return [
        hold
        for node in nodes
        for hold in _hold(f"node/{node.name}", node.annotations, release_node(node.name), now)
    ]


def hold_lines(holds: Iterable[HoldRecord]) -> tuple[Line, ...]:
    """Returns the lines for `why`: the meaning of the hold, its reason, and how it ends."""
    return tuple(
        Line(
            f"A person put a hold on {one.object}{_until(one)}{f': {one.reason}' if one.reason else ''}. "
            f"Until the hold ends, {_means(one)} `{one.fix}` ends the hold.",
            Tone.WAITING,
        )
        for one in holds
    )


def _hold(what: str, annotations: Mapping[str, str], fix: str, now: datetime) -> Iterator[HoldRecord]:
    found = held(annotations, now)
    if found is not None:
        yield HoldRecord(object=what, until=found.until, reason=found.reason, fix=fix)


def _until(hold: HoldRecord) -> str:
    return f" until {hold.until:%Y-%m-%d %H:%M} UTC" if hold.until is not None else ""


def _means(hold: HoldRecord) -> str:
    if hold.object.startswith("node/"):
        return "Rekindle does not quarantine or repair the node, and does not end its quarantine."
    if hold.object.startswith("namespace/"):
        return "Rekindle does not stop or start any job in the namespace."
    return "Rekindle does not stop or start the job."
