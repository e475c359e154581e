"""Tests recover/stories/hold_words.py: `why` and `status` show the holds of people, and how a hold ends."""

from datetime import timedelta

import msgspec
import pytest

from recover.model import NamespaceView, Terminal
from recover.policy.consent import HOLD, HOLD_REASON, HOLD_UNTIL, OptIn
from recover.stories.around import Around
from recover.stories.job_state import Job
from recover.stories.overview import Jobs, StatusFacts, overview
from recover.stories.why_job import job_answer, why_job
from recover.stories.why_node import node_answer, why_node
from recover.stories.words import Tone
from tests.facts import missing
from tests.recover.stories.why_cases import NOW, health, job, lines, next_steps, node, recovery, told

NOTES = {HOLD: "true", HOLD_REASON: "new cables"}


def a_held_job() -> Job:
    plain = job()
    assert plain.gang is not None
    return msgspec.structs.replace(plain, gang=msgspec.structs.replace(plain.gang, annotations=NOTES))


@pytest.mark.parametrize("recoveries", [[], [recovery()]], ids=["untouched", "recovered"])
def test_why_a_job_shows_its_hold_and_how_the_hold_ends(recoveries: list[object]) -> None:
    story = why_job(a_held_job(), recoveries, [], NOW)  # type: ignore[arg-type]

    assert lines(story, "Job team/llm", "new cables", "rekindle release -n team job/llm")
    assert "rekindle release -n team job/llm" in next_steps(story)
    (hold,) = job_answer(a_held_job(), [], [], NOW).holds
    assert (hold.object, hold.until, hold.reason) == ("Job team/llm", None, "new cables")


def test_why_a_job_shows_the_hold_on_its_namespace() -> None:
    until = NOW + timedelta(hours=2)
    space = NamespaceView(name="team", annotations={HOLD_UNTIL: until.isoformat(), HOLD_REASON: "upgrade"})

    story = why_job(job(), [], [], NOW, Around(namespaces={"team": space}))

    assert lines(
        story, "namespace/team", "upgrade", "2026-11-21 12:00 UTC", "kubectl annotate namespace team"
    )


def test_why_a_node_shows_its_hold() -> None:
    there = node(annotations=NOTES)

    assert lines(why_node("node-3", there, health(), [], NOW), "node-3", "new cables", "rekindle release")
    assert [one.object for one in node_answer("node-3", there, health(), [], NOW).holds] == ["node/node-3"]


def test_a_hold_that_has_ended_is_not_shown() -> None:
    over = node(annotations={HOLD: "true", HOLD_UNTIL: NOW.isoformat()})

    assert node_answer("node-3", over, health(), [], NOW).holds == []


def test_status_lists_the_holds_of_nodes_namespaces_and_jobs_of_recoveries() -> None:
    gang = a_held_job().gang
    assert gang is not None
    shown = overview(
        StatusFacts(
            nodes={"node-3": node(annotations=NOTES)},
            health={"node-3": health()},
            recoveries=[recovery()],
            jobs=Jobs(gangs=(gang,)),
            namespaces=[NamespaceView(name="team", annotations=NOTES)],
        ),
        NOW,
    )

    assert [one.object for one in shown.answer.holds] == ["node/node-3", "namespace/team", "Job team/llm"]
    (table,) = [table for table in shown.tables if "END THE HOLD" in table.columns]
    assert [row[2] for row in table.rows] == ["new cables"] * 3


def test_status_lists_the_hold_of_a_job_that_has_no_recovery() -> None:
    gang = a_held_job().gang
    assert gang is not None
    done = msgspec.structs.replace(
        gang, ref=msgspec.structs.replace(gang.ref, name="done"), terminal=Terminal(succeeded=True)
    )

    alone = overview(StatusFacts(jobs=Jobs(listed=(gang, done))), NOW)
    with_recovery = overview(
        StatusFacts(recoveries=[recovery()], jobs=Jobs(gangs=(gang,), listed=(gang,))), NOW
    )

    assert [one.object for one in alone.answer.holds] == ["Job team/llm"]
    assert [one.object for one in with_recovery.answer.holds] == ["Job team/llm"], "once"


def test_who_may_not_list_the_jobs_of_a_framework_still_gets_a_calm_verdict() -> None:
    calm = overview(StatusFacts(hidden={"pytorchjobs"}), NOW)
    unknown = overview(StatusFacts(hidden={"incidents"}), NOW)

    assert (calm.verdict.tone, unknown.verdict.tone) == (Tone.GOOD, Tone.WAITING)


def test_a_job_that_completed_after_its_recovery_is_not_said_to_train() -> None:
    plain = job(OptIn.DISABLED)
    assert plain.gang is not None
    done = msgspec.structs.replace(
        plain, gang=msgspec.structs.replace(plain.gang, terminal=Terminal(succeeded=True))
    )
    back = recovery(message="trains again")

    story = why_job(done, [back], [], NOW)

    assert not missing(story.verdict.text, "has completed")
    assert "auto-recovery" not in told(story), "nothing is to be enabled for a job that has completed"
    assert job_answer(done, [back], [], NOW).recoveries[0].job_completed
    assert done.gang is not None
    shown = overview(StatusFacts(recoveries=[back], jobs=Jobs(gangs=(done.gang,))), NOW)
    assert [one.job_completed for one in shown.answer.recoveries] == [True]
    assert "trains again" not in str(shown.tables)
    assert [one.job_completed for one in overview(StatusFacts(recoveries=[back]), NOW).answer.recoveries] == [
        None
    ]
