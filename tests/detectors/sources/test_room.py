"""Tests which log is given up if there are too many, and how the agent's core reports it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from detectors.folds.core import AgentCore, Dirty
from detectors.folds.holders import Given, HeldDevices
from detectors.rules.facts import PodRef
from detectors.service.settings import AgentSettings
from detectors.sources.logs_followed import gives_way, told
from detectors.wire.contract import DevicePod, NodeHealthSpec
from detectors.wire.training import Edge, PodSettings

NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
RANK, NEW, OLD, LATE, LOUD = (PodRef("ml", name, name) for name in ("rank", "new", "old", "late", "loud"))


@pytest.mark.parametrize(
    ("ref", "followed", "first", "left"),
    [
        (NEW, [OLD, LATE], set(), NEW),
        (NEW, [OLD, LATE], {"rank"}, NEW),
        (RANK, [OLD, LATE], {"rank"}, LATE),
        (RANK, [OLD, LOUD], {"rank"}, OLD),
        (RANK, [LOUD], {"rank"}, LOUD),
        (RANK, [OLD], {"rank", "old"}, RANK),
    ],
    ids=["a stranger", "among strangers", "the latest", "a silent one", "even one that steps", "no one"],
)
def test_only_a_pod_that_comes_first_takes_a_place(
    ref: PodRef, followed: list[PodRef], first: set[str], left: PodRef
) -> None:
    assert gives_way(ref, followed, frozenset(first), lambda other: other != LOUD) == left


def test_what_is_left_out_is_told_without_a_number_that_changes() -> None:
    assert told([], frozenset(), 256) == ""
    assert told([NEW], frozenset(), 256) == told([NEW, OLD], frozenset(), 256)
    with_devices = told([NEW, RANK], frozenset({"rank"}), 256)
    assert with_devices == told([RANK], frozenset({"rank"}), 256)
    assert with_devices != told([NEW], frozenset({"rank"}), 256)


def test_pods_with_devices_and_pods_that_the_controller_names_come_first() -> None:
    core = AgentCore(AgentSettings(), boot_id="b")
    holder = DevicePod(uid="holder", namespace="ml", name="llm-0")
    core.pods_listed([HeldDevices(holder, Given("ml", "llm-0", {"nvidia.com/gpu": ["GPU-1"]}))], frozenset())
    core.spec(NodeHealthSpec(pods=[PodSettings(uid="named")]))

    assert core.priority_pods == {"holder", "named"}


@pytest.mark.parametrize("listed", ["before", "after"])
def test_the_last_lines_of_a_rank_that_ends_without_a_known_word_are_kept(listed: str) -> None:
    core = AgentCore(AgentSettings(), boot_id="b")
    holder = DevicePod(uid="rank", namespace="ml", name="llm-0")
    given = Given("ml", "llm-0", {"nvidia.com/gpu": ["GPU-1"]})
    if listed == "before":
        core.pods_listed([HeldDevices(holder, given)], frozenset({"rank"}))
    for ref in (RANK, OLD):
        core.log_line(ref, "giving up", NOW)
        core.pod_ended(ref, NOW)
    if listed == "after":
        core.mark_written()
        core.pods_listed([HeldDevices(holder, given)], frozenset({"rank"}))

    (kept,) = core.status(NOW).pods
    assert (kept.uid, kept.edge, kept.tail, core.dirty) == (RANK.uid, Edge.ENDED, "giving up", Dirty.EDGE)


def test_of_a_pod_that_has_told_anything_the_silent_containers_are_left_out() -> None:
    core = AgentCore(AgentSettings(), boot_id="b")
    holder = DevicePod(uid="rank", namespace="ml", name="llm-0")
    given = Given("ml", "llm-0", {"nvidia.com/gpu": ["GPU-1"]})
    core.pods_listed([HeldDevices(holder, given)], frozenset({"rank"}))
    main, beside = (PodRef("ml", "llm-0", "rank", name) for name in ("main", "proxy"))
    core.log_line(main, "ValueError: bad shape", NOW)
    core.log_line(main, "Segmentation fault", NOW)
    core.log_line(beside, "bye", NOW)
    for ref in (main, beside):
        core.pod_ended(ref, NOW)

    assert [pod.container for pod in core.status(NOW).pods] == ["main"]


def test_of_a_container_that_is_left_nothing_old_is_told_and_it_may_come_back() -> None:
    core = AgentCore(AgentSettings(), boot_id="b")
    core.log_line(RANK, "step 1", NOW)
    core.mark_written()
    assert not core.is_silent(RANK)

    core.pod_left(RANK)

    assert (core.is_silent(RANK), core.dirty, core.status(NOW).pods) == (True, Dirty.EDGE, [])
    core.log_line(RANK, "step 1", NOW)
    core.log_line(RANK, "step 2", NOW + timedelta(seconds=1))
    assert [pod.edge for pod in core.status(NOW).pods] == [Edge.STEPPING]


def test_after_a_restart_a_container_that_is_left_out_has_not_ended() -> None:
    before, after = (AgentCore(AgentSettings(), boot_id="b") for _ in range(2))
    for ref in (RANK, OLD):
        before.log_line(ref, "step 1", NOW)
    after.restore(before.status(NOW))

    after.logs_scanned(NOW, left_out=[RANK])

    assert [(pod.name, pod.edge) for pod in after.status(NOW).pods] == [("old", Edge.ENDED)]
