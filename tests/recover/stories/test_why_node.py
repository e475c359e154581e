"""Tests recover/stories/why_node.py: why a node is in or out of service."""

from datetime import timedelta

import msgspec

from detectors.wire.contract import (
    CoverageState,
    Device,
    DevicePod,
    Fault,
    FoldedFindings,
    NodeHealthStatus,
    Origin,
    Severity,
    Source,
    Subject,
    SubjectKind,
)
from detectors.wire.training import Edge, PodProgress
from recover.api import IncidentPhase, Outcome
from recover.api.reasons import EXPLANATIONS, Reason
from recover.model import NodeSignal, SignalKind, Taint
from recover.stories.around import Around
from recover.stories.why_node import why_node
from recover.stories.words import FAULTS, ORIGINS, SOURCES, Line, Story, Tone
from tests.facts import missing
from tests.recover.stories.why_cases import (
    NOW,
    action,
    finding,
    health,
    incident,
    lines,
    next_steps,
    node,
    told,
    tones,
)


def test_a_quarantined_node_tells_who_took_it_out_why_and_how_to_undo_it() -> None:
    done = incident(action(Outcome.DONE, "quarantine-node", target="node-3"))

    story = why_node("node-3", node(quarantined=True), health(finding(chain=["xid-154"])), [done], NOW)

    assert story.verdict.tone is Tone.BAD
    assert not missing(story.verdict.text, "3 min", "device-lost", done.metadata.name)
    for tone, facts in (
        (Tone.BAD, ("3 min", "xid-79", FAULTS[Fault.DEVICE_LOST], "0000:3b:00.0", ORIGINS[Origin.KERNEL])),
        (Tone.DETAIL, ("xid-154",)),
        (Tone.DETAIL, ("reboot", "node")),
        (Tone.GOOD, (SOURCES[Source.KMSG], "5 h")),
        (Tone.PLAIN, ("team/llm-0", "began to make steps", 41, "0.5 s")),
        (Tone.GOOD, ("node-3", "3 min")),
    ):
        assert tone in tones(story, *facts), f"missing: {facts}\n{told(story)}"
    run = [command.run for command in story.commands]
    assert "kubectl uncordon node-3" in run
    assert "rekindle why -n team job/llm" in run


def test_a_node_whose_incident_somebody_deleted_says_that_it_stays_out() -> None:
    out = node(quarantined=True)

    deleted = why_node("node-3", out, health(), [], NOW).verdict
    there = why_node("node-3", out, health(), [incident()], NOW).verdict
    unknown = why_node("node-3", out, health(), [], NOW, Around(hidden={"incidents"})).verdict

    assert deleted != there
    assert unknown == there, "who may not list them does not know"


def test_who_holds_a_broken_gpu_is_told_or_that_nobody_knows() -> None:
    def details(*devices: Device) -> list[Line]:
        broken = finding(subject=Subject(kind=SubjectKind.DEVICE, device="GPU-1", pci="0000:3b:00"))
        report = health(broken)
        status = msgspec.structs.replace(report.status, devices=list(devices))
        story = why_node("node-3", node(), msgspec.structs.replace(report, status=status), [], NOW)
        return [line for line in lines(story) if line.tone is Tone.DETAIL]

    first, second = (DevicePod(uid=f"p{n}", namespace="team", name=f"llm-{n}") for n in (0, 1))

    held, *rest = details(Device(uuid="GPU-1", pods=[first, second]))
    by_nobody, *same = details(Device(uuid="GPU-1"), Device(uuid="GPU-2", pods=[first]))
    unknown, *_ = details(Device(uuid="GPU-1"))

    assert not missing(held.text, "team/llm-0", "team/llm-1")
    assert same == rest, "the other details of a fault do not change with its holders"
    assert missing(by_nobody.text, "team/llm-0") == ["team/llm-0"]
    assert by_nobody != unknown
    assert by_nobody.text.strip() not in held.text
    assert details() == [unknown, *rest]


