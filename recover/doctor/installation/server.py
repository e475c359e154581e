"""Checks what Rekindle needs of the API server: its version, definitions, frameworks, clocks. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from detectors.wire.contract import VERSION
from recover.doctor.case import Finding, Place, Severity
from recover.doctor.installation.installed import Installation
from recover.k8s.kinds import INCIDENTS, NODEHEALTHS, RECIPES, RECOVERIES
from recover.stories.words import counted, duration, some
from recover.workloads import WORKLOADS

__all__ = ["clocks", "fields", "frameworks", "is_served", "version"]

OFF_S = 10.0
"""Difference of clocks in seconds from which a finding is reported. Decisions compare times of agents,
controller and API server."""
_KINDS = (NODEHEALTHS, INCIDENTS, RECOVERIES, RECIPES)
_DEFINE = "rekindle crds | kubectl apply --server-side --force-conflicts -f -"
_LIMITS = ("maxLength", "maxItems", "maxProperties")


class _Lack(msgspec.Struct, frozen=True):
    """A feature that an API server lacks before a minor version, and the consequence."""

    minor: int
    what: str
    severity: Severity
    means: str
    fix: str


_UPGRADE = "upgrade Kubernetes"
_LACKS = (
    _Lack(
        25,
        "the features of several versions: the API server refuses the chart",
        Severity.FAILS,
        "nobody has tested Rekindle on this version",
        _UPGRADE,
    ),
    _Lack(
        27,
        "scheduling gates (1.27 has them)",
        Severity.ADVICE,
        "Rekindle creates the scan pod only when the old pods of a job have ended: each recovery "
        "also waits for the start of the scan",
        _UPGRADE,
    ),
    _Lack(
        30,
        "ValidatingAdmissionPolicy, and tokens that name a node (1.30 has them)",
        Severity.RISKS,
        "an agent may write the status of any node's NodeHealth, and anybody who may write "
        "Recoveries can control the controller",
        _UPGRADE,
    ),
    _Lack(
        36,
        "MutatingAdmissionPolicy (1.36 has it)",
        Severity.ADVICE,
        "a Job or JobSet learns from which checkpoint to resume only by an envFrom in its template",
        "rekindle enable -f job.yaml",
    ),
)
"""Features by version, as docs/install.md and the chart's notes describe them."""


def version(seen: Installation) -> Iterator[Finding]:
    for lack in _LACKS:
        if seen.server.is_before(1, lack.minor):
            yield Finding(
                name=f"kubernetes-before-1.{lack.minor}",
                severity=lack.severity,
                what=f"the API server lacks {lack.what}",
                where=Place("API server", "/version", seen.server.said),
                means=lack.means,
                fix=lack.fix,
            )


def is_served(seen: Installation) -> Iterator[Finding]:
    """Reports kinds that the API server does not serve. Every account may read which kinds the API server
    serves, so this check needs no part."""
    served = seen.kinds.get(NODEHEALTHS.group)
    missing = [kind for kind in _KINDS if served is None or kind.plural not in served.plurals]
    if missing:
        names = [f"{kind.plural}.{kind.group}" for kind in missing]
        yield Finding(
            name="definitions-missing",
            severity=Severity.FAILS,
            what=f"the API server does not know {some(kind.kind for kind in missing)} in {VERSION}",
            where=Place(f"CustomResourceDefinition {names[0]}", "metadata.name"),
            means="agents and controller cannot write their objects",
            fix=_DEFINE,
        )


def fields(seen: Installation) -> Iterator[Finding]:
    """Reports definitions in the cluster that lack something that this version writes."""
    for name, ours in seen.own_definitions.items():
        theirs = seen.definitions.get(name)
        if theirs is None:
            continue
        lacks = list(_lacks(_version_of(ours), _version_of(theirs), ""))
        if lacks:
            yield Finding(
                name="definition-outdated",
                severity=Severity.FAILS,
                what=f"{name} lacks {counted(len(lacks), 'thing')} that Rekindle {seen.version} writes",
                where=Place(f"CustomResourceDefinition {name}", "spec.versions", some(lacks, 6)),
                means="the API server drops fields and refuses values that the CRD does not have, so "
                "Rekindle forgets decisions or cannot carry them out",
                fix=_DEFINE,
            )


