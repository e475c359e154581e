"""A real torchrun job under random faults ends with the weights of an undisturbed run, bit for bit.

The test needs the environment that `python -m chaos.rigs.torch_training.environment` makes (2.5 GB to fetch),
and takes some two minutes. `make soak` injects fifty faults.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from chaos.rigs.torch_soak.report import line, summary
from chaos.rigs.torch_soak.rounds import Outcome
from chaos.rigs.torch_soak.soak import WAIT_MAX_S, soak
from chaos.rigs.torch_soak.strikes import Kind, drawn
from chaos.rigs.torch_soak.witness import Instance
from chaos.rigs.torch_training.environment import TORCH

SEED, FAULTS, RANKS = 9, 5, 2
START = datetime(2026, 8, 1, tzinfo=UTC)


def test_a_seed_draws_the_same_faults_each_time_and_all_kinds_of_them() -> None:
    def first(count: int, seed: int) -> list[object]:
        return [drawn(seed, n, ranks=RANKS, wait_max_s=WAIT_MAX_S) for n in range(1, count + 1)]

    assert first(50, 1) == first(50, 1)
    assert first(50, 1) != first(50, 2)
    # The few faults that CI can afford include each kind.
    assert {drawn(SEED, n, ranks=RANKS, wait_max_s=WAIT_MAX_S).kind for n in range(1, FAULTS + 1)} == set(
        Kind
    )


def test_the_witness_counts_the_steps_made_during_a_save_and_knows_of_an_unfinished_one() -> None:
    rank = Instance(rank=1, uid="u", log=Path("0.log"))
    for second, text in enumerate(
        [
            "resumed from step 40 (/checkpoints/step-40)",
            "step 59/880 loss=0.5",
            "step 60/880 loss=0.4",
            "checkpoint step-60 begun",
            *(f"step {step}/880 loss=0.3" for step in range(61, 81)),
            "checkpoint step-60 finished after step 69",
            "checkpoint step-80 begun",
        ]
    ):
        rank.line(START + timedelta(seconds=second), text)

    assert (rank.first_step, rank.first_step_at) == (59, START + timedelta(seconds=1))
    assert (rank.last_step, rank.saving) == (80, 80)
    assert (rank.save_steps, rank.save_s) == ([9], [21.0])


@pytest.mark.processes
@pytest.mark.on_request("REKINDLE_TORCH")
async def test_a_real_torchrun_job_survives_random_faults_bit_for_bit(tmp_path: Path) -> None:
    outcomes: list[Outcome] = []

    def tell(told: str | Outcome) -> None:
        if isinstance(told, Outcome):
            outcomes.append(told)
            told = line(len(outcomes), told)
        print(told)

    same = await soak(tmp_path, TORCH.interpreter(), faults=FAULTS, seed=SEED, ranks=RANKS, tell=tell)

    print("\n".join(summary(outcomes)))
    assert [outcome.wrong for outcome in outcomes] == [()] * FAULTS
    assert same, "the final weights are not those of an undisturbed run"
