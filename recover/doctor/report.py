"""What all checks say of a job, or of the installation, worst first, and the story of it for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from detectors.text.printing import one_line
from recover.doctor.case import C, Case, Check, Finding, Severity
from recover.doctor.checks import CHECKS
from recover.doctor.permission import NOT_OPTED_IN
from recover.stories.words import Command, Line, Section, Story, Tone, counted

__all__ = ["Examined", "NotMade", "Passed", "Report", "examined", "made", "sections", "story", "tone"]

Titles = Mapping[Severity, tuple[str, Tone]]

_TITLES: Titles = {
    Severity.FAILS: ("Will fail at a fault, or lose work", Tone.BAD),
    Severity.RISKS: ("May fail, or costs time", Tone.WAITING),
    Severity.ADVICE: ("Advice", Tone.PLAIN),
}


class Passed(msgspec.Struct, frozen=True):
    check: str
    what: str


class NotMade(msgspec.Struct, frozen=True):
    check: str
    why: str


class Examined(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    findings: tuple[Finding, ...]
    passed: tuple[Passed, ...]
    not_made: tuple[NotMade, ...]

    @property
    def fails(self) -> bool:
        return any(finding.severity is Severity.FAILS for finding in self.findings)

    def count(self, severity: Severity) -> int:
        return sum(1 for finding in self.findings if finding.severity is severity)

    @property
    def checks(self) -> str:
        """For the end of a verdict."""
        passed = f"{counted(len(self.passed), 'check')} passed"
        return passed + (f", {len(self.not_made)} not made" if self.not_made else "")


class Report(Examined, frozen=True, kw_only=True, rename="camel"):
    job: str


def examined(case: Case) -> Report:
    found = made(CHECKS, case, case.unread)
    return Report(job=case.called, findings=found.findings, passed=found.passed, not_made=found.not_made)


def made(checks: Sequence[Check[C]], case: C, unread: Mapping[Any, str]) -> Examined:
    """Each check of which nothing that it needs is unread, the worst findings first."""
    findings: list[Finding] = []
    passed, not_made = [], []
    for check in checks:
        missing = next((part for part in check.needs if part in unread), None)
        if missing is not None:
            not_made.append(NotMade(check.name, unread[missing]))
            continue
        found = list(check.find(case))
        findings += found
        if not found:
            passed.append(Passed(check.name, check.passed))
    order = list(Severity)
    return Examined(
        findings=tuple(sorted(findings, key=lambda finding: order.index(finding.severity))),
        passed=tuple(passed),
        not_made=tuple(not_made),
    )


def story(report: Report, commands: tuple[Command, ...]) -> Story:
    return Story(
        subject=report.job, verdict=_verdict(report), sections=sections(report, _TITLES), commands=commands
    )


def sections(report: Examined, titles: Titles) -> tuple[Section, ...]:
    """One for each severity, under its title, and what was not checked."""
    found = [
        Section(
            title, tuple(line for f in report.findings if f.severity is severity for line in _lines(f, tone))
        )
        for severity, (title, tone) in titles.items()
    ]
    found.append(Section("Not checked", _not_made(report)))
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
    for one in report.not_made:
        checks.setdefault(one.why, []).append(one.check)
    return tuple(Line(f"{', '.join(names)}: {one_line(why)}") for why, names in checks.items())


def tone(report: Examined) -> Tone:
    if report.fails:
        return Tone.BAD
    return Tone.WAITING if report.count(Severity.RISKS) else Tone.GOOD


def _verdict(report: Report) -> Line:
    refused = next((found for found in report.findings if found.name == NOT_OPTED_IN), None)
    if refused is None:
        return Line(f"{_at_a_fault(report, 'At a fault')}; {report.checks}.", tone(report))
    others = tuple(found for found in report.findings if found.name != NOT_OPTED_IN)
    rest = _at_a_fault(msgspec.structs.replace(report, findings=others), "Apart from that, at a fault")
    return Line(f"{_not_enabled(refused)} {rest}; {report.checks}.", tone(report))


def _not_enabled(refused: Finding) -> str:
    """The job's own word beats its namespace's; where it has none, its namespace may have it instead."""
    unsaid = not refused.where.value
    unless = ", unless its namespace enables it" if unsaid and refused.severity is not Severity.FAILS else ""
    instead = ", or the same annotation on its namespace" if unsaid else ""
    return (
        f"Automatic recovery is not enabled for this job, so Rekindle leaves it alone after a fault{unless}. "
        f"To enable it: {one_line(refused.fix)}{instead}."
    )


def _at_a_fault(report: Report, when: str) -> str:
    fails, risks, advice = (report.count(severity) for severity in Severity)
    if not report.findings:
        return f"{when} nothing was found that would not work"
    found = [
        f"{counted(fails, 'thing')} will fail" if fails else "nothing will fail",
        f"{risks} may fail or cost time" if risks else "",
        f"{advice} to consider" if advice else "",
    ]
    return f"{when} {', '.join(part for part in found if part)}"
