"""recover/stories/job.py: why a job is as it is, from every side that a person may ask from."""

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors.contract import Fault
from recover.api import (
    Blame,
    Condition,
    FailedLog,
    GangRef,
    IncidentPhase,
    Outcome,
    Phase,
    PhaseTime,
    Suspect,
    Totals,
)
from recover.consent import OptIn
from recover.model import Mark
from recover.reasons import EXPLANATIONS, Reason
from recover.stories.job import PHASE_WORDS, Job, why_job
from recover.stories.words import FAULTS, ORIGINS, SOURCES, Tone, ago, duration, printable
from tests.recover.why_cases import (
    FAULT_AT,
    LLM,
    NOW,
    VERIFIED,
    action,
    incident,
    job,
    recovery,
    refused,
    told,
)


def test_a_recovered_job_tells_what_was_seen_decided_and_done() -> None:
    done = incident(
        action(Outcome.DONE, "quarantine-node", target="node-3"),
        action(Outcome.DONE),
        phase=IncidentPhase.OPEN,
    )
    back = recovery(checkpoint=VERIFIED, last_step=49, resumed_step=41, lost_steps=9, lost_gpu_s=120.0)

    story = why_job(job(), [back], [done], NOW)

    assert story.verdict.text == "After a GPU was lost, it was recovered 3 min ago: it went on at step 41."
    assert story.verdict.tone is Tone.GOOD
    text = told(story)
    for said in (
        "3 min ago: node-3: GPU 0000:3b:00 fell off the bus (node-3-device-lost-1a2b, open)",
        "09:57:00 the kernel log of node-3: xid-79: NVRM: Xid (PCI:0000:3b:00): 79",
        "node node-3, for device-lost",
        "quarantined node-3 3 min ago",
        "phases: Planned 2.0 s, Stopping 2.0 s, Choosing 2.0 s, Resuming 2.0 s, Verifying 2.0 s, "
        "Succeeded at 09:57:10",
        "kept off node-3",
        "chosen, as the newest complete checkpoint: step 40, /ckpt/step-40",
        "digests of 5 GB are right",
        "repaired: 'step-50' was moved to rekindle-set-aside-r-1",
        "loads that one; rekindle.dev/checkpoint-repair: tracker on the job lets Rekindle rewrite it",
        "the scan took 0.4 s, and 6 GPU-seconds stood free",
        "not step 50 (/ckpt/step-50): no commit marker",
        "its first step after the resume was 41; it had reached step 49",
        "lost 9 steps, 120 GPU-seconds without progress",
        "rekindle why node/node-3",
    ):
        assert said in text, f"missing: {said}\n{text}"


@pytest.mark.parametrize("phase", list(Phase))
def test_every_phase_has_words(phase: Phase) -> None:
    words, _ = PHASE_WORDS[phase]

    assert words in why_job(job(), [recovery(phase)], [], NOW).verdict.text


def test_every_fault_origin_and_source_has_words() -> None:
    assert FAULTS.keys() == set(Fault)
    assert all(word for table in (FAULTS, ORIGINS, SOURCES) for word in table.values())


@pytest.mark.parametrize("reason", list(Reason))
def test_a_refusal_says_what_the_reason_means_and_what_to_do(reason: Reason) -> None:
    story = why_job(job(), [], [incident(refused(reason))], NOW)

    assert f"Rekindle left it alone ({reason})." in story.verdict.text
    text = told(story)
    assert f"did not restart Job team/llm ({reason}, 3 min ago)" in text
    assert EXPLANATIONS[reason].meaning in text
    next_step = EXPLANATIONS[reason].next_step
    assert (next_step in text) == (next_step != "Nothing to do.")


def test_observe_mode_says_what_would_have_been_done() -> None:
    would = action(Outcome.WOULD, reason=Reason.OBSERVE_MODE)

    story = why_job(job(), [], [incident(would)], NOW)

    assert story.verdict.text.startswith("Rekindle would restart it (ObserveMode).")
    assert "would restart Job team/llm (ObserveMode, 3 min ago)" in told(story)


@pytest.mark.parametrize("reason", ["CheckpointUnverified", "ResumedOlder", "ResumedFromScratch", "NoSteps"])
def test_a_condition_of_a_recovery_is_explained(reason: str) -> None:
    condition = Condition(type="Resumed", status="False", reason=reason, last_transition_time=NOW)

    text = told(why_job(job(), [recovery(conditions=[condition])], [], NOW))

    assert f"{reason}: {EXPLANATIONS[Reason(reason)].meaning}" in text


