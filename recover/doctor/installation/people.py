"""What people have written for Rekindle that does nothing, and what waits for them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from recover.api import IncidentPhase
from recover.api.repair_state import RepairPhase
from recover.doctor.case import Finding, Place, Severity
from recover.doctor.installation.installed import Installation
from recover.model import Gang
from recover.policy.consent import AUTO_RECOVERY, OptIn, opt_in
from recover.stories.annotations import misread
from recover.stories.groups import grouped
from recover.stories.keys import Form, On
from recover.stories.words import counted, some

__all__ = ["alias", "handed_over", "mistyped"]

_KCOVER = "kcover.io/"
"""Labels and annotations of another product, which asked for the same."""


def mistyped(seen: Installation) -> Iterator[Finding]:
    """Of nodes, namespaces and jobs; all that make the same mistake together."""
    said: list[tuple[str, str]] = []
    for node in seen.nodes.values():
        said += _of(On.NODE, f"node {node.name}", node.labels, node.annotations)
    for space in seen.namespaces.values():
        said += _of(On.NAMESPACE, f"namespace {space.name}", space.labels, space.annotations)
    for gang in seen.gangs:
        said += _of(On.JOB, _target(gang), gang.labels, gang.annotations)
    for group in grouped(said):
        form, _, rest = group.why.partition(" ")
        name, verb = rest.partition(":")[0], "label" if form == Form.LABEL else "annotate"
        yield Finding(
            name="misread",
            severity=Severity.RISKS,
            what=f"{counted(len(group.names), 'object')} ({group.who}): {group.why}",
            where=Place(group.names[0], f"metadata.{form}s[{name}]"),
            means="it does not do what it was meant to",
            fix=f"kubectl {verb} {group.names[0]} {name}-  # and write what is expected in its place",
        )


def _of(
    on: On, name: str, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    return ((sentence, name) for sentence in misread(on, labels, annotations))


def _target(gang: Gang) -> str:
    """For kubectl."""
    return f"{gang.ref.kind.lower()} -n {gang.ref.namespace} {gang.ref.name}"


def alias(seen: Installation) -> Iterator[Finding]:
    """Jobs that ask kcover, and not us."""
    asked = [
        gang
        for gang in seen.gangs
        if any(name.startswith(_KCOVER) for name in (*gang.labels, *gang.annotations))
        and opt_in(gang, seen.namespaces.get(gang.ref.namespace)) is not OptIn.ENABLED
    ]
    if asked:
        yield Finding(
            name="kcover-keys",
            severity=Severity.RISKS,
            what=f"{counted(len(asked), 'job has', 'jobs have')} keys of {_KCOVER} and no consent for "
            f"Rekindle: {some((f'{gang.ref.namespace}/{gang.ref.name}' for gang in asked), 3)}",
            where=Place(str(asked[0].ref), "metadata.labels"),
            means="Rekindle does not read those: the jobs are left alone",
            fix=f"kubectl label {_target(asked[0])} {AUTO_RECOVERY}=enabled",
        )


def handed_over(seen: Installation) -> Iterator[Finding]:
    """Nodes that Rekindle could not mend, or may not try again."""
    for incident in seen.incidents:
        repair = incident.status.repair
        if incident.status.phase is IncidentPhase.OPEN and repair is not None:
            if repair.phase is not RepairPhase.HANDED_OVER:
                continue
            node = incident.spec.node
            yield Finding(
                name="repair-waits-for-a-person",
                severity=Severity.RISKS,
                what=f"{node} was handed over to a person: {repair.message or repair.reason}",
                where=Place(f"Incident {incident.metadata.name}", "status.repair.phase", repair.phase),
                means="the node stays out until somebody returns it",
                fix=f"rekindle why node/{node}",
            )