def _version_of(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the schema of the version that Rekindle uses; empty if the definition does not serve this
    version."""
    versions = definition.get("spec", {}).get("versions", [])
    found: Mapping[str, Any] = next((v for v in versions if v.get("name") == VERSION and v.get("served")), {})
    schema: Mapping[str, Any] = found.get("schema", {}).get("openAPIV3Schema", {})
    return schema


def _lacks(ours: Mapping[str, Any], theirs: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yields missing fields and enum values, and limits that are too low. Below a missing field nothing more
    is reported."""
    known = theirs.get("properties", {})
    if theirs.get("x-kubernetes-preserve-unknown-fields"):
        return
    for name, schema in ours.get("properties", {}).items():
        if name in known:
            yield from _lacks(schema, known[name], f"{path}.{name}")
        else:
            yield f"{path}.{name}".lstrip(".")
    here = path.lstrip(".")
    missing = [value for value in ours.get("enum", ()) if value not in theirs.get("enum", ours["enum"])]
    yield from (f"{here}={value}" for value in missing)
    yield from (
        f"{here} ({limit} {theirs[limit]})"
        for limit in _LIMITS
        if limit in theirs and theirs[limit] < ours.get(limit, 0)
    )
    for inner, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(ours.get(inner), dict) and isinstance(theirs.get(inner), dict):
            yield from _lacks(ours[inner], theirs[inner], f"{path}{suffix}")


def frameworks(seen: Installation) -> Iterator[Finding]:
    for workload in WORKLOADS:
        kind = workload.resource
        served = seen.kinds.get(kind.group)
        if served is not None and served.versions and kind.version not in served.versions:
            yield Finding(
                name="framework-of-another-version",
                severity=Severity.RISKS,
                what=f"the API server serves {kind.kind}s as {some(served.versions)}, and this version "
                f"of Rekindle reads {kind.version}",
                where=Place("API server", f"/apis/{kind.group}", some(served.versions)),
                means=f"Rekindle sees no {kind.kind}, and restarts no job of this kind",
                fix=f"install a release of the framework's controller that serves {kind.api_version}",
            )
    queued: dict[str, list[str]] = {}
    for gang in seen.gangs:
        if gang.foreign_owner:
            queued.setdefault(gang.foreign_owner, []).append(f"{gang.ref.namespace}/{gang.ref.name}")
    for owner, jobs in sorted(queued.items()):
        yield Finding(
            name="jobs-of-others",
            severity=Severity.ADVICE,
            what=f"{owner} decides when {counted(len(jobs), 'job')} run: {some(jobs, 3)}",
            where=Place(f"job {jobs[0]}", "metadata"),
            means="that controller would undo a stop at once, so Rekindle does not act on these jobs",
            fix=f"rekindle doctor {jobs[0]}",
        )


def clocks(seen: Installation) -> Iterator[Finding]:
    """Reports clocks that are wrong, by writes whose time both the writer and the API server have
    recorded."""
    off = [one for one in seen.clocks if abs(one.ahead_s) >= OFF_S]
    for side, sign in (("ahead of", 1), ("behind", -1)):
        those = [one for one in off if one.ahead_s * sign > 0]
        if those:
            worst = max(those, key=lambda one: abs(one.ahead_s))
            yield Finding(
                name="clock",
                severity=Severity.RISKS,
                what=f"{counted(len(those), 'clock is', 'clocks are')} {side} the API server's, by up to "
                f"{duration(abs(worst.ahead_s))}: {some(sorted(one.by for one in those), 6)}",
                where=Place(
                    worst.by, "local time of the last write", f"{worst.theirs:%Y-%m-%d %H:%M:%S} UTC"
                ),
                means="Rekindle may put faults in the wrong order, for example before a start instead of "
                "after it",
                fix=f"timedatectl status  # on {worst.by}: let chronyd or systemd-timesyncd set the clock",
            )
