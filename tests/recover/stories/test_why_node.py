"""recover/stories/why_node.py: why a node is in or out of service."""

from datetime import timedelta

import msgspec

from detectors.wire.contract import (
    CoverageState,
    Device,
    DevicePod,
    FoldedFindings,
    NodeHealthStatus,
    Severity,
    Subject,
    SubjectKind,
)
from recover.api import IncidentPhase, Outcome
from recover.api.reasons import Reason
from recover.model import Taint
from recover.stories.why_node import why_node
from recover.stories.words import Line, Tone
from tests.recover.stories.why_cases import NOW, action, finding, health, incident, node, told


def test_a_quarantined_node_tells_who_took_it_out_why_and_how_to_undo_it() -> None:
    done = incident(action(Outcome.DONE, "quarantine-node", target="node-3"))

    story = why_node("node-3", node(quarantined=True), health(finding(chain=["xid-154"])), [done], NOW)

    assert story.verdict.text == (
        "Rekindle quarantined it 3 min ago for device-lost (cordoned and tainted; node-3-device-lost-1a2b)."
    )
    text = told(story)
    for said in (
        "3 min ago: xid-79, a GPU was lost (0000:3b:00.0), says the kernel log",
        "followed by xid-154",
        "its source recommends: reboot node",
        "kernel log: read since 5 h",
        "team/llm-0: stepping at step 41 just now, 0.5 s a step",
        "quarantined node-3 3 min ago",
        "kubectl uncordon node-3",
        "rekindle why -n team job/llm",
    ):
        assert said in text, f"missing: {said}\n{text}"


def test_a_node_whose_incident_somebody_deleted_says_that_it_stays_out() -> None:
    out = node(quarantined=True)

    assert "That Incident does not exist" in why_node("node-3", out, health(), [], NOW).verdict.text
    unknown = why_node("node-3", out, health(), [], NOW, hidden={"incidents"})
    assert "does not exist" not in unknown.verdict.text, "who may not list them does not know"


def test_who_holds_a_broken_gpu_is_told_or_that_nobody_knows() -> None:
    def story(*devices: Device) -> str:
        broken = finding(subject=Subject(kind=SubjectKind.DEVICE, device="GPU-1", pci="0000:3b:00"))
        report = health(broken)
        status = msgspec.structs.replace(report.status, devices=list(devices))
        return told(why_node("node-3", node(), msgspec.structs.replace(report, status=status), [], NOW))

    first, second = (DevicePod(uid=f"p{n}", namespace="team", name=f"llm-{n}") for n in (0, 1))

    assert "held by team/llm-0, team/llm-1" in story(Device(uuid="GPU-1", pods=[first, second]))
    assert "no pod is known to hold that GPU" in story(
        Device(uuid="GPU-1"), Device(uuid="GPU-2", pods=[first])
    )
    assert "each GPU pod of the node may" in story(Device(uuid="GPU-1"))
    assert "each GPU pod of the node may" in story()


def test_a_faulty_node_that_was_left_in_says_why() -> None:
    brake = action(Outcome.REFUSED, "quarantine-node", Reason.FLEET_BRAKE, "node-3")

    story = why_node("node-3", node(), health(finding()), [incident(brake)], NOW)

    assert story.verdict.text == "Faults are open on it (xid-79), and it is not quarantined."
    assert "did not quarantine node-3 (FleetBrake, 3 min ago)" in told(story)
    assert "The brake ends by itself when its window has passed." in told(story)


def test_a_healthy_node_that_is_fully_seen_is_good() -> None:
    story = why_node("node-3", node(), health(), [], NOW)

    assert story.verdict.text == "No fault is known."
    assert story.verdict.tone is Tone.GOOD


def test_a_node_that_is_partly_blind_is_never_called_good() -> None:
    story = why_node("node-3", node(), health(nvml=CoverageState.BLIND), [], NOW)

    assert story.verdict.text == "No fault is known, but its agent cannot read: GPU driver (NVML)."
    assert story.verdict.tone is Tone.WAITING
    assert "GPU driver (NVML): blind since 5 h: driver not loaded" in told(story)


