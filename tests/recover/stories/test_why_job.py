"""recover/stories/why_job.py: why a job is as it is, from every side that a person may ask from."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors.text.printing import printable
from detectors.wire.contract import Fault
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
from recover.model import Container, Mark, Pod, PodPhase, Waiting
from recover.policy.consent import OptIn
from recover.stories.around import Around
from recover.stories.job_state import Job
from recover.stories.recovery_words import PHASE_WORDS
from recover.stories.why_job import why_job
from recover.stories.words import FAULTS, ORIGINS, SOURCES, Tone, ago, duration
from tests.recover.stories.why_cases import (
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
    back = recovery(
        checkpoint=VERIFIED,
        suspects=["node-5"],
        last_step=49,
        resumed_step=41,
        lost_steps=9,
        lost_gpu_s=120.0,
    )

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
        "excluded nodes: node-3",
        "suspected nodes, used only if no other node has room: node-5",
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
    assert "would restart it after a fault if mode and limits allow it" in asking
    assert "`rekindle doctor -n team job/llm`" in asking


@pytest.mark.parametrize("kind", ["incidents", "recoveries"])
def test_who_may_not_list_what_tells_of_a_job_is_not_told_that_nothing_happened(kind: str) -> None:
    """As who may view one namespace only: Incidents are of the whole cluster."""
    story = why_job(job(OptIn.ENABLED), [], [], NOW, Around(hidden={kind}))

    assert story.verdict.text.startswith("You may read nothing that concerns this job. Rekindle would")


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

    assert story.verdict.text.startswith("After a GPU was lost, it waits for nodes with room (since ")
    assert story.verdict.text.endswith(
        "2 ranks of 4 (llm-2, llm-3): no node fits: 0/8 nodes are available: 8 Insufficient nvidia.com/gpu."
    )
    assert story.verdict.tone is Tone.BAD
    assert f"2 of 4 ranks run\nllm-2, llm-3: no node fits: {NO_PLACE}" in told(story)
    assert "not ours" not in told(story)


@pytest.mark.parametrize("phase", [Phase.RESUMING, Phase.BLOCKED])
def test_a_gang_that_is_held_until_it_fits_tells_the_recoverys_words(phase: Phase) -> None:
    message = (
        "Job team/llm is not started yet: 3 of 4 ranks find a node. It starts by itself as soon as it fits"
    )
    waits = recovery(phase, reason=Reason.NO_CAPACITY, message=message)

    story = why_job(job(), [waits], [], NOW)

    assert "it waits for nodes with room" in story.verdict.text
    assert story.verdict.text.endswith(f"{message}.")
    assert "it is being started again" not in story.verdict.text


def test_ranks_that_start_are_counted_and_what_keeps_one_is_told() -> None:
    held_up = Container(name="main", running=False, waiting=Waiting("ImagePullBackOff", "no such image"))
    starting = Container(name="main", running=False, waiting=Waiting("ContainerCreating"))
    around = Around(
        pods=(
            pod("llm-0", phase=PodPhase.RUNNING, node="node-1"),
            pod("llm-1", node="node-2", containers=(starting,)),
            pod("llm-2", node="node-4", containers=(held_up,)),
            pod("llm-3", gated=True, unschedulable="it has a gate"),
        )
    )

    story = why_job(job(), [recovery(Phase.RESUMING)], [], NOW, around)

    assert story.verdict.text.endswith("1 of 4 ranks run.")
    text = told(story)
    assert "llm-2: ImagePullBackOff on node-4: no such image" in text
    assert "llm-3: a scheduling gate holds it" in text
    assert "\nllm-1" not in text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"resumed_step": 1, "last_step": 121, "reason": Reason.RESUMED_FROM_SCRATCH},
            "it runs again, but had reached step 121 and began again from step 1 (ResumedFromScratch), 3 min "
            "ago.",
        ),
        (
            {"resumed_step": 21, "last_step": 121, "reason": Reason.RESUMED_OLDER, "checkpoint": VERIFIED},
            "it runs again, but had reached step 121 and began again from step 21 (ResumedOlder), 3 min ago.",
        ),
        (
            {"resumed_step": 1, "last_step": 121},
            "it runs again, but had reached step 121 and began again from step 1, 3 min ago.",
        ),
        (
            {"resumed_step": 41, "last_step": 49, "checkpoint": VERIFIED},
            "it was recovered 3 min ago: it went on at step 41.",
        ),
        ({"resumed_step": 122, "last_step": 121}, "it was recovered 3 min ago: it went on at step 122."),
        ({}, "it was recovered 3 min ago."),
    ],
)
def test_a_job_that_began_again_lower_is_not_told_as_recovered(changes: dict[str, Any], words: str) -> None:
    story = why_job(job(), [recovery(**changes)], [], NOW)

    assert story.verdict.text == f"After a GPU was lost, {words}"
    assert (story.verdict.tone is Tone.GOOD) == ("was recovered" in words)


def test_a_blocked_recovery_tells_its_reason_and_its_words_in_the_headline() -> None:
    blocked = recovery(Phase.BLOCKED, reason=Reason.STOP_REFUSED, message="the stop of it is refused: no")

    verdict = why_job(job(), [blocked], [], NOW).verdict.text

    assert "its recovery is blocked (StopRefused) (since " in verdict
    assert verdict.endswith(": the stop of it is refused: no.")


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


def test_a_path_with_newlines_forges_no_line_of_a_story() -> None:
    """A Recovery of an older version may hold one: the controller kept what a scan pod said of it."""
    forged = "/ckpt/step-40\n\nWho is to blame\n  - node worker-2\x1b[2J"
    rejected = RejectedCheckpoint(step=50, path=forged, reason="cut")
    choice = CheckpointChoice(attempt=1, verified=True, step=40, path=forged, rejected=[rejected])

    text = told(why_job(job(), [recovery(checkpoint=choice)], [], NOW))

    assert "\nWho is to blame" not in text
    assert "\x1b" not in text
    assert "step 40, /ckpt/step-40 Who is to blame" in text


def test_a_log_without_an_error_from_before_the_stop_says_so() -> None:
    log = FailedLog(pod="llm-0", tail="SignalException: Process 1 got signal: 15")

    text = told(why_job(job(), [recovery(failed_log=log)], [], NOW))

    assert "the first error" not in text
    assert "the end of llm-0's log, which shows no error from before the stop:" in text


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

    assert "Recovery job-llm-2, which would start it again, was deleted" in story.verdict.text
    (first, *_) = next(s for s in story.sections if s.title == "What to do next").lines
    assert first.text.startswith("To start the job: `kubectl patch job ")
    assert story.verdict.tone is Tone.BAD
