"""Tests recover/stories/installation.py: the first lines of `rekindle status`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from recover.model.modes import Mode
from recover.stories.installation import Installed, ProblemCode
from recover.stories.overview import Jobs, Overview, StatusFacts, overview
from recover.stories.words import Tone
from tests.facts import missing
from tests.recover.stories.why_cases import LLM, NOW, health, node, recovery

WELL = Installed(
    namespace="rekindle-system",
    mode=Mode.RECOVER,
    mode_since=NOW - timedelta(hours=5),
    leader="rekindle-controller-1",
    renewed_at=NOW - timedelta(seconds=3),
)


def shown(**changes: Any) -> Overview:
    nodes = {"node-3": node(), "node-4": node("node-4")}
    installed = msgspec.structs.replace(WELL, **changes)
    return overview(StatusFacts(nodes=nodes, health={"node-3": health()}, installed=installed), NOW)


def codes(found: Overview) -> list[ProblemCode]:
    assert found.answer.installation is not None
    return [problem.code for problem in found.answer.installation.problems]


def test_status_begins_with_the_mode_the_leader_and_the_agents() -> None:
    found = shown()

    *problems, calm = found.head
    assert not missing(calm.text, Mode.RECOVER, "2026-11-21 05:00", "rekindle-controller-1", 1, 2)
    (silent,) = problems
    assert silent.tone is Tone.BAD
    assert not missing(silent.text, "node-4")
    assert codes(found) == [ProblemCode.SILENT_AGENTS]


@pytest.mark.parametrize(
    "changes",
    [
        {"leader": ""},
        {"renewed_at": None},
        {"renewed_at": NOW - timedelta(minutes=3)},
    ],
    ids=["nobody holds the lease", "never renewed", "not renewed for long"],
)
def test_where_nobody_leads_that_is_the_first_line_and_loud(changes: dict[str, Any]) -> None:
    found = shown(**changes)

    first = found.head[0]
    assert first.tone is Tone.BAD
    assert not missing(first.text, "NOBODY LEADS", "kubectl -n rekindle-system")
    assert codes(found)[0] is ProblemCode.NO_LEADER
    assert found.answer.installation is not None
    assert found.answer.installation.leader is None


def test_before_the_first_controller_one_line_says_so_and_none_of_an_earlier_leader() -> None:
    found = shown(leader="", renewed_at=NOW - timedelta(seconds=6), mode=None)

    assert codes(found)[0] is ProblemCode.NEVER_LED
    assert ProblemCode.NO_LEADER not in codes(found)


def test_what_may_not_be_read_is_not_told_as_missing() -> None:
    found = shown(leader="", renewed_at=None, mode=None, hidden=("lease", "mode"))

    assert codes(found)[:2] == [ProblemCode.NOT_READABLE, ProblemCode.NOT_READABLE]
    assert not any("NOBODY LEADS" in line.text for line in found.head)


def test_recoveries_of_jobs_that_are_gone_are_left_out_once_they_have_ended() -> None:
    ended, active = recovery(), recovery(phase=recovery().status.phase.STOPPING, number=2)

    def names(*gone: Any) -> list[str]:
        found = overview(StatusFacts(recoveries=[ended, active], jobs=Jobs(gone=tuple(gone))), NOW)
        return [one.name for one in found.answer.recoveries]

    assert names() == ["job-llm-2", "job-llm-1"]
    assert names(LLM) == ["job-llm-2"], "a job that is being made again is gone for a moment"
