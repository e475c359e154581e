"""Renders the whole output of `why`, `status` and `doctor` for fixed objects, as a table and as JSON.

The same stories then follow for every fault, reason and phase, with only those lines that are new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import msgspec

from tests.golden import rooms
from tests.golden.rooms import doctor_cases
from tests.golden.rooms import installation_cases as installed
from tests.golden.rooms import why_cases as told
from tests.golden.stories import lines_of
from tests.golden.text import printed_plainly

__all__ = ["printed"]

NODE = "node-3"


def printed() -> Iterator[str]:
    with_scan = told.recovery(checkpoint=told.VERIFIED, resumed_step=41, lost_steps=9, lost_gpu_s=120.0)
    done = told.incident(
        told.action(rooms.ActOutcome.DONE, "quarantine-node", target=NODE), told.action(rooms.ActOutcome.DONE)
    )
    job = rooms.why_job(told.job(), [with_scan], [done], told.NOW)
    node = rooms.why_node(NODE, told.node(quarantined=True), told.health(told.finding()), [done], told.NOW)
    shown = rooms.overview(
        rooms.StatusFacts(
            nodes={NODE: told.node(quarantined=True), "node-4": told.node("node-4")},
            health={NODE: told.health(told.finding())},
            incidents=[told.incident(told.refused(rooms.Reason.NOT_OPTED_IN))],
            recoveries=[with_scan, told.recovery(rooms.Phase.STOPPING, number=2)],
            installed=rooms.Installed(
                namespace="rekindle-system",
                mode=rooms.Mode.RECOVER,
                mode_since=told.FAULT_AT - timedelta(hours=5),
                leader="rekindle-controller-1",
                renewed_at=told.FAULT_AT,
            ),
        ),
        told.NOW,
    )
    yield from _of("rekindle why team/llm", lambda: rooms.print_story(job))
    yield from _of(
        "rekindle why team/llm -o json",
        lambda: rooms.print_answer(rooms.job_answer(told.job(), [with_scan], [done], told.NOW), "json"),
    )
    yield from _of("rekindle why node/node-3", lambda: rooms.print_story(node))
    of_node = rooms.node_answer(
        NODE, told.node(quarantined=True), told.health(told.finding()), [done], told.NOW
    )
    yield from _of("rekindle why node/node-3 -o yaml", lambda: rooms.print_answer(of_node, "yaml"))
    yield from _of("rekindle why node/node-3 -o name", lambda: rooms.print_answer(of_node, "name"))
    yield from _of("rekindle status", lambda: rooms.print_overview(shown))
    yield from _of("rekindle status -o json", lambda: rooms.print_answer(shown.answer, "json"))
    yield from _doctor()
    yield from _every_word()


def _doctor() -> Iterator[str]:
    wrong = doctor_cases.case(
        "job",
        (doctor_cases.LABEL, None),
        doctor_cases.annotated("checkpoint", "/data"),
        doctor_cases.of_pod("job", "schedulingGates", [{"name": "a"}]),
        doctor_cases.LEAVES,
    )
    job = rooms.job_report.examined(wrong)
    well = rooms.job_report.examined(doctor_cases.case("pytorchjob"))
    release = rooms.installation_report.examined(installed.healthy())
    broken = rooms.installation_report.examined(
        installed.changed(controller=None, health={}, version="0.0.1", lease=None, policies={})
    )

    def told_of(report: rooms.installation_report.InstallationReport) -> rooms.Story:
        return rooms.installation_report.story(report, installed.healthy().now)

    yield from _of("rekindle doctor -f job.yaml", lambda: rooms.print_story(rooms.job_report.story(job, ())))
    jobs = rooms.job_report.JobsAnswer(jobs=[job])
    yield from _of("rekindle doctor -f job.yaml -o json", lambda: rooms.print_answer(jobs, "json"))
    yield from _of(
        "rekindle doctor -f well.yaml", lambda: rooms.print_story(rooms.job_report.story(well, ()))
    )
    yield from _of("rekindle doctor", lambda: rooms.print_story(told_of(release)))
    answer = rooms.installation_report.InstallationAnswer(installation=release)
    yield from _of("rekindle doctor -o json", lambda: rooms.print_answer(answer, "json"))
    yield from _of("rekindle doctor, where much is broken", lambda: rooms.print_story(told_of(broken)))


# --- every word of a fault, a reason and a phase ----------------------------------------------------------


def _every_word() -> Iterator[str]:
    said: set[str] = set()
    for title, story in _stories():
        new = [line for line in lines_of(story) if line not in said]
        said.update(new)
        if new:
            yield from (f"==== {title}", *new, "")


def _stories() -> Iterator[tuple[str, rooms.Story]]:
    for fault in rooms.Fault:
        found, of_fault = told.finding(fault=fault), told.incident()
        spec = msgspec.structs.replace(of_fault.spec, fault=fault)
        of_fault = msgspec.structs.replace(of_fault, spec=spec)
        yield f"a node with {fault}", _why_node(told.node(), told.health(found), of_fault)
        back = told.recovery()
        back = msgspec.structs.replace(back, spec=msgspec.structs.replace(back.spec, fault=fault))
        yield f"a job after {fault}", rooms.why_job(told.job(), [back], [of_fault], told.NOW)
    for reason in rooms.Reason:
        refused = told.incident(told.refused(reason))
        yield f"a job left alone for {reason}", rooms.why_job(told.job(), [], [refused], told.NOW)
        kept = told.action(rooms.ActOutcome.REFUSED, "quarantine-node", reason, NODE)
        yield f"a node left alone for {reason}", _why_node(told.node(), None, told.incident(kept))
        for phase in (rooms.Phase.BLOCKED, rooms.Phase.ESCALATED):
            stands = told.recovery(phase, reason=reason, message="what it waits for")
            yield f"a recovery {phase} for {reason}", rooms.why_job(told.job(), [stands], [], told.NOW)
    for phase in rooms.Phase:
        yield f"a recovery in {phase}", rooms.why_job(told.job(), [told.recovery(phase)], [], told.NOW)
    for act in ("quarantine-node", "release-node", "restart-gang", "move-gang", "repair-node", "lift-spare"):
        for outcome in rooms.ActOutcome:
            acted = told.incident(told.action(outcome, act, rooms.Reason.OBSERVE_MODE, NODE))
            yield f"{act} {outcome}", _why_node(told.node(quarantined=True), None, acted)
    for consent in rooms.OptIn:
        yield f"a job that says {consent}", rooms.why_job(told.job(consent), [], [], told.NOW)
    for blame in rooms.Blame:
        blamed = told.incident(blame=blame)
        yield f"a fault whose blame is {blame}", rooms.why_job(told.job(), [], [blamed], told.NOW)
    for repair_phase in rooms.RepairPhase:
        mended = told.incident(repair=_repair(repair_phase), phase=rooms.IncidentPhase.OPEN)
        yield f"a repair in {repair_phase}", _why_node(told.node(quarantined=True), None, mended)


def _why_node(node: Any, health: Any, incident: Any) -> rooms.Story:
    return rooms.why_node(NODE, node, health, [incident], told.NOW)


def _repair(phase: rooms.RepairPhase) -> rooms.Repair:
    steps = [
        rooms.RepairStep(
            kind=kind,
            number=number,
            job=f"repair-1-{kind}-{number}",
            at=told.FAULT_AT,
            ended_at=told.FAULT_AT + timedelta(seconds=30),
            outcome=outcome,
            message="what was seen",
        )
        for kind in rooms.StepKind
        for number, outcome in enumerate(rooms.StepOutcome, 1)
    ]
    return rooms.Repair(
        phase=phase,
        rung=rooms.StepKind.REBOOT,
        reason=rooms.Reason.NEEDS_PERSON,
        message="what happens now",
        phases=[rooms.RepairPhaseTime(phase=phase, at=told.FAULT_AT)],
        steps=steps,
        checks=[rooms.CheckRecord(name=o.value, outcome=o, message="seen") for o in rooms.CheckOutcome],
    )


def _of(command: str, prints: Callable[[], None]) -> Iterator[str]:
    with printed_plainly() as text:
        prints()
    yield from (f"==== {command}", *(line.rstrip() for line in text.getvalue().splitlines()), "")
