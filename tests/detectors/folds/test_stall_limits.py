"""Tests how long silence may last before it is a stall: within a line that does not end, and when a
checkpoint is due."""

from __future__ import annotations

import pytest

from detectors.rules.signatures import Signatures
from detectors.wire.training import PodSettings
from tests.detectors.folds.folding import START, at, pod


def test_silence_between_the_parts_of_an_endless_line_is_no_stall_unless_the_job_has_a_limit() -> None:
    """A runtime delivers 16 KiB at a time, which is 160 bars, or hours of slow steps."""
    without, own, ended = pod(), pod(), pod()
    own.job_settings(PodSettings(uid="uid-0", hang_timeout_s=1200))
    bars = [f"Steps:  12%|#2        | {n}/100 [06:00<44:00, 30.00s/it]" for n in (11, 12)]
    for fold, end in ((without, "\r"), (own, "\r"), (ended, "")):
        fold.line(bars[0], at(-30))
        fold.line(bars[1] + end, START)

    assert not without.tick(at(1e6))
    assert (own.tick(at(1199)), own.tick(at(1200))) == (False, True)
    assert ended.tick(at(600))


def test_once_the_parts_of_an_endless_line_have_a_rhythm_their_absence_is_a_stall() -> None:
    fold = pod()
    for part in range(4):
        steps = range(160 * part + 21, 160 * part + 181)
        bars = "\r".join(f"Steps:  12%|#2        | {n}/9000 [06:00<44:00,  5.00s/it]" for n in steps)
        assert not fold.tick(at(800 * part - 1))
        fold.line(bars + "\r", at(800 * part))

    assert not fold.tick(at(2400 + 600 + 4 * 800 - 1)), "a part may take four times as long to fill"
    assert fold.tick(at(2400 + 600 + 4 * 800))


@pytest.mark.parametrize("ends", ["\r", "[INFO|trainer.py:2949] >> "], ids=["full parts", "lines that end"])
def test_a_short_limit_of_the_job_is_not_meant_for_the_silence_between_the_parts_of_a_line(ends: str) -> None:
    """With transformers' defaults Python's buffer keeps the figures back as well. Then nothing shows a step
    of 2 s before the next evaluation."""
    fold = pod()
    fold.job_settings(PodSettings(uid="uid-0", hang_timeout_s=60))
    fold.line("  Total optimization steps = 100,000", START)
    for part in range(6):
        now_s = 100 * part + 60
        assert not fold.tick(at(now_s - 1))
        for n in range(6):
            figures = {
                "loss": f"3.9{n}",
                "grad_norm": "0.5",
                "learning_rate": "5e-05",
                "epoch": f"{part + n}",
            }
            fold.line(f"{figures}", at(now_s + n * 1e-4))
        steps = range(30 * part + 1, 30 * part + 31)
        bars = "\r".join(f"  0%|          | {n}/100000 [01:03<57:25:04,  2.07s/it]" for n in steps)
        fold.line(bars + ends, at(now_s + 0.001))

    assert (fold.tick(at(560 + 149)), fold.tick(at(560 + 151))) == (False, True)


def test_figures_of_the_training_show_that_it_goes_on_while_a_runtime_holds_its_bar_back() -> None:
    """The Trainer of transformers draws its bar on standard error, in a line that ends only with an
    evaluation or a checkpoint. Its figures come as whole lines of standard output, and name no step."""
    fold = pod()
    fold.job_settings(PodSettings(uid="uid-0", hang_timeout_s=60))
    fold.line("[INFO|trainer.py:1627] 2026-11-23 08:46:36,483 >>   Total optimization steps = 100,000", START)
    bar = "\r".join(f"  0%|          | {n}/100000 [01:03<57:25:04,  2.07s/it]" for n in range(1, 31))
    fold.line(f"{bar}[INFO|trainer.py:2949] >> ", at(60))
    for n in range(1, 9):
        figures = {"loss": f"3.9{n}", "grad_norm": "0.5623", "learning_rate": "5e-05", "epoch": f"{4 + n}"}
        assert not fold.tick(at(60 + 15 * n - 1))
        fold.line(f"{figures}", at(60 + 15 * n))

    assert not fold.tick(at(180 + 59))
    fold.line(f"{figures}", at(180 + 59))
    assert fold.tick(at(180 + 60)), "the same figures again show nothing"


def test_a_restarted_agent_waits_for_the_rhythm_of_the_parts_again() -> None:
    before, after = pod(), pod()
    for part in range(4):
        before.line(f"Steps:  12%|#2        | {part + 11}/9000 [06:00<44:00,  5.00s/it]\r", at(800 * part))
    published = before.published()
    assert published is not None
    after.restore(published, Signatures())
    after.line("Steps:  12%|#2        | 15/9000 [06:00<44:00,  5.00s/it]\r", at(3200))
    after.line("Steps:  12%|#2        | 16/9000 [06:00<44:00,  5.00s/it]\r", at(4000))

    assert not after.tick(at(1e6))


@pytest.mark.parametrize(
    ("lines", "limit_s"),
    [
        ([f"step {n} loss 0.3" for n in range(1, 1001)], 1800),
        ([f"step:{n}/20000 train_loss:6.9 train_time:5000ms" for n in range(1, 11)], 1800),
        ([f"step {n} loss 0.3" for n in range(10)], 1800),
        ([f"step {n} loss 0.3" for n in range(1, 6)], 1800),
        ([f"step {n} loss 0.3" for n in range(401, 421)], 1800),
        ([f"step {n} loss 0.3" for n in range(1, 8)], 600),
        ([f"step {n} loss 0.3" for n in range(1, 14)], 600),
        ([f"step {n} loss 0.3" for n in range(1, 1000)], 1800),
        ([f"step {n} loss 0.3" for n in range(1, 1013)], 600),
        ([f"step {n} loss 0.3" for n in range(5001, 5501)], 1800),
        ([f"iteration {n}/ 9000 | lm loss: 9.1E+00" for n in range(10, 2501, 10)], 1800),
        ([f"iteration {n}/ 9000 | lm loss: 9.1E+00" for n in range(10, 1771, 10)], 600),
        ([f"Epoch: [0][{n}/1251], loss: 0.3" for n in range(0, 1251, 10)], 1800),
        ([f"Epoch: [0][{n}/1251], loss: 0.3" for n in range(0, 1171, 10)], 600),
        ([f"step {n}/733 loss 0.3" for n in range(1, 734)], 1800),
    ],
    ids=[
        "at a round step",
        "after the first ten steps",
        "after the first ten steps from 0",
        "after the first five steps",
        "after the first twenty steps since a resume",
        "after seven steps",
        "after thirteen steps",
        "at the step before",
        "elsewhere",
        "a round number of steps from where it began",
        "where a line tells of ten steps",
        "elsewhere, where a line tells of ten steps",
        "at the end of an epoch",
        "within an epoch",
        "at the end of the run",
    ],
)
def test_where_a_first_checkpoint_or_evaluation_is_likely_due_a_stall_needs_longer(
    lines: list[str], limit_s: float
) -> None:
    """Nothing announces the first checkpoint or evaluation, and nobody has seen yet how long it takes."""
    fold = pod()
    for number, line in enumerate(lines):
        fold.line(line, at(number))

    assert not fold.tick(at(len(lines) - 1 + limit_s - 1))
    assert fold.tick(at(len(lines) - 1 + limit_s + 1))
