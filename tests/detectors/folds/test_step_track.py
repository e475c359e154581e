"""Tests which number of a log is the training's step: several lines decide, and a single line never does."""

from __future__ import annotations

import pytest

from detectors.folds.pods import PodFold
from detectors.wire.training import Edge, PodProgress
from tests.detectors.folds.folding import START, at, pod

DAY_S = 86_400.0
DEEPSPEED = (
    "[2025-01-09 10:30:39,921] [INFO] [logging.py:128:log_dist] [Rank 0] step={}, skipped=0, lr=[5e-05]"
)
HF_BAR = "\r  {percent}%|#         | {step}/{total} [00:10<01:15,  1.17it/s]"


def played(*lines: str, every_s: float = 10.0) -> PodFold:
    fold = pod()
    for number, line in enumerate(lines):
        fold.line(line, at(every_s * number))
    return fold


def steps_of(fold: PodFold) -> tuple[int | None, int | None]:
    """Returns the first and the last step, or None for both if no number is known to be a step."""
    published = fold.published()
    if published is None or published.first_step is None:
        return None, None
    return published.first_step, published.last_step


def told(fold: PodFold) -> PodProgress:
    published = fold.published()
    assert published is not None
    return published


def bar(step: int, total: int) -> str:
    return HF_BAR.format(percent=100 * step // total, step=step, total=total)


@pytest.mark.parametrize(
    "line",
    [
        DEEPSPEED.format(0),
        "step 5/100 loss 0.3",
        "    step=[8, 11])",
        "[Step 2/5] Downloading",
        "warmup step: 2000",
        "wandb: WARNING Tried to log to step 10 that is less than the current step 12.",
        "torch._dynamo.symbolic_convert: [INFO] Step 1: torchdynamo start tracing forward",
        "  step: 2000",
        "Starting training from iteration 0",
    ],
)
def test_a_line_that_comes_once_begins_no_limit_and_is_no_step(line: str) -> None:
    fold = played("loading the model", line, "evaluating")

    assert steps_of(fold) == (None, None)
    assert not fold.tick(at(DAY_S))


def test_the_line_of_an_initialisation_is_not_the_step_after_a_resume() -> None:
    fold = played(
        "step: 0 loss scale: 1.0", "loaded the checkpoint", "step: 41 loss: 2.0", "step: 42 loss: 2.0"
    )

    assert steps_of(fold) == (41, 42)


def test_a_training_that_begins_at_0_and_prints_each_tenth_step_began_at_0() -> None:
    fold = played(*(f"iter {step}: loss 4.8, time 100.00ms" for step in (0, 10, 20, 30)))

    assert steps_of(fold) == (0, 30)


def test_what_is_set_up_in_numbered_steps_is_no_training() -> None:
    fold = played(
        *(
            f"[Step {n}/5] {what}"
            for n, what in enumerate(("Downloading", "Unpacking", "Installing", "Done"), 1)
        ),
        *(f"Sampling step {n}/50" for n in range(1, 51)),
        *(f"  {n}%|#  | {n}/100 [00:10<01:15,  1.17it/s]" for n in range(1, 101)),
    )

    assert fold.published() is None


def test_a_wording_that_no_row_knows_is_believed_once_it_rises_in_the_same_line_often_enough() -> None:
    lines = [f"[llm-resumed] uploaded 3 files, step {step}" for step in range(12, 20)]

    assert steps_of(played(*lines[:3])) == (None, None)
    assert steps_of(played(*lines)) == (12, 19)


# --- progress bars of Hugging Face --------------------------------------------------------------------------


def test_the_bar_without_a_name_is_the_trainings_where_its_total_was_announced() -> None:
    announced = played("  Total optimization steps = 1,856", bar(10, 1856), bar(12, 23), bar(11, 1856))
    unknown = played(bar(10, 1856), bar(12, 23), bar(11, 1856))

    assert steps_of(announced) == (10, 11)
    assert steps_of(unknown) == (None, None)


def test_the_bar_without_a_name_is_the_trainings_where_its_figures_come_between_its_counts() -> None:
    """Without the logging level info nothing announces the total."""
    figures = "{'loss': 2.4, 'learning_rate': 5e-06, 'epoch': 0.05}"
    lines: list[str] = []
    for step in range(10, 60, 10):
        lines += [bar(step, 100), figures, bar(step // 10, 8), "{'eval_loss': 2.0, 'epoch': 0.05}"]

    fold = played(*lines)

    assert told(fold).last_step == 50
    assert steps_of(fold)[0] == 10


def test_the_inner_bar_of_an_evaluation_is_not_the_trainings_where_figures_come_late() -> None:
    """transformers 5.23 prints these lines in a pod that logs only warnings: the program keeps its figures
    back until a bar begins, and the runtime keeps the training's bar back until its line ends at the next
    evaluation."""
    figures = "{'loss': '3.9', 'grad_norm': '0.9', 'learning_rate': '4e-05', 'epoch': '0.62'}"
    fold = pod()
    for number in range(1, 6):
        begins = 3600.0 * number
        for line in (figures, figures, bar(20 * number, 1000)):
            fold.line(line, at(begins))
        for batch in (2, 4, 6, 7 + number % 3):
            fold.line(f"{bar(batch, 10)}\x1b[A", at(begins + batch))
        assert told(fold).last_step == 20 * number if number > 2 else fold.published() is None
        assert not fold.tick(at(begins + 3590)), f"after evaluation {number}"

    assert steps_of(fold) == (20, 100)


def test_a_bar_that_begins_again_after_figures_is_not_the_trainings() -> None:
    """The bar is no inner bar if the training draws none. The last count differs a bit between
    evaluations."""
    figures = "{'loss': '3.9', 'grad_norm': '0.9', 'learning_rate': '4e-05', 'epoch': '0.62'}"
    lines: list[str] = []
    for number in range(1, 6):
        lines += [figures, figures, *(bar(batch, 100) for batch in (20, 50, 90 + number))]

    assert steps_of(played(*lines)) == (None, None)


def test_the_bar_of_a_resumed_lightning_run_counts_within_the_epoch() -> None:
    """The bar begins at 1 after a checkpoint of step 60. Until the next epoch nothing else shows the step."""
    endless = "\rTraining: |          | {}/? [00:02<00:00,  8.18it/s, train_loss=0.0376]\r"
    ended = "\rTrain:   8%|8         | {}/60 [03:52<43:00, 46.9s/it]\r"

    assert told(played(*(endless.format(n) for n in range(1, 21)))).step_of_epoch
    assert not told(played(*(ended.format(n) for n in range(1, 21)))).step_of_epoch


def test_the_bar_of_an_evaluation_neither_moves_the_step_nor_hides_a_hang() -> None:
    training = [bar(step, 100) for step in range(1, 40)]
    fold = played("  Total optimization steps = 100", *training)
    for number in range(1, 8):
        fold.line(bar(number, 8), at(400 + number))

    assert steps_of(fold) == (1, 39)
    assert not fold.tick(at(407 + 599)), "the bar has moved until then"
    fold.line(bar(7, 8), at(500))
    assert fold.tick(at(407 + 601)), "drawn again as it was"


# --- runs that go back, and logs of several ranks -----------------------------------------------------------


def test_the_ranks_of_a_container_print_in_any_order() -> None:
    fold = pod()
    for step in range(1, 30):
        for rank in (0, 3, 1, 2):
            fold.line(f"[rank{rank}]: step: {step - (rank == 2)}  loss: 2.0", at(10 * step + rank))

    assert steps_of(fold) == (1, 29)


def test_an_epoch_that_begins_again_takes_the_step_back_and_is_no_stall() -> None:
    fold = pod()
    lines = [
        f"Epoch: [{epoch}]  [{step:4}/1251]  eta: 1:00:00  lr: 0.1"
        for epoch in (0, 1)
        for step in range(0, 1251, 50)
    ]
    for number, line in enumerate(lines):
        fold.line(line, at(60 * number))
        assert not fold.tick(at(60 * number + 59))

    published = told(fold)
    assert (published.first_step, published.last_step, published.step_of_epoch) == (0, 1250, True)


def test_a_restart_in_place_goes_on_below_the_last_step() -> None:
    lines = [f"step {step}/1000 loss 0.3" for step in (*range(100, 121), *range(101, 105))]

    assert steps_of(played(*lines)) == (100, 104)


def test_one_lower_number_takes_nothing_back() -> None:
    lines = [f"step {step}/1000 loss 0.3" for step in (*range(100, 121), 3, 121, 122)]

    assert steps_of(played(*lines)) == (100, 122)


def test_a_step_that_is_printed_for_each_of_its_parts_is_one_step() -> None:
    fold = pod()
    for part in range(80):
        fold.line(f"step {part // 8}/100 loss 0.3", at(10 * part))

    assert told(fold).median_step_s == pytest.approx(80.0)


def test_a_number_that_leaps_beyond_any_pace_is_another_count() -> None:
    lines = [*(f"step {step} loss 0.3" for step in range(5)), "step 70000000 loss 0.3"]

    assert steps_of(played(*lines)) == (0, 4)


# --- two counts that rise together --------------------------------------------------------------------------


def test_a_framework_s_own_line_leads_before_another_wording() -> None:
    fold = pod()
    for number in range(1, 20):
        fold.line(f"optimizer step {number * 4} loss 0.3", at(10 * number))
        fold.line(
            f" iteration {number:8}/  500000 | consumed samples: 3072 | lm loss: 9.1", at(10 * number + 1)
        )

    assert steps_of(fold) == (1, 19)


def test_where_the_count_that_was_believed_falls_silent_the_other_one_is_the_step() -> None:
    fold = pod()
    for number in range(1, 4):
        fold.line(f" iteration {number:8}/       3 | warming up", at(number))
    for number in range(40, 80):
        fold.line(f"step {number} loss 0.3", at(60 * (number - 39)))
        assert not fold.tick(at(60 * (number - 39) + 59)), "a count beside the leading one shows life"

    assert steps_of(fold) == (40, 79)


# --- what the agent publishes before a second line ----------------------------------------------------------


def test_a_job_that_tells_of_its_steps_seldom_is_published_with_what_its_one_line_said() -> None:
    fold = played("step 100 loss 0.3")

    assert (fold.waits_for_second(at(59)), fold.waits_for_second(at(60)), fold.waits_for_second(at(61))) == (
        False,
        True,
        False,
    )
    published = told(fold)
    assert (published.edge, published.first_step, published.last_step) == (Edge.STARTED, None, 100)
    assert published.last_step_at == START


def test_the_first_step_came_when_it_was_printed_and_not_when_the_second_line_proved_it() -> None:
    published = told(played("step 100 loss 0.3", "step 200 loss 0.3", every_s=1000.0))

    assert (published.first_step_at, published.last_step_at) == (START, at(1000))


# --- pauses -------------------------------------------------------------------------------------------------


def test_a_checkpoint_of_twenty_minutes_is_no_stall_and_a_hang_in_it_is_found() -> None:
    fold = played(*(f"step {step} loss 0.3" for step in range(100)))
    fold.line("Saving model checkpoint to out/checkpoint-99", at(1000))

    assert not fold.tick(at(1000 + 1200))
    assert fold.tick(at(1000 + 1800))


def test_a_program_that_fails_to_save_again_and_again_shows_no_life_by_that() -> None:
    fold = played(*(f"step {step} loss 0.3" for step in range(100)))
    edges = []
    for number in range(240):
        fold.line("saving checkpoint to /ckpt", at(1000 + 30 * number))
        edges.append(fold.tick(at(1000 + 30 * number + 1)))

    assert edges.count(True) == 1


def test_a_pause_that_the_job_has_made_before_is_no_stall() -> None:
    fold = pod()
    seconds = 0.0
    for step in range(414):
        fold.line(f"step {step} loss 0.3", at(seconds))
        seconds += 580.0 if step == 100 else 1.0
    quiet = seconds

    assert not fold.tick(at(quiet + 860))
    assert fold.tick(at(quiet + 870))
