"""Steps and stalls of a container, from its log, and what the agent publishes about them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors.folds.core import AgentCore, Dirty
from detectors.rules.facts import PodRef
from detectors.service.settings import AgentSettings
from detectors.wire.contract import NodeHealthSpec
from detectors.wire.training import TAIL_BYTES_MAX, Edge, PodSettings
from tests.detectors.folds.folding import REF, START, at, pod, step_in


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("epoch 3 step 12/100 loss 0.31", 12),
        ("Step: 12, loss=0.31", 12),
        ("step=12", 12),
        (" iteration       12/  500000 | consumed samples: 3072", 12),
        ("global_step 12", 12),
        ('{"step": 12, "loss": 0.3}', 12),
        ("Iter: [12/100]", 12),
        ("[step 12]", 12),
        ("finished step 12.", 12),
        ("step time: 12.5 ms", None),
        ("step 12.5 of 13", None),
        ("step 12ms", None),
        ("max_step=1000", None),
        ("timestep 12", None),
        ("total steps: 1000", None),
        ("step 99999999999999999999", None),
        ("misstep 3, step 4", None),
        ("step: 12% done", None),
        ("", None),
    ],
)
def test_the_usual_wordings_of_a_step_are_read(line: str, step: int | None) -> None:
    assert step_in(line) == step


@pytest.mark.parametrize(
    ("template", "line", "step"),
    [
        ("step {step}/", "step 12/100", 12),
        ("step {step}/", "step 12 of 100", None),
        ("<{step}>", "a <b> <7>", 7),
        ("{step}", "7", 7),
        (".*{step}", "xx 7", None),
    ],
)
def test_a_template_is_literal(template: str, line: str, step: int | None) -> None:
    assert step_in(line, template) == step


# tqdm 4.70 writes these bars, on a terminal and without one.
@pytest.mark.parametrize(
    ("bar", "step"),
    [
        ("Steps:  12%|#2        | 12/100 [00:10<01:15,  1.17it/s, loss=0.0312, lr=1e-5]", 12),
        ("Training steps:  12%|█▏        | 12/100 [06:00<44:00, 30.00s/it]", 12),
        ("Steps:   0%|          | 0/100 [00:00<?, ?it/s]", None),
        ("Steps: 12it [00:01,  9.80it/s]", None),
        (" 12%|#2        | 12/100 [00:01<00:09,  9.80it/s]", None),
        ("Iteration:  12%|#2        | 12/100 [00:01<00:09,  9.80it/s]", 12),
        ("Evaluation steps:  12%|#2        | 12/100 [00:01<00:09,  9.80it/s]", None),
        ("Loading checkpoint shards:  50%|#####     | 1/2 [00:05<00:05,  5.31s/it]", None),
        ("model.safetensors:  12%|#2        | 52.4M/440M [00:01<00:09, 42.3MB/s]", None),
        ("Map:  12%|#2        | 3000/25000 [00:00<00:05, 4012.11 examples/s]", None),
        ("Epoch 0:  12%|#2        | 12/100 [00:01<00:09,  9.80it/s, train_loss_step=0.3]", 12),
        ("Epoch:  12%|#2        | 1/8 [10:00<70:00, 600.0s/it]", None),
        ("Validation DataLoader 0:  12%|#2        | 12/100 [00:01<00:09,  9.80it/s]", None),
    ],
)
def test_a_bar_is_read_where_its_name_says_that_it_counts_training_steps(bar: str, step: int | None) -> None:
    assert step_in(bar) == step


def test_a_job_that_names_the_form_of_its_bar_has_its_steps_read_and_no_other_bars() -> None:
    template = "| {step}/1000 ["

    assert step_in(" 41%|####1     | 411/1000 [00:02<00:03, 195.22it/s]", template) == 411
    assert step_in("  0%|          | 0/1000 [00:00<?, ?it/s]", template) is None, (
        "drawn before it resumes at 410"
    )
    assert step_in("  8%|8         | 1/12 [00:00<00:02,  4.11it/s]", template) is None


def test_of_a_line_that_is_written_over_the_first_and_the_last_step_count() -> None:
    fold = pod()
    bars = "\r".join(f"Steps: {n}%|#| {n}/100 [00:{n:02}<01:00,  1.00it/s]" for n in range(1, 31))

    assert fold.line("\rSteps:   0%|          | 0/100 [00:00<?, ?it/s]\r" + bars + "\r", at(30))
    published = fold.published()
    assert published is not None
    assert (published.first_step, published.last_step) == (1, 30)


def test_an_error_behind_a_bar_is_the_first_error_and_the_tail_shows_what_a_terminal_would() -> None:
    fold = pod()
    bar = "".join(f"\rSteps: {n}%|#| {n}/100 [00:01<00:09,  9.80it/s]" for n in range(100))
    fold.line(bar + "Traceback (most recent call last):", at(1))
    fold.line("ValueError: bad shape", at(1))
    fold.end(at(2))

    published = fold.published()
    assert published is not None
    assert published.first_error is not None
    assert published.first_error.code == "log-traceback"
    last = "Steps: 99%|#| 99/100 [00:01<00:09,  9.80it/s]"
    assert published.tail == f"{last}Traceback (most recent call last):\nValueError: bad shape"


@given(st.text(max_size=300), st.text(max_size=20).map(lambda text: text + "{step}"))
def test_no_line_and_no_template_raises(line: str, template: str) -> None:
    step_in(line)
    step_in(line, template)


def test_a_line_of_nothing_but_heads_is_read_in_linear_time() -> None:
    assert step_in("step " * 200_000) is None


def test_the_first_rise_is_an_edge_and_the_next_steps_are_none() -> None:
    fold = pod()

    edges = [fold.line(f"step {n}/100", at(n)) for n in range(41, 50)]

    assert edges == [False, True] + [False] * 7
    published = fold.published()
    assert published is not None
    assert (published.edge, published.first_step, published.last_step) == (Edge.STEPPING, 41, 49)
    assert published.median_step_s == 1.0


def test_a_container_without_steps_is_not_published() -> None:
    fold = pod()
    fold.line("hello", START)

    assert fold.published() is None


def test_a_stall_needs_ten_minutes_and_ten_median_steps() -> None:
    quick, slow = pod(), pod()
    for n in range(3):
        quick.line(f"step {n}", at(n))
        slow.line(f"step {n}", at(90 * n))

    assert (quick.tick(at(2 + 599)), quick.tick(at(2 + 600))) == (False, True)
    assert (slow.tick(at(180 + 899)), slow.tick(at(180 + 900))) == (False, True)


def test_between_two_lines_that_come_every_hundred_steps_nothing_is_stalled() -> None:
    fold = pod()
    fold.line("loading the model", at(-1300))
    fold.line("iteration 100", START)
    assert not fold.tick(at(1000)), "the first line came after 1300 s: the second one may, too"
    for n in range(1, 6):
        fold.line(f"iteration {100 * n + 100}", at(1000 * n))

    assert not fold.tick(at(5000 + 1589))
    assert fold.tick(at(5000 + 1591)), "a pause of 1000 s holds 99 more steps of 10 s; then ten minutes"


def test_steps_that_a_buffer_held_back_are_told_together_and_their_silence_is_no_stall() -> None:
    """Python's standard output without PYTHONUNBUFFERED is written 8 KiB at a time."""
    fold = pod()
    fold.line("a warning, which no buffer holds back", START)
    for flush in range(1, 5):
        for n in range(80):
            fold.line(f"step {80 * flush + n + 7}", at(800 * flush + n * 1e-4))
        assert not fold.tick(at(800 * flush + 799))

    published = fold.published()
    assert published is not None
    assert published.median_step_s == 10.0
    assert fold.tick(at(3200 + 1391))