def test_what_the_agent_reads_only_in_part_is_told_with_the_reason() -> None:
    report = health()
    coverage = [msgspec.structs.replace(c, why="some are left out") for c in report.status.coverage]
    status = msgspec.structs.replace(report.status, coverage=coverage, catalogue_problems=["row 2: no code"])

    story = told(why_node("node-3", node(), msgspec.structs.replace(report, status=status), [], NOW))

    assert "kernel log: read since 5 h: some are left out" in story
    assert "catalogue: not used: row 2: no code" in story


def test_a_node_without_an_agent_is_blind() -> None:
    story = why_node("node-3", node(), None, [], NOW)

    assert "Rekindle is blind there" in story.verdict.text


def test_a_cordon_that_a_person_made_is_named_as_theirs() -> None:
    story = why_node("node-3", node(unschedulable=True), health(), [], NOW)

    assert story.verdict.text == "Somebody cordoned it; Rekindle did not, and will not undo it."


def test_a_silent_node_is_told_with_how_long() -> None:
    silent = node(ready=False, ready_since=NOW - timedelta(minutes=10))

    assert (
        "has not heard from it since 10 min (NotReady)"
        in why_node("node-3", silent, health(), [], NOW).verdict.text
    )


def test_a_closed_incident_asks_nothing_of_anybody_any_more() -> None:
    refused = action(Outcome.REFUSED, "lift-spare", Reason.NO_SPARE, "node-3")

    story = why_node("node-3", node(), health(), [incident(refused, phase=IncidentPhase.CLOSED)], NOW)

    assert "did not let a spare in for node-3 (NoSpare, 3 min ago)" in told(story)
    assert "What to do next" not in told(story)


def test_a_node_that_is_gone_still_has_its_history() -> None:
    story = why_node("node-3", None, None, [incident()], NOW)

    assert "no such Node any more" in story.verdict.text
    assert "fell off the bus" in told(story)


def test_findings_that_no_longer_count_do_not_make_a_node_faulty() -> None:
    past = [
        finding(cleared_at=NOW, cleared_by="a reset"),
        finding(boot_id="an older one"),
        finding(severity=Severity.INFO),
    ]

    story = why_node("node-3", node(), health(*past), [], NOW)

    assert story.verdict.text == "No fault is known."
    text = told(story)
    assert "cleared just now by a reset" in text
    assert "from an earlier boot, so it no longer counts" in text
    assert "a note, never acted upon" in text


def test_folded_findings_are_counted() -> None:
    report = health()
    folded = [FoldedFindings(code="xid-45", count=40, last_seen=NOW)]
    report = type(report)(metadata=report.metadata, status=NodeHealthStatus(boot_id="b00t", folded=folded))

    assert "xid-45 40 more times, last just now" in told(why_node("node-3", node(), report, [], NOW))


def test_a_spare_tells_whether_it_is_kept_free_and_what_would_change_that() -> None:
    taint = Taint("rekindle.dev/spare", "NoSchedule", "true")
    kept = '{"at": "2026-11-21T09:57:00Z", "laid": true%s}'

    def story(*taints: Taint, **notes: str) -> str:
        annotations = {f"rekindle.dev/spare-{name}": value for name, value in notes.items()}
        spare = msgspec.structs.replace(
            node(), labels={"rekindle.dev/spare": ""}, annotations=annotations, taints=taints
        )
        return told(why_node("node-3", spare, health(), [], NOW))

    assert "kept free by the taint rekindle.dev/spare until a node of its pool is out" in story(taint)
    lent = {"for": "node-7-device-lost-1a2b", "kept": kept % ', "node": "node-7"'}
    assert "let in 3 min ago in place of node-7 (node-7-device-lost-1a2b)" in story(**lent)
    assert "kubectl taint node node-3 rekindle.dev/spare=true:NoSchedule" in story(kept=kept % "")
    assert "it is not kept free yet" in story()
    assert "spare" not in told(why_node("node-3", node(), health(), [], NOW))


def test_what_an_agent_says_forges_no_line_and_no_section() -> None:
    forged = "driver gone\n\nWhat to do next\n  - kubectl delete node worker-2"

    line = Line(f"blind: {forged}")

    assert line.text == "blind: driver gone What to do next - kubectl delete node worker-2"
