"""What all checks say of an installation, what else was found, and the story of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from recover.doctor.case import Severity
from recover.doctor.installation.all_checks import CHECKS
from recover.doctor.installation.installed import Installation, Part
from recover.doctor.installation.spare_checks import standing
from recover.doctor.report import Examined, made, sections, tone
from recover.model.judged_recipes import RecipeReason
from recover.policy.consent import word_of
from recover.stories.words import Command, Line, Section, Story, Tone, ago, counted, duration
from recover.workloads import WORKLOADS

__all__ = ["Fact", "InstallationReport", "examined", "story"]

_TITLES = {
    Severity.FAILS: ("Does not work", Tone.BAD),
    Severity.RISKS: ("May fail, or is not seen", Tone.WAITING),
    Severity.ADVICE: ("Advice", Tone.PLAIN),
}


class Fact(msgspec.Struct, frozen=True):
    """Something that was found, and is neither right nor wrong."""

    name: str
    what: str


class InstallationReport(Examined, frozen=True, kw_only=True, rename="camel"):
    namespace: str
    version: str
    """Of the release, as its controller is labelled."""
    facts: tuple[Fact, ...]


def examined(seen: Installation) -> InstallationReport:
    found = made(CHECKS, seen, seen.unread)
    return InstallationReport(
        namespace=seen.namespace,
        version=seen.release_version,
        facts=tuple(_facts(seen)),
        findings=found.findings,
        passed=found.passed,
        not_made=found.not_made,
    )


def _facts(seen: Installation) -> Iterator[Fact]:
    """What may not be read is not told here: the checks that lack it are named."""
    yield Fact("kubernetes", seen.server.said)
    if seen.state is not None:
        began = seen.state.since
        lasts = f" for {duration((seen.now - began).total_seconds())}" if began is not None else ""
        yield Fact("mode", f"{seen.state.mode}{lasts}")
    for name, modes in _lowered(seen).items():
        yield Fact(name, ", ".join(modes))
    if seen.controller is not None:
        yield Fact("controller", _controllers(seen))
    if Part.NODES not in seen.unread and Part.PODS not in seen.unread:
        ready = {pod.node for pod in seen.pods_of("agent") if pod.ready}
        nodes = seen.accelerated
        there = sum(1 for node in nodes if node.name in ready)
        yield Fact("agents", f"ready on {there} of {counted(len(nodes), 'node')} with accelerators")
    yield Fact("frameworks", ", ".join(_frameworks(seen)))
    if told := standing(seen):
        yield Fact("spares", told)
    if seen.recipes:
        used = sum(1 for one in seen.recipes if one.reason is RecipeReason.USED)
        yield Fact("recipes", f"{used} of {len(seen.recipes)} of people's own are used")


def _lowered(seen: Installation) -> dict[str, list[str]]:
    """By what lowers the mode; namespaces by their settings and by their own people's word."""
    found: dict[str, list[str]] = {}
    if seen.settings is not None:
        for pool, mode in seen.settings.modes.pools.items():
            found.setdefault("modes of pools", []).append(f"{pool}: {mode}")
        for name, mode in seen.settings.modes.namespaces.items():
            found.setdefault("modes of namespaces", []).append(f"{name}: {mode}")
    for space in seen.namespaces.values():
        word = word_of(space)
        if word is not None:
            found.setdefault("modes by annotation", []).append(f"{space.name}: {word}")
    return found


def _controllers(seen: Installation) -> str:
    assert seen.controller is not None, "asked only of one that is there"
    ready = f"{seen.controller.status.ready_replicas} of {seen.controller.spec.replicas} ready"
    lease = seen.lease
    if lease is None or lease.renewed_at is None or not lease.spec.holder_identity:
        return f"{ready}; none leads"
    return f"{ready}; {lease.spec.holder_identity} leads, renewed {ago(lease.renewed_at, seen.now)}"


def _frameworks(seen: Installation) -> Iterator[str]:
    """Those whose jobs can be restarted here, and who else decides when jobs run."""
    groups = {workload.resource.group for workload in WORKLOADS} & seen.kinds.keys()
    kinds = [w.resource.kind for w in WORKLOADS if w.resource.group in groups or w.operator is None]
    yield from sorted(kinds)
    yield from (f"{name} ({image or 'of unknown version'})" for name, image in sorted(seen.others.items()))


def story(report: InstallationReport) -> Story:
    return Story(
        subject=f"Rekindle {report.version} in {report.namespace}",
        verdict=_verdict(report),
        sections=(
            Section("Found", tuple(Line(f"{fact.name}: {fact.what}") for fact in report.facts)),
            *sections(report, _TITLES),
        ),
        commands=(
            Command("rekindle status", "what is broken, and what is being done"),
            Command("rekindle doctor NAMESPACE/JOB", "what will not work when that job fails"),
        ),
    )


def _verdict(report: InstallationReport) -> Line:
    fails, risks, advice = (report.count(severity) for severity in Severity)
    if not report.findings:
        seen = " in what you may read" if report.not_made else ""
        good = Tone.WAITING if report.not_made else Tone.GOOD
        return Line(f"Nothing was found that does not work{seen}; {report.checks}.", good)
    found = [
        f"{counted(fails, 'thing does', 'things do')} not work" if fails else "",
        f"{risks} may fail or {'is' if risks == 1 else 'are'} not seen" if risks else "",
        f"{advice} to consider" if advice else "",
    ]
    text = ", ".join(part for part in found if part)
    return Line(f"{text[0].upper()}{text[1:]}; {report.checks}.", tone(report))
