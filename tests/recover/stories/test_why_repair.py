"""Tests recover/stories/repair_words.py: how `why node` and `status` describe the repair of a node."""

from datetime import timedelta

import msgspec
import pytest

from detectors.wire.step_report import Outcome
from recover.api import Incident, IncidentPhase
from recover.api.reasons import Reason
from recover.api.repair_state import (
    CheckRecord,
    Repair,
    RepairPhase,
    RepairPhaseTime,
    RepairStep,
    StepKind,
    StepOutcome,
)
from recover.stories.overview import StatusFacts, overview
from recover.stories.repair_words import PHASE_WORDS
from recover.stories.why_node import why_node
from recover.stories.words import Tone
from tests.facts import missing
from tests.recover.stories.why_cases import NOW, health, incident, next_steps, node, told, tones

BEGAN = NOW - timedelta(minutes=2)


def under(repair: Repair) -> Incident:
    found = incident()
    return msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, repair=repair))


def repair(phase: RepairPhase, **changes: object) -> Repair:
    return msgspec.structs.replace(
        Repair(phase=phase, phases=[RepairPhaseTime(phase=phase, at=BEGAN)]), **changes
    )


def test_a_repair_that_waits_tells_why_and_what_can_be_done() -> None:
    waits = repair(
        RepairPhase.WAITING, reason=Reason.PODS_OF_OTHERS, message="these pods must end: shop/web-0"
    )

    story = why_node("node-3", node(quarantined=True), health(), [under(waits)], NOW)

    words, tone = PHASE_WORDS[RepairPhase.WAITING]
    assert tones(story, "Waiting", "2 min", words, "PodsOfOthers") == [tone]
    assert tones(story, waits.message) == [Tone.DETAIL]
    assert "`kubectl get pods -A -o wide --field-selector spec.nodeName=node-3`" in next_steps(story)
    assert not missing(next_steps(story), "repair.wait_for_others_s")


def test_steps_and_checks_are_told_with_how_they_ended() -> None:
    def step(kind: StepKind, outcome: StepOutcome | None, message: str = "") -> RepairStep:
        ends = BEGAN + timedelta(seconds=30) if outcome else None
        return RepairStep(
            kind=kind,
            number=1,
            job=f"repair-1-{kind}-1",
            at=BEGAN,
            ended_at=ends,
            outcome=outcome,
            message=message,
        )

    over = repair(
        RepairPhase.HANDED_OVER,
        reason=Reason.VALIDATION_FAILED,
        message="Look at it",
        steps=[
            step(StepKind.RESET, StepOutcome.FAILED, "in use"),
            step(StepKind.REBOOT, StepOutcome.DONE, "boot b2"),
            step(StepKind.VALIDATE, None),
            step(StepKind.REBOOT, None, "not begun: exceeded quota"),
        ],
        checks=[
            CheckRecord(name="devices", outcome=Outcome.FAILED, message="7 of 8"),
            CheckRecord(name="nccl-pair", outcome=Outcome.NOT_RUN),
        ],
    )

    story = why_node("node-3", node(quarantined=True), health(), [under(over)], NOW)

    words, tone = PHASE_WORDS[RepairPhase.HANDED_OVER]
    for expected, facts in (
        (tone, (words, "ValidationFailed")),
        (Tone.BAD, ("repair-1-reset-1", "2 min", "30 s", "in use")),
        (Tone.GOOD, ("repair-1-reboot-1", "2 min", "30 s", "b2")),
        (Tone.WAITING, ("repair-1-validate-1", "2 min")),
        (Tone.WAITING, ("repair-1-reboot-1", "2 min", "exceeded quota")),
        (Tone.BAD, ("devices", "7 of 8")),
        (Tone.WAITING, ("nccl-pair",)),
    ):
        assert tones(story, *facts) == [expected], f"{facts}\n{told(story)}"


@pytest.mark.parametrize("reason", [Reason.NODE_SILENT, Reason.PODS_OF_OTHERS])
def test_nobody_is_told_to_wait_for_a_repair_that_was_handed_over(reason: Reason) -> None:
    message = "Restart node-3. It stays in quarantine: kubectl uncordon node-3"
    over = repair(RepairPhase.HANDED_OVER, reason=reason, message=message)

    story = why_node("node-3", node(quarantined=True), health(), [under(over)], NOW)

    assert next_steps(story) == f"{message}."


def test_the_instructions_of_a_repair_are_over_with_its_incident() -> None:
    """A person has repaired the node and ended its quarantine."""
    over = under(
        repair(RepairPhase.HANDED_OVER, reason=Reason.VALIDATION_FAILED, message="Replace the device")
    )
    status = msgspec.structs.replace(over.status, phase=IncidentPhase.CLOSED, closed_at=NOW)
    closed = msgspec.structs.replace(over, status=status)

    story = why_node("node-3", node(), health(), [closed], NOW)

    assert "Replace the device" not in next_steps(story)


def test_status_has_a_row_for_each_repair_that_is_not_over() -> None:
    handed = repair(RepairPhase.HANDED_OVER, reason=Reason.NEEDS_PERSON, message="Replace the device")
    returned = repair(RepairPhase.RETURNED, message="well again")

    shown = overview(
        StatusFacts(
            nodes={"node-3": node(quarantined=True)}, health={"node-3": health()}, incidents=[under(handed)]
        ),
        NOW,
    )
    (row,) = (row for table in shown.tables for row in table.rows if "NeedsPerson" in row)
    assert row[:2] == ("node-3", "HandedOver")
    assert not missing(row[2], "2 min")
    assert row[3:] == ("NeedsPerson", handed.message)
    calm = overview(
        StatusFacts(nodes={"node-3": node()}, health={"node-3": health()}, incidents=[under(returned)]), NOW
    )
    assert "Returned" not in [cell for table in calm.tables for row in table.rows for cell in row]
