"""Puts together the findings of all checks of an installation and other facts about it, and tells them to
people. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from detectors.text.answers import Answer, Record, Time
from recover.doctor.case import Severity
from recover.doctor.installation.all_checks import CHECKS
from recover.doctor.installation.installed import Installation, Part
from recover.doctor.installation.spare_checks import standing
from recover.doctor.report import Examined, made, sections, tone
from recover.model.judged_recipes import RecipeReason
from recover.model.modes import Mode
from recover.policy.consent import word_of
from recover.stories.words import Command, Line, Section, Story, Tone, ago, counted, duration
from recover.workloads import WORKLOADS

__all__ = ["Facts", "InstallationAnswer", "InstallationReport", "examined", "story"]

_TITLES = {
    Severity.FAILS: ("Does not work", Tone.BAD),
    Severity.RISKS: ("May fail, or may stay unnoticed", Tone.WAITING),
    Severity.ADVICE: ("Advice", Tone.PLAIN),
}


class LoweredBy(StrEnum):
    POOL_SETTING = "pool-setting"
    NAMESPACE_SETTING = "namespace-setting"
    ANNOTATION = "annotation"
    """The annotation is by people of the namespace itself."""


class LowerMode(Record, frozen=True, kw_only=True):
    by: LoweredBy
    name: Annotated[str, Meta(description="name of the pool or namespace")]
    mode: Mode


class Facts(Record, frozen=True, kw_only=True):
    """Facts that are neither right nor wrong; null if a fact may not be read."""

    kubernetes: Annotated[str, Meta(description="version of the API server")]
    mode: Mode | None
    mode_since: Time | None
    lower_modes: Annotated[list[LowerMode], Meta(description="pools and namespaces that lower the mode")]
    controllers: int | None
    controllers_ready: int | None
    leader: Annotated[
        str | None,
        Meta(
            description="holder of the Lease; null: no controller leads, or you have no permission to "
            "read the Lease"
        ),
    ]
    leader_renewed_at: Time | None
    accelerator_nodes: int | None
    agents_ready: Annotated[
        int | None, Meta(description="number of nodes with accelerators whose agent is ready")
    ]
    frameworks: Annotated[
        list[str], Meta(description="kinds that Rekindle restarts, and other controllers of jobs")
    ]
    spares: Annotated[str, Meta(description="state of the spares, in words; empty if there are none")]
    recipes: Annotated[int, Meta(description="Recipe objects in the cluster")]
    recipes_used: int


class InstallationReport(Examined, frozen=True, kw_only=True):
    namespace: str
    version: Annotated[str, Meta(description="version of the release, by the label of its controller")]
    facts: Facts


class InstallationAnswer(Answer, frozen=True, kw_only=True, tag="DoctorInstallation"):
    """The answer of `rekindle doctor`."""

    installation: InstallationReport

    def names(self) -> tuple[str, ...]:
        """Returns the names of the findings: only one thing is examined."""
        return tuple(dict.fromkeys(finding.name for finding in self.installation.findings))


def examined(seen: Installation) -> InstallationReport:
    found = made(CHECKS, seen, seen.unread)
    return InstallationReport(
        namespace=seen.namespace,
        version=seen.release_version,
        facts=_facts(seen),
        findings=found.findings,
        passed=found.passed,
        not_made=found.not_made,
    )


def _facts(seen: Installation) -> Facts:
    state, controller, lease = seen.state, seen.controller, seen.lease
    is_led = lease is not None and lease.renewed_at is not None and bool(lease.spec.holder_identity)
    nodes = seen.accelerated if Part.NODES not in seen.unread else None
    ready = {pod.node for pod in seen.pods_of("agent") if pod.ready}
    can_count = nodes is not None and Part.PODS not in seen.unread
    return Facts(
        kubernetes=seen.server.said,
        mode=state.mode if state is not None else None,
        mode_since=state.since if state is not None else None,
        lower_modes=list(_lowered(seen)),
        controllers=controller.spec.replicas if controller is not None else None,
        controllers_ready=controller.status.ready_replicas if controller is not None else None,
        leader=lease.spec.holder_identity if lease is not None and is_led else None,
        leader_renewed_at=lease.renewed_at if lease is not None and is_led else None,
        accelerator_nodes=len(nodes) if nodes is not None else None,
        agents_ready=sum(node.name in ready for node in nodes or ()) if can_count else None,
        frameworks=list(_frameworks(seen)),
        spares=standing(seen) or "",
        recipes=len(seen.recipes),
        recipes_used=sum(1 for one in seen.recipes if one.reason is RecipeReason.USED),
    )


def _lowered(seen: Installation) -> Iterator[LowerMode]:
    """Yields the modes of pools and namespaces by the settings, and the modes of namespaces by the
    annotations of their own people. A mode that is not below the cluster's mode has no effect, and is left
    out."""
    for one in _set_modes(seen):
        if seen.state is None or one.mode < seen.state.mode:
            yield one


def _set_modes(seen: Installation) -> Iterator[LowerMode]:
    if seen.settings is not None:
        for pool, mode in seen.settings.modes.pools.items():
            yield LowerMode(by=LoweredBy.POOL_SETTING, name=pool, mode=mode)
        for name, mode in seen.settings.modes.namespaces.items():
            yield LowerMode(by=LoweredBy.NAMESPACE_SETTING, name=name, mode=mode)
    for space in seen.namespaces.values():
        word = word_of(space)
        if word is not None:
            yield LowerMode(by=LoweredBy.ANNOTATION, name=space.name, mode=word)


def _frameworks(seen: Installation) -> Iterator[str]:
    """Yields the kinds of jobs that Rekindle can restart here, and other controllers that decide when jobs
    run."""
    groups = {workload.resource.group for workload in WORKLOADS} & seen.kinds.keys()
    kinds = [w.resource.kind for w in WORKLOADS if w.resource.group in groups or w.operator is None]
    yield from sorted(kinds)
    yield from (f"{name} ({image or 'of unknown version'})" for name, image in sorted(seen.others.items()))


# --- for people ---------------------------------------------------------------------------------------------


def _fact_lines(facts: Facts, now: datetime) -> Iterator[str]:
    """Yields the facts in words. A fact that may not be read is left out: the report names the checks that
    lack it."""
    yield f"kubernetes: {facts.kubernetes}"
    if facts.mode is not None:
        began = facts.mode_since
        lasts = f" for {duration((now - began).total_seconds())}" if began is not None else ""
        yield f"mode: {facts.mode}{lasts}"
    for by, words in _LOWERED_BY.items():
        lowered = [f"{one.name}: {one.mode}" for one in facts.lower_modes if one.by is by]
        if lowered:
            yield f"{words}: {', '.join(lowered)}"
    if facts.controllers is not None:
        yield f"controller: {_controllers(facts, now)}"
    if facts.agents_ready is not None:
        nodes = counted(facts.accelerator_nodes or 0, "node")
        yield f"agents: ready on {facts.agents_ready} of {nodes} with accelerators"
    yield f"frameworks: {', '.join(facts.frameworks)}"
    if facts.spares:
        yield f"spares: {facts.spares}"
    if facts.recipes:
        yield f"recipes: {facts.recipes_used} of {facts.recipes} of your own recipes are used"


_LOWERED_BY = {
    LoweredBy.POOL_SETTING: "modes of pools",
    LoweredBy.NAMESPACE_SETTING: "modes of namespaces",
    LoweredBy.ANNOTATION: "modes by annotation",
}


def _controllers(facts: Facts, now: datetime) -> str:
    ready = f"{facts.controllers_ready} of {facts.controllers} ready"
    if facts.leader is None or facts.leader_renewed_at is None:
        return f"{ready}; no controller leads"
    return f"{ready}; {facts.leader} leads, renewed {ago(facts.leader_renewed_at, now)}"


def story(report: InstallationReport, now: datetime, *, wide: bool = False) -> Story:
    return Story(
        subject=f"Rekindle {report.version} in {report.namespace}",
        verdict=_verdict(report),
        sections=(
            Section("Found", tuple(map(Line, _fact_lines(report.facts, now)))),
            *sections(report, _TITLES, wide=wide),
        ),
        commands=(
            Command("rekindle status", "to see what is broken, and what Rekindle does"),
            Command("rekindle doctor NAMESPACE/JOB", "to see what will not work when that job fails"),
        ),
    )


def _verdict(report: InstallationReport) -> Line:
    fails, risks, advice = (report.count(severity) for severity in Severity)
    if not report.findings:
        seen = " in what you may read" if report.not_made else ""
        good = Tone.WAITING if report.not_made else Tone.GOOD
        return Line(f"{report.little_known}No problem was found{seen}: {report.checks}.", good)
    found = [
        f"{counted(fails, 'thing does', 'things do')} not work" if fails else "",
        f"{counted(risks, 'thing')} may fail or stay unnoticed" if risks else "",
        f"{counted(advice, 'hint')} to consider" if advice else "",
    ]
    text = ", ".join(part for part in found if part)
    return Line(f"{report.little_known}{text[0].upper()}{text[1:]}; {report.checks}.", tone(report))