def test_a_reason_of_a_newer_version_is_shown_as_it_is() -> None:
    odd = recovery(Phase.BLOCKED, reason="PhaseOfTheMoon", message="waiting for the moon")

    assert "waiting for the moon" in told(why_job(job(), [odd], [], NOW))


def test_a_job_that_nothing_happened_to_says_so_and_whether_it_would_be_restarted() -> None:
    alone = why_job(job(OptIn.DISABLED), [], [], NOW)

    assert "nothing was done to it" in alone.verdict.text
    assert "rekindle.dev/auto-recovery is not enabled" in alone.verdict.text
    assert "kubectl annotate job -n team llm rekindle.dev/auto-recovery=enabled --overwrite" in [
        command.run for command in alone.commands
    ]
    asking = why_job(job(OptIn.ENABLED), [], [], NOW).verdict.text
    assert "would be restarted after a fault if mode and limits allow it" in asking
    assert "`rekindle doctor team/llm`" in asking


@pytest.mark.parametrize("kind", ["incidents", "recoveries"])
def test_who_may_not_list_what_tells_of_a_job_is_not_told_that_nothing_happened(kind: str) -> None:
    """As who may view one namespace only: Incidents are of the whole cluster."""
    story = why_job(job(OptIn.ENABLED), [], [], NOW, hidden={kind})

    assert story.verdict.text.startswith(
        "Nothing that concerns this job is among what you may read. It would"
    )


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

    assert story.verdict.text.endswith("The job itself is gone.")


def test_an_unknown_culprit_names_its_suspects() -> None:
    unsure = incident(
        blame=Blame.UNKNOWN, suspects=[Suspect(node="node-2", score=0.6, why="the first rank to fall silent")]
    )

    text = told(why_job(job(), [], [unsure], NOW))

    assert "not known: what was seen does not single out a node" in text
    assert "suspect node-2 (60%): the first rank to fall silent" in text


def test_only_the_newest_recoveries_are_told_in_full() -> None:
    many = [recovery(number=n, totals=Totals(recoveries=n, lost_steps=n)) for n in range(1, 7)]

    titles = [section.title for section in why_job(job(), many, [], NOW).sections]

    assert [t.split(":")[0] for t in titles] == [
        "Recovery 6",
        "Recovery 5",
        "Recovery 4",
        "Earlier recoveries",
    ]


def test_a_second_attempt_shows_its_own_phases() -> None:
    phases = [
        PhaseTime(phase=Phase.STOPPING, attempt=1, at=FAULT_AT),
        PhaseTime(phase=Phase.STOPPING, attempt=2, at=NOW - timedelta(seconds=20)),
        PhaseTime(phase=Phase.CHOOSING, attempt=2, at=NOW - timedelta(seconds=5)),
    ]

    story = why_job(job(), [recovery(Phase.CHOOSING, attempt=2, phases=phases)], [], NOW)

    assert "phases of attempt 2: Stopping 15 s, Choosing 5.0 s so far" in told(story)
    assert story.verdict.text.endswith("(since 5.0 s, attempt 2).")


def test_a_log_that_would_steer_the_terminal_is_defused() -> None:
    log = FailedLog(
        pod="llm-0", node="node-3", first_error="OSError: \x1b[2Jfull", tail="step 1\n\x1b[2Jgone\x07"
    )

    text = told(why_job(job(), [recovery(failed_log=log)], [], NOW))

    assert "\x1b" not in text
    assert "\x07" not in text
    assert "the first error in llm-0's log on node-3: OSError: " in text
    assert "step 1" in text


def test_a_log_without_an_error_from_before_the_stop_says_so() -> None:
    log = FailedLog(pod="llm-0", tail="SignalException: Process 1 got signal: 15")

    text = told(why_job(job(), [recovery(failed_log=log)], [], NOW))

    assert "the first error" not in text
    assert "the end of llm-0's log, which tells no error from before the stop:" in text


@given(st.text())
def test_printable_text_has_no_control_codes(text: str) -> None:
    assert all(c.isprintable() or c == "\n" for c in printable(text))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0.0 s"),
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

    assert "Recovery job-llm-2, which was to start it again, is gone" in story.verdict.text
    assert story.verdict.tone is Tone.BAD
