"""What all checks say of a job, worst first, and the story of it for people. Pure; for cli.py."""

from __future__ import annotations

import msgspec

from recover.doctor.checks import CHECKS
from recover.doctor.model import Case, Finding, Severity
from recover.stories.words import Command, Line, Section, Story, Tone, counted, one_line

__all__ = ["NotMade", "Passed", "Report", "examined", "story"]

_TITLES = {
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


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    job: str
    findings: tuple[Finding, ...]
    passed: tuple[Passed, ...]
    not_made: tuple[NotMade, ...]

    @property
    def fails(self) -> bool:
        return any(finding.severity is Severity.FAILS for finding in self.findings)


def examined(case: Case) -> Report:
    findings: list[Finding] = []
    passed, not_made = [], []
    for check in CHECKS:
        missing = next((part for part in check.needs if part in case.unread), None)
        if missing is not None:
            not_made.append(NotMade(check.name, case.unread[missing]))
            continue
        found = list(check.find(case))
        findings += found
        if not found:
            passed.append(Passed(check.name, check.passed))
    order = list(Severity)
    return Report(
        job=case.called,
        findings=tuple(sorted(findings, key=lambda finding: order.index(finding.severity))),
        passed=tuple(passed),
        not_made=tuple(not_made),
    )


def story(report: Report, commands: tuple[Command, ...]) -> Story:
    sections = [
        Section(
            title, tuple(line for f in report.findings if f.severity is severity for line in _lines(f, tone))
        )
        for severity, (title, tone) in _TITLES.items()
    ]
    sections.append(Section("Not checked", _not_made(report)))
    return Story(
        subject=report.job,
        verdict=_verdict(report),
        sections=tuple(section for section in sections if section.lines),
        commands=commands,
    )


def _lines(finding: Finding, tone: Tone) -> tuple[Line, ...]:
    where = finding.where
    place = ": ".join(part for part in (where.object, where.field, where.value) if part)
    return (
        Line(f"{one_line(finding.what)} ({finding.name})", tone),
        Line(f"where: {one_line(place)}", Tone.DETAIL),
        Line(f"then: {one_line(finding.means)}", Tone.DETAIL),
        Line(f"fix: {one_line(finding.fix)}", Tone.DETAIL),
    )


def _not_made(report: Report) -> tuple[Line, ...]:
    checks: dict[str, list[str]] = {}
    for one in report.not_made:
        checks.setdefault(one.why, []).append(one.check)
    return tuple(Line(f"{', '.join(names)}: {one_line(why)}") for why, names in checks.items())


def _verdict(report: Report) -> Line:
    counts = [sum(1 for f in report.findings if f.severity is severity) for severity in Severity]
    fails, risks, advice = counts
    checks = f"{counted(len(report.passed), 'check')} passed"
    if report.not_made:
        checks += f", {len(report.not_made)} not made"
    if not report.findings:
        return Line(f"Nothing was found that would not work at a fault; {checks}.", Tone.GOOD)
    found = [
        f"{counted(fails, 'thing')} will fail" if fails else "nothing will fail",
        f"{risks} may fail or cost time" if risks else "",
        f"{advice} to consider" if advice else "",
    ]
    tone = Tone.BAD if fails else Tone.WAITING if risks else Tone.GOOD
    text = ", ".join(part for part in found if part)
    return Line(f"At a fault {text}; {checks}.", tone)
