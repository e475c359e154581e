"""Puts together the findings of all checks of a job or an installation, worst first, and tells them to
people. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta

from detectors.text.answers import Answer, Record
from detectors.text.printing import one_line
from recover.doctor.case import NO_CLUSTER, NOT_ALLOWED, NOT_ANSWERED, C, Case, Check, Finding, Severity
from recover.doctor.checks import CHECKS
from recover.doctor.permission import NOT_OPTED_IN
from recover.policy.consent import AUTO_RECOVERY, OptIn
from recover.stories.facts import job_record
from recover.stories.records import JobRecord, name_of
from recover.stories.words import Command, Line, Section, Story, Tone, counted

__all__ = [
    "Examined",
    "JobsAnswer",
    "NotMade",
    "Passed",
    "Report",
    "examined",
    "made",
    "sections",
    "story",
    "tone",
]

Titles = Mapping[Severity, tuple[str, Tone]]

_NO_START = {
    "environment-not-optional": "will not run",
    "claim-missing": "will not run",
    "claim-of-one-pod": "will not run",
    "restart-policy-unknown": "will not run",
    "role-restart-policy-unknown": "may not run",
}
"""Findings that already affect the first start of the job, each with the words for the headline. An elastic
job may run without some of its pods."""
_ELASTIC = "elastic"
_SUBJECTS = {
    "mode": "the controller's mode",
    "lowered": "settings that lower the mode",
    "namespace": "the mode and holds of the namespace",
    "checkpoint-claim": "the PersistentVolumeClaim of the checkpoints",
    "known-issues-of-nodes": "known issues of the nodes",
    "agents": "the agents on the nodes of the job",
    "steps": "the steps that agents read",
}
"""Names in words of the checks that need the cluster."""
_TITLES: Titles = {
    Severity.FAILS: ("Will fail, or will lose work", Tone.BAD),
    Severity.RISKS: ("Warnings: may fail, or cost time", Tone.WAITING),
    Severity.ADVICE: ("Advice", Tone.PLAIN),
}


class Passed(Record, frozen=True, kw_only=True):
    check: str
    what: str


class NotMade(Record, frozen=True, kw_only=True):
    check: str
    why: str


class Examined(Record, frozen=True, kw_only=True):
    findings: tuple[Finding, ...]
    passed: tuple[Passed, ...]
    not_made: tuple[NotMade, ...]

    @property
    def fails(self) -> bool:
        return any(finding.severity is Severity.FAILS for finding in self.findings)

    @property
    def refused(self) -> tuple[NotMade, ...]:
        """Returns the checks that were not made because the cluster did not give the data that they need."""
        return tuple(one for one in self.not_made if one.why.startswith((NOT_ALLOWED, NOT_ANSWERED)))

    @property
    def little_known(self) -> str:
        """Returns the first words of a verdict if most checks could not be made; otherwise empty."""
        every = len(self.not_made) + len(self.passed) + len({finding.name for finding in self.findings})
        if len(self.refused) * 2 < every:
            return ""
        return (
            f"This command could not make {len(self.refused)} of {every} checks, so this answer says little. "
        )

    def count(self, severity: Severity) -> int:
        return sum(1 for finding in self.findings if finding.severity is severity)

    @property
    def checks(self) -> str:
        """Returns the text for the end of a verdict."""
        passed = f"{counted(len(self.passed), 'check')} passed"
        needing = sum(1 for one in self.not_made if one.why == NO_CLUSTER)
        others = len(self.not_made) - needing
        return (
            passed
            + (f", {others} could not be made" if others else "")
            + (f". {counted(needing, 'check needs', 'checks need')} the cluster" if needing else "")
        )


class Report(Examined, frozen=True, kw_only=True):
    """The findings about one job."""

    job: Annotated[
        JobRecord, Meta(description="the name is empty if the manifest has a generateName instead")
    ]
    generate_name: Annotated[str, Meta(description="the generateName of the manifest, or empty")] = ""
    called: Annotated[str, Meta(description="the job, in words")]


class JobsAnswer(Answer, frozen=True, kw_only=True, tag="DoctorJobs"):
    """The answer of `rekindle doctor JOB` and `rekindle doctor -f FILE`."""

    jobs: list[Report]

    def names(self) -> tuple[str, ...]:
        return tuple(name_of(report.job) for report in self.jobs)


def examined(case: Case) -> Report:
    found = made(CHECKS, case, case.unread)
    return Report(
        job=job_record(case.gang.ref),
        generate_name=case.generate_name,
        called=case.called,
        findings=found.findings,
        passed=found.passed,
        not_made=found.not_made,
    )


def made(checks: Sequence[Check[C]], case: C, unread: Mapping[Any, str]) -> Examined:
    """Makes each check whose parts could all be read. Returns the worst findings first."""
    findings: list[Finding] = []
    passed, not_made = [], []
    for check in checks:
        missing = next((part for part in check.needs if part in unread), None)
        if missing is not None:
            not_made.append(NotMade(check=check.name, why=unread[missing]))
            continue
        found = list(check.find(case))
        findings += found
        if not found:
            passed.append(Passed(check=check.name, what=check.passed))
    order = list(Severity)
    return Examined(
        findings=tuple(sorted(findings, key=lambda finding: order.index(finding.severity))),
        passed=tuple(passed),
        not_made=tuple(not_made),
    )


def story(report: Report, commands: tuple[Command, ...], *, wide: bool = False) -> Story:
    return Story(
        subject=report.called,
        verdict=_verdict(report),
        sections=sections(report, _TITLES, wide=wide),
        commands=commands,
    )


def sections(report: Examined, titles: Titles, *, wide: bool = False) -> tuple[Section, ...]:
    """Returns one section for each severity, with its title, and one for what was not checked; `wide` adds
    the checks that passed."""
    found = [
        Section(
            title, tuple(line for f in report.findings if f.severity is severity for line in _lines(f, tone))
        )
        for severity, (title, tone) in titles.items()
    ]
    found.append(Section("Not checked", _not_made(report)))
    if wide:
        passed = (Line(f"{one.what} ({one.check})", Tone.GOOD) for one in report.passed)
        found.append(Section("In order", tuple(passed)))
    return tuple(section for section in found if section.lines)


def _lines(finding: Finding, tone: Tone) -> tuple[Line, ...]:
    where = finding.where
    place = ": ".join(part for part in (where.object, where.field, where.value) if part)
    return (
        Line(f"{one_line(finding.what)} ({finding.name})", tone),
        Line(f"where: {one_line(place)}", Tone.DETAIL),
        Line(f"then: {one_line(finding.means)}", Tone.DETAIL),
        Line(f"fix: {one_line(finding.fix)}", Tone.DETAIL),
    )


def _not_made(report: Examined) -> tuple[Line, ...]:
    checks: dict[str, list[str]] = {}
    lacking: list[str] = []
    for one in report.not_made:
        if one.why.startswith(f"{NOT_ALLOWED} read "):
            lacking.append(one.why.removeprefix(f"{NOT_ALLOWED} read ").partition(" (")[0])
            checks.setdefault(NOT_ALLOWED, []).append(one.check)
        else:
            checks.setdefault(one.why, []).append(one.check)
    lines = []
    for why, names in checks.items():
        if why == NOT_ALLOWED:
            why = f"{NOT_ALLOWED} read {', '.join(dict.fromkeys(lacking))}"
        lines.append(Line(f"{', '.join(_SUBJECTS.get(name, name) for name in names)}: {one_line(why)}"))
    return tuple(lines)


def tone(report: Examined) -> Tone:
    if report.fails:
        return Tone.BAD
    return Tone.WAITING if report.count(Severity.RISKS) or report.refused else Tone.GOOD


def _verdict(report: Report) -> Line:
    """Returns the verdict: first the findings that keep the job from its restart or from its start, then the
    number of others."""
    refused = next((found for found in report.findings if found.name == NOT_OPTED_IN), None)
    unstarted = next((found for found in report.findings if found.name in _NO_START), None)
    told = [report.little_known.strip()]
    if refused is not None:
        told.append(_not_enabled(refused))
    if unstarted is not None:
        is_elastic = any(found.name == _ELASTIC for found in report.findings)
        words = "may not run" if is_elastic else _NO_START[unstarted.name]
        told.append(f"This job {words}: {one_line(unstarted.means)}.")
    told += [f"{_found(report.findings, [one for one in (refused, unstarted) if one])}.", f"{report.checks}."]
    return Line(" ".join(filter(None, told)), tone(report))


def _not_enabled(refused: Finding) -> str:
    """Returns the sentence for a job without consent. The job's own label takes precedence over its
    namespace's; if the job has none, its namespace may have the label instead."""
    unsaid = not refused.where.value
    unless = (
        ", unless its namespace enables automatic recovery"
        if unsaid and refused.severity is not Severity.FAILS
        else ""
    )
    instead = f", or put the label {AUTO_RECOVERY}: {OptIn.ENABLED} on its namespace" if unsaid else ""
    return (
        f"Not enabled: Rekindle does not restart this job after a fault{unless}. To enable "
        f"automatic recovery: {one_line(refused.fix)}{instead}."
    )