def test_a_long_start_says_nothing_of_the_pauses_between_steps_that_have_come() -> None:
    fold = pod()
    fold.line("loading the model", at(-5000))
    for n in range(4):
        fold.line(f"step {n}", at(n))

    assert fold.tick(at(3 + 600))


def test_a_jobs_own_limit_wins_and_zero_is_never() -> None:
    own, off = pod(), pod()
    own.job_settings(PodSettings(uid="uid-0", hang_timeout_s=30))
    off.job_settings(PodSettings(uid="uid-0", hang_timeout_s=0))
    for fold in (own, off):
        fold.line("step 0", at(-1))
        fold.line("step 1", START)

    assert own.tick(at(30))
    assert not off.tick(at(1e6))


def test_steps_after_a_stall_are_the_edge_resumed() -> None:
    fold = pod()
    fold.line("step 0", at(-1))
    fold.line("step 1", START)
    fold.tick(at(600))

    assert not fold.line("step 1", at(601)), "the same step again is no progress"
    assert fold.line("step 2", at(602))
    published = fold.published()
    assert published is not None
    assert published.edge is Edge.RESUMED


def test_the_end_carries_the_tail_within_its_bound() -> None:
    fold = pod()
    for n in range(1000):
        fold.line(f"step {n} äöü", at(n))

    assert fold.end(at(1001))
    published = fold.published()
    assert published is not None
    assert published.tail.endswith("step 999 äöü")
    assert TAIL_BYTES_MAX - 40 < len(published.tail.encode()) <= TAIL_BYTES_MAX
    assert not fold.end(at(1002)), "it ends once"


def test_a_pod_that_failed_before_its_first_step_is_published_at_its_end() -> None:
    fold = pod()
    fold.line("RuntimeError: CUDA out of memory", START)

    assert fold.end(at(1))