def test_a_note_of_the_host_does_not_say_that_the_node_failed() -> None:
    note = finding(
        code="pressure-cpu", fault=Fault.HOST, severity=Severity.INFO, subject=Subject(kind=SubjectKind.NODE)
    )

    (line,) = [
        text for text in lines(why_node("node-3", node(), health(note), [], NOW)) if "pressure" in text.text
    ]

    assert line.tone is Tone.PLAIN
    assert "a note" in line.text
    assert FAULTS[Fault.HOST] not in line.text
    assert ORIGINS[Origin.KERNEL] not in line.text


def test_that_a_reported_step_may_be_old_is_said_once_if_a_pod_makes_steps() -> None:
    def details(*edges: Edge) -> list[str]:
        report = health()
        pods = [
            PodProgress(
                namespace="team",
                name=f"llm-{n}",
                uid=f"p{n}",
                container="train",
                edge=edge,
                at=NOW,
                last_step=7,
            )
            for n, edge in enumerate(edges)
        ]
        status = msgspec.structs.replace(report.status, pods=pods)
        story = why_node("node-3", node(), msgspec.structs.replace(report, status=status), [], NOW)
        return [line.text for line in lines(story) if "may be old" in line.text]

    assert len(details(Edge.STEPPING, Edge.RESUMED)) == 1
    assert details(Edge.ENDED) == []


def test_a_faulty_node_that_was_left_in_says_why() -> None:
    brake = action(Outcome.REFUSED, "quarantine-node", Reason.FLEET_BRAKE, "node-3")

    story = why_node("node-3", node(), health(finding()), [incident(brake)], NOW)

    assert story.verdict.tone is Tone.BAD
    assert not missing(story.verdict.text, "xid-79")
    assert tones(story, "node-3", "FleetBrake", "3 min") == [Tone.BAD]
    assert EXPLANATIONS[Reason.FLEET_BRAKE].meaning in [line.text for line in lines(story)]
    assert "`kubectl cordon node-3`" in next_steps(story)


def test_a_node_that_a_person_released_says_so_with_the_time() -> None:
    released = node(released_at=NOW - timedelta(minutes=1))

    story = why_node("node-3", released, health(finding()), [], NOW)

    assert story.verdict.tone is Tone.WAITING
    assert not missing(story.verdict.text, "xid-79", f"{NOW - timedelta(minutes=1):%H:%M:%S}")
    assert why_node("node-3", node(), health(finding()), [], NOW).verdict.tone is Tone.BAD


def test_stale_evidence_is_told_once_with_the_cause_of_the_record() -> None:
    stale = action(Outcome.REFUSED, "quarantine-node", Reason.STALE_EVIDENCE, "node-3")
    exact = msgspec.structs.replace(stale, message="seen at 10:29:33, before mode recover")

    text = told(why_node("node-3", node(), health(finding()), [incident(exact)], NOW))

    assert text.count(exact.message) == 1
    assert EXPLANATIONS[Reason.STALE_EVIDENCE].meaning not in text


def test_a_healthy_node_that_is_fully_seen_is_good() -> None:
    story = why_node("node-3", node(), health(), [], NOW)

    assert story.verdict.tone is Tone.GOOD


def test_a_node_that_is_partly_blind_is_never_called_good() -> None:
    report = health(nvml=CoverageState.BLIND)

    story = why_node("node-3", node(), report, [], NOW)

    assert story.verdict.tone is Tone.WAITING
    assert not missing(story.verdict.text, SOURCES[Source.NVML])
    why = report.status.coverage[-1].why
    assert tones(story, SOURCES[Source.NVML], "5 h", why) == [Tone.WAITING]


def test_what_the_agent_reads_only_in_part_is_told_with_the_reason() -> None:
    report = health()
    coverage = [msgspec.structs.replace(c, why="some are left out") for c in report.status.coverage]
    status = msgspec.structs.replace(report.status, coverage=coverage, catalogue_problems=["row 2: no code"])

    story = why_node("node-3", node(), msgspec.structs.replace(report, status=status), [], NOW)

    assert tones(story, SOURCES[Source.KMSG], "5 h", coverage[0].why) == [Tone.WAITING]
    assert tones(story, status.catalogue_problems[0]) == [Tone.WAITING]


