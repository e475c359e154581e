"""The lines that recipes look for: which are found, kept and published, and what a line without any costs."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from detectors.agent.recipe_lines import RecipeLines
from detectors.catalog.signature_rows import packaged_signatures
from detectors.folds.core import AgentCore, Dirty
from detectors.rules.facts import PodRef
from detectors.rules.signatures import read, shown_by, signatures_of
from detectors.service.metrics import Metrics
from detectors.service.settings import AgentSettings
from detectors.wire.contract import NodeHealthSpec
from detectors.wire.training import (
    KNOWN_LINES_MAX,
    LINE_BYTES_MAX,
    Edge,
    KnownLine,
    PodProgress,
    PodSettings,
    Signature,
)
from recover.recipes.load import built_in

START = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
REF = PodRef("train", "llm-0", "uid-0", "main", 0)
BUILT_IN = signatures_of(packaged_signatures())

TOO_OLD = "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0."
ALLOCATOR = "Using Naive Best Fit allocation strategy"
CONFLICT = (
    "ResourceExhaustedError: Cannot allocate {} memory on GPU 0, 12.1GB memory has been allocated and "
    "available memory is only {}."
)
NO_CONFLICT = CONFLICT.format("2.5GB", "512.0MB")


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def agent() -> AgentCore:
    return AgentCore(AgentSettings(), boot_id="b")


def published(core: AgentCore) -> PodProgress:
    (pod,) = core.status(START).pods
    return pod


# --- the catalogue ------------------------------------------------------------------------------------------


def test_the_agent_knows_each_template_of_each_built_in_recipe() -> None:
    rows = {row.name: row for row in packaged_signatures()}

    for name, recipe in built_in().items():
        wanted = recipe.match.logs
        verify = tuple(recipe.verify.log) if recipe.verify is not None else ()
        assert [*dict.fromkeys(match.log for match in rows[name].match)] == wanted
        assert rows[name].verify == verify
    assert BUILT_IN.problems == ()


def test_a_recipe_of_a_built_in_ones_name_replaces_it() -> None:
    own = Signature(name="vllm-bfloat16", match=["quantisation is not supported on {gpu}"])

    sought = signatures_of(packaged_signatures(), [own])

    assert shown_by(read(BUILT_IN, TOO_OLD)) == {"vllm-bfloat16"}
    assert shown_by(read(sought, TOO_OLD)) == frozenset()
    assert shown_by(read(sought, "quantisation is not supported on T4")) == {"vllm-bfloat16"}


def test_a_template_that_cannot_be_used_is_told_and_harms_no_other() -> None:
    sought = signatures_of((), [Signature(name="mine", match=["oom {x}", "out of shared memory"])])

    (problem,) = sought.problems
    assert all(name in problem for name in ("mine", "'oom {x}'", "6"))
    assert shown_by(read(sought, "Out of shared memory!")) == {"mine"}


# --- which lines count --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "available", "shown"),
    [("25.0MB", "3.1GB", True), ("3.1GB", "3.1GB", True), ("2.5GB", "512.0MB", False)],
)
def test_memory_that_is_really_full_is_no_sign_of_an_allocation_conflict(
    wanted: str, available: str, shown: bool
) -> None:
    hits = read(BUILT_IN, CONFLICT.format(wanted, available))

    assert shown_by(hits) == ({"paddle-autogrow-oom"} if shown else set())
    assert hits, "the controller may know better: the device may have memory that Paddle does not see"


def test_the_line_that_shows_that_a_change_helped_is_told_and_not_counted() -> None:
    hits = read(BUILT_IN, ALLOCATOR)

    assert [hit.text for hit in hits] == [ALLOCATOR]
    assert shown_by(hits) == frozenset()


def test_a_line_counts_once_for_each_recipe_that_knows_it() -> None:
    shown = shown_by(read(BUILT_IN, "CUDA_ERROR_UNKNOWN: CUDA error: unknown error"))

    assert {"cuda-driver-too-old", "cuda-majors-apart"} <= shown


def test_a_line_is_found_in_any_piece_of_one_that_is_written_over() -> None:
    bars = "".join(f"\rSteps: {n}%|#| {n}/100 [00:01<00:09,  9.80it/s]" for n in range(100))

    (hit,) = read(BUILT_IN, bars + "\r" + TOO_OLD + bars)

    assert hit.text == TOO_OLD


@given(st.text(max_size=300))
def test_no_line_raises(text: str) -> None:
    read(BUILT_IN, text)


@pytest.mark.parametrize("line", ["a\r" * 8192, "paddle::" * 2048, "paddle::\r" * 1800, "x" * 1_000_000])
def test_a_line_made_to_be_slow_is_not(line: str) -> None:
    begun = time.process_time()

    for _ in range(10):
        read(BUILT_IN, line)

    assert time.process_time() - begun < 2.0


# --- what is published --------------------------------------------------------------------------------------


def test_a_known_line_before_the_first_step_is_an_edge_and_no_progress() -> None:
    core = agent()
    core.log_line(REF, ALLOCATOR, at(1))

    assert core.dirty is Dirty.EDGE
    pod = published(core)
    assert (pod.edge, pod.at, pod.first_step) == (Edge.STARTED, at(1), None)
    (line,) = pod.known_lines
    assert line == KnownLine(signature="paddle-autogrow-crash", at=at(1), text=ALLOCATOR)
    assert not line.issue, "it shows that a change helped"

    core.log_line(REF, "step 1", at(2))
    core.log_line(REF, "step 2", at(3))

    assert (published(core).edge, published(core).known_lines) == (Edge.STEPPING, pod.known_lines)


def test_only_the_first_line_for_each_template_is_an_edge() -> None:
    core = agent()
    core.log_line(REF, "step 1", at(0))
    core.log_line(REF, TOO_OLD, at(1))
    core.mark_written()

    core.log_line(REF, TOO_OLD + " Again.", at(2))
    assert core.dirty is Dirty.NOTHING

    core.log_line(REF, ALLOCATOR, at(3))
    assert core.dirty is Dirty.EDGE
    assert [line.text for line in published(core).known_lines] == [TOO_OLD, ALLOCATOR]


def test_a_line_that_shows_the_issue_is_kept_beside_one_that_does_not() -> None:
    core = agent()
    issue = CONFLICT.format("25.0MB", "3.1GB")
    for line in (NO_CONFLICT, NO_CONFLICT + " again", issue, issue + " again"):
        core.log_line(REF, line, START)

    assert [line.text for line in published(core).known_lines] == [NO_CONFLICT, issue]


def test_a_container_that_ends_after_a_known_line_is_published_with_it() -> None:
    core = agent()
    core.log_line(REF, TOO_OLD, at(1))
    core.pod_ended(REF, at(2))

    assert (published(core).edge, len(published(core).known_lines)) == (Edge.ENDED, 1)


def test_the_lines_of_one_container_are_bounded() -> None:
    core = agent()
    own = [Signature(name="chatty", match=[f"event number {n:03} of many" for n in range(20)])]
    core.spec(NodeHealthSpec(signatures=own))
    for n in range(20):
        core.log_line(REF, f"event number {n:03} of many", at(n))

    assert len(published(core).known_lines) == KNOWN_LINES_MAX


@pytest.mark.parametrize("before", [0, 300, 505, 3000])
def test_a_long_line_is_cut_so_that_its_match_stays(before: int) -> None:
    core = agent()
    core.log_line(REF, "ä" * before + " " + TOO_OLD + " ü" * 2000, START)

    (line,) = published(core).known_lines
    assert len(line.text.encode()) <= LINE_BYTES_MAX
    assert shown_by(read(BUILT_IN, line.text)) == {"vllm-bfloat16"}


def test_services_that_print_a_known_line_never_displace_a_training() -> None:
    core = agent()
    core.log_line(REF, "step 1", at(0))
    core.log_line(REF, "step 2", at(1))
    for n in range(80):
        core.log_line(
            PodRef("web", f"api-{n}", f"web-{n}", "main", 0), "INFO: Application startup complete.", at(n)
        )

    assert "llm-0" in [pod.name for pod in core.status(at(100)).pods]


def test_recipes_of_people_apply_to_the_lines_that_follow() -> None:
    core = agent()
    own = Signature(name="small-shm", match=["unable to write to file </torch_{file}>"])
    line = "RuntimeError: unable to write to file </torch_171_3>: No space left"
    core.log_line(REF, line, at(0))

    assert core.spec(NodeHealthSpec(signatures=[own])) == [], "no log is read again for it"
    assert core.log_line(REF, line, at(1)) == {"small-shm"}

    assert [known.at for known in published(core).known_lines] == [at(1)]


def test_a_restarted_agent_neither_loses_nor_repeats_known_lines() -> None:
    before = agent()
    before.log_line(REF, NO_CONFLICT, at(1))
    after = agent()
    after.restore(before.status(at(2)))

    after.log_line(REF, NO_CONFLICT, at(1))
    assert after.dirty is Dirty.NOTHING
    after.log_line(REF, ALLOCATOR, at(3))
    after.log_line(REF, "step 1", at(3))
    after.log_line(REF, "step 2", at(4))

    pod = published(after)
    assert [line.text for line in pod.known_lines] == [NO_CONFLICT, ALLOCATOR]
    assert (pod.edge, pod.first_step) == (Edge.STEPPING, 1)


def test_a_new_step_template_forgets_steps_and_no_known_line() -> None:
    core = agent()
    core.log_line(REF, ALLOCATOR, at(1))
    core.log_line(REF, "step 5 of warm-up", at(2))

    core.spec(NodeHealthSpec(pods=[PodSettings(uid="uid-0", step_template="it {step}!")]))

    assert (published(core).edge, published(core).first_step) == (Edge.STARTED, None)
    assert [line.text for line in published(core).known_lines] == [ALLOCATOR]


def test_a_template_that_cannot_be_used_is_told_once_and_a_recipe_that_went_takes_its_series_along() -> None:
    core, metrics = agent(), Metrics()
    lines = RecipeLines(core, metrics)
    spec = NodeHealthSpec(signatures=[Signature(name="mine", match=["oom {x}", "out of shared memory"])])

    with capture_logs() as told:
        for each in (NodeHealthSpec(), spec, spec, msgspec.structs.replace(spec, request="again")):
            core.spec(each)
            lines.changed()

    (line,) = told
    assert all(name in line["problem"] for name in ("mine", "'oom {x}'"))
    assert b'rekindle_log_signature_total{signature="mine"} 0.0' in metrics.text()

    core.spec(NodeHealthSpec())
    lines.changed()

    assert b'signature="mine"' not in metrics.text()
    assert b'rekindle_log_signature_total{signature="paddle-autogrow-oom"} 0.0' in metrics.text()


def test_free_memory_is_told_with_the_end_alone_as_it_was_read_before() -> None:
    core = agent()
    core.log_line(REF, "step 1", START)
    core.mark_written()

    core.device_memory(3 * 2**30)
    assert core.dirty is Dirty.NOTHING
    assert published(core).free_device_bytes is None

    core.pod_ended(REF, at(1))
    core.device_memory(80 * 2**30)
    assert published(core).free_device_bytes == 3 * 2**30

    after = agent()
    after.restore(core.status(at(2)))
    after.log_line(REF, "step 1", START)
    assert published(after).free_device_bytes == 3 * 2**30