def test_a_ranks_own_fault_is_told_when_it_is_printed_and_each_kind_once() -> None:
    """The API reports the rank's end a second or two before the agent does, and the controller decides
    then."""
    fold = pod()
    fold.holds_devices()

    assert fold.line("RuntimeError: PytorchStreamReader failed reading zip archive", START)
    assert not fold.line("RuntimeError: PytorchStreamReader failed reading zip archive", at(1))

    told = fold.published()
    assert told is not None
    assert (told.edge, told.first_error and told.first_error.code) == (Edge.STARTED, "log-checkpoint")
    assert fold.end(at(2))


@pytest.mark.parametrize(
    "line", ["Traceback (most recent call last):", "store->get timed out after 300000ms"]
)
def test_what_may_be_no_fault_of_its_own_waits_for_the_end(line: str) -> None:
    fold = pod()
    fold.holds_devices()

    assert not fold.line(line, START)
    assert not fold.line("ValueError: no such column", at(1))


def test_a_fault_in_a_container_that_is_no_ranks_is_not_told_while_it_runs() -> None:
    fold = pod()

    assert not fold.line("RuntimeError: CUDA out of memory", START)
    assert fold.published() is None


def test_a_changed_template_starts_the_container_over() -> None:
    core = AgentCore(AgentSettings(), boot_id="b")
    core.log_line(REF, "step 5 of warm-up", START)
    core.log_line(REF, "it 1!", START)

    again = core.spec(_spec("it {step}!"))
    core.log_line(REF, "step 5 of warm-up", START)
    core.log_line(REF, "it 1!", START)
    core.log_line(REF, "it 2!", at(1))

    assert again == [REF]
    assert core.status(START).pods[0].first_step == 1
    assert core.spec(_spec("it {step}!")) == [], "the same wishes again change nothing"


def test_a_changed_template_takes_nothing_from_an_instance_that_has_ended() -> None:
    """The log of that instance is closed, and is not read again."""
    core = AgentCore(AgentSettings(), boot_id="b")
    core.log_line(REF, "step 5", START)
    core.pod_ended(REF, at(1))

    again = core.spec(_spec("it {step}!"))

    assert again == []
    (published,) = core.status(at(2)).pods
    assert (published.last_step, published.tail) == (5, "step 5")


def test_a_restarted_agent_goes_on_where_it_was() -> None:
    before = AgentCore(AgentSettings(), boot_id="b")
    for n in range(4):
        before.log_line(REF, f"step {n}", at(n))
    before.tick(at(700))

    after = AgentCore(AgentSettings(), boot_id="b")
    after.restore(before.status(at(700)))
    after.log_line(REF, "step 0", at(0))
    assert after.dirty is Dirty.NOTHING, "lines that were read before say nothing new"
    after.log_line(REF, "step 4", at(710))

    published = after.status(at(711)).pods[0]
    assert (published.edge, published.first_step, published.last_step) == (Edge.RESUMED, 0, 4)


def test_what_a_restarted_agent_does_not_find_in_the_log_was_no_silence() -> None:
    """The log was rotated, or is too long to be read again, so the last known step is hours old."""
    before, after = (AgentCore(AgentSettings(), boot_id="b") for _ in range(2))
    before.log_line(REF, "step 0", at(-1))
    before.log_line(REF, "step 1", START)
    after.restore(before.status(START))
    after.log_line(REF, "saved the metrics", at(7200))

    edges = []
    for seconds in (7200, 7799, 7801):
        after.tick(at(seconds))
        edges += [pod.edge for pod in after.status(at(seconds)).pods]

    assert edges == [Edge.STEPPING, Edge.STEPPING, Edge.STALLED]


def test_a_pod_that_went_away_while_no_agent_ran_has_ended() -> None:
    before = AgentCore(AgentSettings(), boot_id="b")
    before.log_line(REF, "step 1", START)
    after = AgentCore(AgentSettings(), boot_id="b")
    after.restore(before.status(START))

    after.logs_scanned(at(60))

    assert after.dirty is Dirty.EDGE
    assert [pod.edge for pod in after.status(at(60)).pods] == [Edge.ENDED]


def test_the_tail_of_one_that_ended_long_ago_makes_room_and_one_whose_log_is_gone_goes() -> None:
    core = AgentCore(AgentSettings(), boot_id="b")
    other = PodRef("train", "llm-1", "uid-1", "main", 0)
    for ref in (REF, other):
        core.log_line(ref, "step 1", START)
        core.pod_ended(ref, START)
    core.pod_removed(other)
    core.tick(at(900))
    assert [pod.tail for pod in core.status(at(900)).pods] == ["step 1", "step 1"]
    core.mark_written()

    core.tick(at(901))

    assert core.dirty is Dirty.COARSE
    assert [(pod.uid, pod.tail) for pod in core.status(at(901)).pods] == [("uid-0", "")]


def _spec(template: str) -> NodeHealthSpec:
    return NodeHealthSpec(pods=[PodSettings(uid="uid-0", step_template=template)])