def test_a_training_tells_when_its_state_began_and_when_it_printed_its_last_known_step() -> None:
    seen = health()
    (pod,) = seen.status.pods
    since, printed = NOW - timedelta(seconds=68), NOW - timedelta(seconds=3)
    pod = msgspec.structs.replace(pod, at=since, last_step_at=printed)
    told_of = msgspec.structs.replace(seen, status=msgspec.structs.replace(seen.status, pods=[pod]))

    assert lines(why_node("node-3", node(), told_of, [], NOW), "team/llm-0", "68 s ago", 41, "3.0 s ago")


def test_a_node_without_an_agent_is_blind() -> None:
    story = why_node("node-3", node(), None, [], NOW)

    assert story.verdict.tone is Tone.WAITING
    assert story.verdict != why_node("node-3", node(), None, [], NOW, Around(hidden={"nodehealths"})).verdict


def test_a_cordon_that_a_person_made_is_named_as_theirs() -> None:
    story = why_node("node-3", node(unschedulable=True), health(), [], NOW)

    assert story.verdict.tone is Tone.WAITING
    assert "kubectl uncordon node-3" in [command.run for command in story.commands]


def test_a_silent_node_is_told_with_how_long() -> None:
    silent = node(ready=False, ready_since=NOW - timedelta(minutes=10))

    verdict = why_node("node-3", silent, health(), [], NOW).verdict

    assert verdict.tone is Tone.BAD
    assert not missing(verdict.text, "10 min", "NotReady")


def test_a_closed_incident_asks_nothing_of_anybody_any_more() -> None:
    refused = action(Outcome.REFUSED, "lift-spare", Reason.NO_SPARE, "node-3")

    story = why_node("node-3", node(), health(), [incident(refused, phase=IncidentPhase.CLOSED)], NOW)

    assert tones(story, "node-3", "NoSpare", "3 min") == [Tone.BAD]
    assert next_steps(story) == ""


def test_a_node_that_is_gone_still_has_its_history() -> None:
    past = incident()

    story = why_node("node-3", None, None, [past], NOW)

    assert story.verdict.tone is Tone.WAITING
    assert lines(story, past.status.summary)


def test_a_node_that_may_not_be_read_is_not_told_as_gone() -> None:
    gone = why_node("node-3", None, None, [incident()], NOW)
    hidden = why_node("node-3", None, None, [incident()], NOW, Around(hidden={"nodes"}))

    assert hidden.verdict.tone is Tone.WAITING
    assert hidden.verdict != gone.verdict


def test_findings_that_no_longer_count_do_not_make_a_node_faulty() -> None:
    past = [
        finding(cleared_at=NOW, cleared_by="a reset"),
        finding(boot_id="an older one"),
        finding(severity=Severity.INFO),
    ]

    story = why_node("node-3", node(), health(*past), [], NOW)

    assert story.verdict.tone is Tone.GOOD
    assert tones(story, "xid-79", "a reset") == [Tone.PLAIN]
    why = [line for line in lines(story, "xid-79") if line.tone is Tone.PLAIN]
    assert len(set(why)) == len(past), "each for another reason"


def test_the_evidence_of_a_note_is_told_once() -> None:
    note = finding(severity=Severity.INFO, code="volume-full", evidence="/data is full")

    assert tones(why_node("node-3", node(), health(note), [], NOW), "/data is full") == [Tone.DETAIL]


def test_folded_findings_are_counted() -> None:
    report = health()
    folded = [FoldedFindings(code="xid-45", count=40, last_seen=NOW)]
    report = type(report)(metadata=report.metadata, status=NodeHealthStatus(boot_id="b00t", folded=folded))

    assert tones(why_node("node-3", node(), report, [], NOW), "xid-45", 40) == [Tone.DETAIL]