def _found(findings: Sequence[Finding], named: Sequence[Finding]) -> str:
    """Returns the number of findings in words, without those that the verdict has named before."""
    rest = [finding for finding in findings if finding not in named]
    if not rest:
        return "No other problem found" if named else "No problem found"
    fails, risks, advice = (
        _counted(rest, named, severity, *what)
        for severity, what in (
            (Severity.FAILS, ("problem", "")),
            (Severity.RISKS, ("warning", "")),
            (Severity.ADVICE, ("piece", " of advice")),
        )
    )
    lesser = [one for one in (risks, advice) if one]
    also = " also" if fails or named else ""
    verb = "is" if lesser and lesser[0].startswith("1 ") else "are"
    worst = f"{fails} would prevent a recovery of this job, or lose work" if fails else ""
    if not fails and not named:
        worst = "No check failed"
    return ". ".join(filter(None, (worst, f"There {verb}{also} {' and '.join(lesser)}" if lesser else "")))


def _counted(
    rest: Sequence[Finding], named: Sequence[Finding], severity: Severity, noun: str, after: str
) -> str:
    """Returns the number of findings of that severity; empty if there are none."""
    number = sum(one.severity is severity for one in rest)
    other = "other " if any(one.severity is severity for one in named) else ""
    return f"{counted(number, f'{other}{noun}')}{after}" if number else ""
