"""Checks for labels and annotations of people that Rekindle cannot use. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from recover.doctor.case import Finding, Place, Severity
from recover.doctor.installation.installed import Installation
from recover.model import Gang
from recover.stories.annotations import Misread, misreadings
from recover.stories.groups import grouped
from recover.stories.keys import Form, On
from recover.stories.words import counted

__all__ = ["mistyped"]


def mistyped(seen: Installation) -> Iterator[Finding]:
    """Reports labels and annotations of nodes, namespaces and jobs without the wanted effect. All objects
    with the same mistake share one finding."""
    said: list[tuple[Misread, str]] = []
    for node in seen.nodes.values():
        said += _of(On.NODE, f"node {node.name}", node.labels, node.annotations)
    for space in seen.namespaces.values():
        said += _of(On.NAMESPACE, f"namespace {space.name}", space.labels, space.annotations)
    for gang in seen.gangs:
        said += _of(On.JOB, _target(gang), gang.labels, gang.annotations)
    means = {one.text: one.means for one, _ in said}
    for group in grouped((one.text, name) for one, name in said):
        form, _, rest = group.why.partition(" ")
        name, verb = rest.partition(":")[0], "label" if form == Form.LABEL else "annotate"
        yield Finding(
            name="misread",
            severity=Severity.RISKS,
            what=f"{counted(len(group.names), 'object')} ({group.who}): {group.why}",
            where=Place(group.names[0], f"metadata.{form}s[{name}]"),
            means=means[group.why],
            fix=f"kubectl {verb} {group.names[0]} {name}-  # and write an expected value instead",
        )


def _of(
    on: On, name: str, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> Iterator[tuple[Misread, str]]:
    return ((one, name) for one in misreadings(on, labels, annotations))


def _target(gang: Gang) -> str:
    """Returns the arguments that name the job for kubectl."""
    return f"{gang.ref.kind.lower()} -n {gang.ref.namespace} {gang.ref.name}"
