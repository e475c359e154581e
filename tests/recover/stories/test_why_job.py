"""Tests recover/stories/why_job.py: the reasons for the state of a job, from every side that a person may
ask about."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors.text.printing import printable
from detectors.wire.contract import Fault, Origin
from recover.api import (
    Blame,
    CheckpointChoice,
    Condition,
    FailedLog,
    GangRef,
    IncidentPhase,
    Outcome,
    Phase,
    PhaseTime,
    RejectedCheckpoint,
    Suspect,
    Totals,
)
from recover.api.reasons import EXPLANATIONS, Reason
from recover.checkpoints.annotation import REPAIR
from recover.model import Container, Mark, Pod, PodPhase, Waiting
from recover.policy.consent import AUTO_RECOVERY, OptIn
from recover.stories.absence import Absence
from recover.stories.around import Around
from recover.stories.job_state import Job
from recover.stories.recovery_words import PHASE_WORDS, has_stopped
from recover.stories.why_job import why_job
from recover.stories.words import FAULTS, ORIGINS, SOURCES, Line, Tone, ago, duration
from tests.facts import missing
from tests.recover.stories.why_cases import (
    FAULT_AT,
    LLM,
    NOW,
    VERIFIED,
    action,
    incident,
    job,
    lines,
    next_steps,
    recovery,
    refused,
    told,
    tones,
)


def test_a_recovered_job_tells_what_was_seen_decided_and_done() -> None:
    done = incident(
        action(Outcome.DONE, "quarantine-node", target="node-3"),
        action(Outcome.DONE),
        phase=IncidentPhase.OPEN,
    )
    back = recovery(
        checkpoint=VERIFIED,
        avoid_nodes=["node-4"],
        suspects=["node-5"],
        last_step=49,
        resumed_step=41,
        lost_steps=9,
        lost_gpu_s=120.0,
    )

    story = why_job(job(), [back], [done], NOW)

    assert story.verdict.tone is Tone.GOOD
    recovered, _ = PHASE_WORDS[Phase.SUCCEEDED]
    assert not missing(story.verdict.text, FAULTS[Fault.DEVICE_LOST], recovered, "3 min", 41)
    (seen,), (rejected,) = done.status.evidence, VERIFIED.rejected
    for facts in (
        ("3 min", done.status.summary, done.metadata.name, "open"),
        ("09:57:00", ORIGINS[Origin.KERNEL], "node-3", "xid-79", seen.text),
        ("node-3", "device-lost"),
        (*(f"{phase} 2.0 s" for phase in ("Planned", "Stopping", "Choosing", "Resuming", "Verifying")),),
        ("Succeeded", "09:57:10"),
        ("node-4",),
        ("node-5",),
        (40, "/ckpt/step-40"),
        (VERIFIED.digests,),
        (VERIFIED.repaired[0],),
        (VERIFIED.tracker, REPAIR, "tracker"),
        ("0.4 s", 6),
        (50, "/ckpt/step-50", rejected.reason),
        (41, 49),
        (9, 120),
    ):
        assert lines(story, *facts), f"missing: {facts}\n{told(story)}"
    assert Tone.GOOD in tones(story, "node-3", "3 min")
    assert "rekindle why node/node-3" in [command.run for command in story.commands]


@pytest.mark.parametrize("phase", list(Phase))
def test_every_phase_has_words(phase: Phase) -> None:
    words, _ = PHASE_WORDS[phase]

    said = why_job(job(), [recovery(phase)], [], NOW).verdict.text
    assert all(part in said for part in words.split(",")), "the time is in the middle"


def test_every_fault_origin_and_source_has_words() -> None:
    assert FAULTS.keys() == set(Fault)
    assert all(word for table in (FAULTS, ORIGINS, SOURCES) for word in table.values())


@pytest.mark.parametrize("reason", list(Reason))
def test_a_refusal_says_what_the_reason_means_and_what_to_do(reason: Reason) -> None:
    story = why_job(job(), [], [incident(refused(reason))], NOW)

    assert story.verdict.tone is Tone.WAITING
    assert not missing(story.verdict.text, reason, EXPLANATIONS[reason].meaning)
    assert tones(story, reason, str(LLM), "3 min") == [Tone.BAD]
    assert told(story).count(EXPLANATIONS[reason].meaning) == 1, "the verdict has it already"


def test_a_refused_restart_asks_for_nothing_once_a_later_recovery_has_succeeded() -> None:
    old = incident(refused(Reason.STALE_EVIDENCE))

    recovered = next_steps(why_job(job(), [recovery()], [old], NOW))
    failed = next_steps(why_job(job(), [recovery(Phase.FAILED)], [old], NOW))

    assert "by hand" not in recovered
    assert "by hand" in failed


def test_observe_mode_says_what_would_have_been_done() -> None:
    would = action(Outcome.WOULD, reason=Reason.OBSERVE_MODE)

    story = why_job(job(), [], [incident(would)], NOW)

    assert tones(story, "ObserveMode", str(LLM), "3 min") == [Tone.WAITING]
    assert not missing(story.verdict.text, "ObserveMode")
    left_alone = why_job(job(), [], [incident(refused(Reason.OBSERVE_MODE))], NOW)
    assert story.verdict.text != left_alone.verdict.text


@pytest.mark.parametrize("reason", ["CheckpointUnverified", "ResumedOlder", "ResumedFromScratch", "NoSteps"])
def test_a_condition_of_a_recovery_is_explained(reason: str) -> None:
    condition = Condition(type="Resumed", status="False", reason=reason, last_transition_time=NOW)

    story = why_job(job(), [recovery(conditions=[condition])], [], NOW)

    assert tones(story, reason, EXPLANATIONS[Reason(reason)].meaning) == [Tone.WAITING]


def test_a_reason_of_a_newer_version_is_shown_as_it_is() -> None:
    odd = recovery(Phase.BLOCKED, reason="PhaseOfTheMoon", message="waiting for the moon")

    story = why_job(job(), [odd], [], NOW)

    assert lines(story, odd.status.message)
    assert not missing(story.verdict.text, "PhaseOfTheMoon", odd.status.message)


def test_a_job_that_nothing_happened_to_says_so_and_whether_it_would_be_restarted() -> None:
    alone = why_job(job(OptIn.DISABLED), [], [], NOW)

    assert alone.sections == ()
    assert not missing(alone.verdict.text, AUTO_RECOVERY)
    assert "kubectl annotate job -n team llm rekindle.dev/auto-recovery=enabled --overwrite" in [
        command.run for command in alone.commands
    ]
    asking = why_job(job(OptIn.ENABLED), [], [], NOW).verdict.text
    assert AUTO_RECOVERY not in asking
    assert "`rekindle doctor -n team job/llm`" in asking


@pytest.mark.parametrize("kind", ["incidents", "recoveries"])
def test_who_may_not_list_what_tells_of_a_job_is_not_told_that_nothing_happened(kind: str) -> None:
    """For example, the reader may view one namespace only, and Incidents belong to the whole cluster."""
    story = why_job(job(OptIn.ENABLED), [], [], NOW, Around(hidden={kind}))

    assert "`rekindle doctor -n team job/llm`" in story.verdict.text
    assert story.verdict != why_job(job(OptIn.ENABLED), [], [], NOW).verdict


def test_the_story_of_one_job_leaves_out_the_acts_on_another() -> None:
    other = action(Outcome.REFUSED, reason=Reason.NOT_OPTED_IN, target="Job team/other")

    text = told(why_job(job(), [recovery()], [incident(other, action(Outcome.DONE))], NOW))

    assert "team/other" not in text


def test_a_job_submitted_again_under_its_name_keeps_its_story() -> None:
    again = msgspec.structs.replace(LLM, uid="another")

    assert "job-llm-1" in told(why_job(job(ref=again), [recovery()], [incident()], NOW))


def test_another_jobs_recoveries_and_incidents_are_not_told() -> None:
    stranger = GangRef(api_version="batch/v1", kind="Job", namespace="team", name="other", uid="u2")

    story = why_job(job(ref=stranger), [recovery()], [incident()], NOW)

    assert story.sections == ()


def test_a_job_that_is_gone_is_told_from_its_recovery() -> None:
    story = why_job(Job(ref=LLM), [recovery()], [], NOW)

    assert story.verdict.text.endswith(Absence.DELETED.of(LLM))


def test_an_unknown_culprit_names_its_suspects() -> None:
    unsure = incident(
        blame=Blame.UNKNOWN, suspects=[Suspect(node="node-2", score=0.6, why="the first rank to fall silent")]
    )

    story = why_job(job(), [], [unsure], NOW)

    (suspect,) = lines(story, "node-2", "60%", unsure.status.suspects[0].why)
    (blame,) = (section for section in story.sections if suspect in section.lines)
    head, detail = blame.lines
    assert missing(head.text, "node-3") == ["node-3"], "it is blamed for nothing"
    assert detail is suspect
    assert suspect.tone is Tone.DETAIL


def test_only_the_newest_recoveries_are_told_in_full() -> None:
    many = [recovery(number=n, totals=Totals(recoveries=n, lost_steps=n)) for n in range(1, 7)]

    _, *in_full, earlier = why_job(job(), many, [], NOW).sections

    for number, section in zip((6, 5, 4), in_full, strict=True):
        assert not missing(section.title, f"job-llm-{number}")
    for number, line in zip((3, 2, 1), earlier.lines, strict=True):
        assert not missing(line.text, f"job-llm-{number}")


def pod(name: str, **changes: Any) -> Pod:
    made = Pod(namespace="team", name=name, uid=name, version="1", owner_uid=LLM.uid)
    return msgspec.structs.replace(made, **changes)


NO_PLACE = "0/8 nodes are available: 8 Insufficient nvidia.com/gpu."
WAITING = Around(
    pods=(
        pod("llm-0", phase=PodPhase.RUNNING, node="node-1"),
        pod("llm-1", phase=PodPhase.RUNNING, node="node-2"),
        pod("llm-2", unschedulable=NO_PLACE),
        pod("llm-3", unschedulable=NO_PLACE),
        pod("other-0", owner_uid="another", unschedulable="not ours"),
    )
)


def test_a_gang_that_no_node_fits_is_not_told_as_being_started() -> None:
    story = why_job(job(), [recovery(Phase.RESUMING)], [], NOW, WAITING)

    assert story.verdict.tone is Tone.BAD
    assert not missing(
        story.verdict.text, FAULTS[Fault.DEVICE_LOST], 2, 4, "llm-2", "llm-3", NO_PLACE.rstrip(".")
    )
    starting, _ = PHASE_WORDS[Phase.RESUMING]
    assert starting not in story.verdict.text
    (waits,) = lines(story, "llm-2", "llm-3", NO_PLACE)
    (section,) = (one for one in story.sections if waits in one.lines)
    head, _ = section.lines
    assert not missing(head.text, 2, 4)
    assert "other-0" not in told(story)


@pytest.mark.parametrize("phase", [Phase.RESUMING, Phase.BLOCKED])
def test_a_gang_that_is_held_until_it_fits_tells_the_recoverys_words(phase: Phase) -> None:
    waits = recovery(phase, reason=Reason.NO_CAPACITY, message="3 of 4 ranks find a node")

    story = why_job(job(), [waits], [], NOW)

    words, _ = PHASE_WORDS[phase]
    assert words not in story.verdict.text
    assert story.verdict.tone is Tone.BAD
    assert story.verdict.text.endswith(f"{waits.status.message}.")


def test_ranks_that_start_are_counted_and_what_keeps_one_is_told() -> None:
    waiting = Waiting("ImagePullBackOff", "no such image")
    held_up = Container(name="main", running=False, waiting=waiting)
    starting = Container(name="main", running=False, waiting=Waiting("ContainerCreating"))
    around = Around(
        pods=(
            pod("llm-0", phase=PodPhase.RUNNING, node="node-1"),
            pod("llm-1", node="node-2", containers=(starting,)),
            pod("llm-2", node="node-4", containers=(held_up,)),
            pod("llm-3", gated=True, unschedulable="a gate"),
        )
    )

    story = why_job(job(), [recovery(Phase.RESUMING)], [], NOW, around)

    assert not missing(story.verdict.text, 1, 4)
    assert tones(story, "llm-2", "ImagePullBackOff", "node-4", waiting.message) == [Tone.BAD]
    assert tones(story, "llm-3") == [Tone.BAD]
    assert lines(story, "llm-1") == []
    assert lines(story, "a gate") == []


@pytest.mark.parametrize(
    ("changes", "tone", "facts"),
    [
        (
            {"resumed_step": 1, "last_step": 121, "reason": Reason.RESUMED_FROM_SCRATCH},
            Tone.BAD,
            (1, 121, "ResumedFromScratch"),
        ),
        (
            {"resumed_step": 21, "last_step": 121, "reason": Reason.RESUMED_OLDER, "checkpoint": VERIFIED},
            Tone.BAD,
            (21, 121, "ResumedOlder"),
        ),
        ({"resumed_step": 1, "last_step": 121}, Tone.BAD, (1, 121)),
        ({"resumed_step": 41, "last_step": 49, "checkpoint": VERIFIED}, Tone.GOOD, (41,)),
        ({"resumed_step": 122, "last_step": 121}, Tone.GOOD, (122,)),
        ({}, Tone.GOOD, ()),
    ],
)
def test_a_job_that_began_again_lower_is_not_told_as_recovered(
    changes: dict[str, Any], tone: Tone, facts: tuple[str | int, ...]
) -> None:
    verdict = why_job(job(), [recovery(**changes)], [], NOW).verdict

    assert verdict.tone is tone
    assert not missing(verdict.text, FAULTS[Fault.DEVICE_LOST], "3 min", *facts)
    recovered, _ = PHASE_WORDS[Phase.SUCCEEDED]
    assert (recovered in verdict.text) == (tone is Tone.GOOD)


def test_a_blocked_recovery_tells_its_reason_and_its_words_in_the_headline() -> None:
    blocked = recovery(Phase.BLOCKED, reason=Reason.STOP_REFUSED, message="the stop of it is refused: no")

    verdict = why_job(job(), [blocked], [], NOW).verdict.text

    words, _ = PHASE_WORDS[Phase.BLOCKED]
    assert not missing(verdict, words, "StopRefused", blocked.status.message)


def test_a_second_attempt_shows_its_own_phases() -> None:
    phases = [
        PhaseTime(phase=Phase.STOPPING, attempt=1, at=FAULT_AT),
        PhaseTime(phase=Phase.STOPPING, attempt=2, at=NOW - timedelta(seconds=20)),
        PhaseTime(phase=Phase.CHOOSING, attempt=2, at=NOW - timedelta(seconds=5)),
    ]

    story = why_job(job(), [recovery(Phase.CHOOSING, attempt=2, phases=phases)], [], NOW)

    (phases_of_it,) = lines(story, "Stopping 15 s", "Choosing 5.0 s")
    assert not missing(phases_of_it.text, 2)
    assert not missing(story.verdict.text, "5.0 s", 2)


def test_a_log_that_would_steer_the_terminal_is_defused() -> None:
    log = FailedLog(
        pod="llm-0", node="node-3", first_error="OSError: \x1b[2Jfull", tail="step 1\n\x1b[2Jgone\x07"
    )

    story = why_job(job(), [recovery(failed_log=log)], [], NOW)

    assert "\x1b" not in told(story)
    assert "\x07" not in told(story)
    assert lines(story, "llm-0", "node-3", "OSError")
    assert tones(story, "step 1") == [Tone.DETAIL]


def test_a_path_with_newlines_forges_no_line_of_a_story() -> None:
    """A Recovery of an older version may have such a path, because the controller stored the scan pod's
    answer unchanged."""
    forged = "/ckpt/step-40\n\nWho is to blame\n  - node worker-2\x1b[2J"
    rejected = RejectedCheckpoint(step=50, path=forged, reason="cut")
    choice = CheckpointChoice(attempt=1, verified=True, step=40, path=forged, rejected=[rejected])

    story = why_job(job(), [recovery(checkpoint=choice)], [], NOW)

    assert lines(story, 40, "/ckpt/step-40", "worker-2")
    assert [line for line in lines(story) if len(line.text.splitlines()) > 1] == []
    assert "\x1b" not in told(story)


def test_a_log_without_an_error_from_before_the_stop_says_so() -> None:
    def of_the_log(first_error: str) -> list[Line]:
        log = FailedLog(pod="llm-0", first_error=first_error, tail="SignalException: signal 15")
        return lines(why_job(job(), [recovery(failed_log=log)], [], NOW), "llm-0")

    (end_without_one,) = of_the_log("")
    _, end_after_one = of_the_log("OSError: full")
    assert end_without_one != end_after_one


@given(st.text())
def test_printable_text_has_no_control_codes(text: str) -> None:
    assert all(c.isprintable() or c == "\n" for c in printable(text))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "less than 0.1 s"),
        (9.94, "9.9 s"),
        (12, "12 s"),
        (119, "119 s"),
        (180, "3 min"),
        (7200, "2 h"),
        (200000, "2 days"),
    ],
)
def test_a_duration_has_two_digits_of_meaning(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_moment_ahead_of_our_clock_is_just_now() -> None:
    assert ago(NOW + timedelta(seconds=5), NOW) == "just now"
    assert ago(FAULT_AT, NOW) == "3 min ago"


def test_a_job_that_stays_stopped_since_its_recovery_was_deleted_says_so() -> None:
    stopped = job()
    assert stopped.gang is not None
    mark = Mark(recovery="job-llm-2", attempt=1, did="stopped")
    left = msgspec.structs.replace(stopped.gang, suspended=True, mark=mark)

    story = why_job(msgspec.structs.replace(stopped, gang=left), [recovery()], [], NOW)

    assert story.verdict.tone is Tone.BAD
    assert not missing(story.verdict.text, "job-llm-2")
    first, *_ = next_steps(story).splitlines()
    start = """kubectl patch job -n team llm --type merge -p '{"spec":{"suspend":false}}'"""
    assert f"`{start}`" in first


@pytest.mark.parametrize(
    ("error", "said"), [("deleted", "drain"), ("evicted", "evicted"), ("", "node-3 failed")]
)
def test_a_pod_that_was_taken_away_is_not_told_as_a_node_that_failed(error: str, said: str) -> None:
    taken = recovery()
    (cause,) = taken.status.causes
    cause = msgspec.structs.replace(cause, fault=Fault.HOST, error=error)
    taken = msgspec.structs.replace(
        taken,
        spec=msgspec.structs.replace(taken.spec, fault=Fault.HOST),
        status=msgspec.structs.replace(taken.status, causes=[cause]),
    )

    headline = why_job(job(), [taken], [], NOW).verdict.text

    assert headline.startswith("Job team/llm: after ")
    assert said in headline
    assert ("node-3 failed" in headline) == (not error)


def test_wide_tells_every_recovery_in_full() -> None:
    every = [recovery(number=number) for number in range(1, 6)]

    def sections(*, wide: bool) -> list[str]:
        story = why_job(job(), every, [], NOW, wide=wide)
        return [section.title for section in story.sections if section.title.startswith("Recovery ")]

    assert len(sections(wide=False)) == 3
    assert len(sections(wide=True)) == 5


def test_a_recovery_has_stopped_its_job_from_the_stop_on_also_while_it_is_blocked() -> None:
    blocked_before = recovery(Phase.BLOCKED, phases=[PhaseTime(phase=Phase.PLANNED, attempt=1, at=NOW)])

    assert [has_stopped(one) for one in (recovery(Phase.PLANNED), blocked_before)] == [False, False]
    assert all(has_stopped(recovery(p)) for p in (Phase.STOPPING, Phase.VERIFYING, Phase.BLOCKED))