def test_a_spare_tells_whether_it_is_kept_free_and_what_would_change_that() -> None:
    taint = Taint("rekindle.dev/spare", "NoSchedule", "true")
    kept = '{"at": "2026-11-21T09:57:00Z", "laid": true%s}'

    def as_a_spare(*taints: Taint, **notes: str) -> Line:
        annotations = {f"rekindle.dev/spare-{name}": value for name, value in notes.items()}
        spare = msgspec.structs.replace(
            node(), labels={"rekindle.dev/spare": ""}, annotations=annotations, taints=taints
        )
        of_any_node = why_node("node-3", node(), health(), [], NOW).sections
        sections = why_node("node-3", spare, health(), [], NOW).sections
        (section,) = (one for one in sections if one not in of_any_node)
        (line,) = section.lines
        return line

    free = as_a_spare(taint)
    assert free.tone is Tone.GOOD
    assert not missing(free.text, "rekindle.dev/spare")
    lent = as_a_spare(**{"for": "node-7-device-lost-1a2b", "kept": kept % ', "node": "node-7"'})
    assert lent.tone is Tone.WAITING
    assert not missing(lent.text, "3 min", "node-7", "node-7-device-lost-1a2b")
    taken = as_a_spare(kept=kept % "")
    assert taken.tone is Tone.WAITING
    assert not missing(taken.text, "kubectl taint node node-3 rekindle.dev/spare=true:NoSchedule")
    not_yet = as_a_spare()
    assert not_yet.tone is Tone.WAITING
    assert "kubectl" not in not_yet.text


def test_what_an_agent_says_forges_no_line_and_no_section() -> None:
    forged = "driver gone\n\nWhat to do next\n  - kubectl delete node worker-2"

    line = Line(f"blind: {forged}")

    assert line.text.split() == f"blind: {forged}".split()
    assert len(line.text.splitlines()) == 1


def test_what_the_driver_says_while_somebody_works_on_it_is_told_as_not_acted_on() -> None:
    label, state = "nvidia.com/gpu-driver-upgrade-state", "pod-restart-required"
    upgraded = node(labels={label: state})
    lost = finding(code="nvml-gpu-lost", origin=Origin.DRIVER)

    story = why_node("node-3", upgraded, health(lost), [], NOW)

    assert story.verdict.tone is Tone.WAITING
    assert not missing(story.verdict.text, "nvml-gpu-lost", label, state)
    assert tones(story, "nvml-gpu-lost", label, state) == [Tone.WAITING]

    both = why_node("node-3", upgraded, health(lost, finding(id="b00t-kmsg-8")), [], NOW)
    assert both.verdict.tone is Tone.BAD
    assert missing(both.verdict.text, "xid-79", "nvml-gpu-lost") == ["nvml-gpu-lost"]


def test_what_other_controllers_say_is_told_with_what_rekindle_makes_of_it() -> None:
    def told(severity: Severity, labels: dict[str, str] | None = None) -> Story:
        since = NOW - timedelta(minutes=3)
        by, fault = "NVSentinel", Fault.MEMORY_DEGRADED
        said = NodeSignal(SignalKind.CONDITION, "GpuMemWatch", "True", by, severity, fault, "Bad", since)
        return why_node("node-3", node(signals=(said,), labels=labels or {}), health(), [], NOW)

    facts = ("NVSentinel", "condition", "GpuMemWatch=True", "Bad", "3 min")
    for severity, verdict, tone in (
        (Severity.INFO, Tone.GOOD, Tone.PLAIN),
        (Severity.SUSPECT, Tone.WAITING, Tone.WAITING),
        (Severity.PENDING, Tone.BAD, Tone.BAD),
        (Severity.FATAL, Tone.BAD, Tone.BAD),
    ):
        story = told(severity)
        assert story.verdict.tone is verdict
        assert missing(story.verdict.text, "GpuMemWatch") == (["GpuMemWatch"] if verdict is Tone.GOOD else [])
        assert tones(story, *facts) == [tone]

    worked_on = told(Severity.FATAL, {"nvidia.com/mig.config.state": "pending"})
    assert worked_on.verdict.tone is Tone.WAITING
    assert not missing(worked_on.verdict.text, "condition-GpuMemWatch", "nvidia.com/mig.config.state")
