"""A real torchrun job under random faults: it ends with the weights of an undisturbed run, bit for bit.

Needs the environment that `python -m chaos.torch_training.environment` makes (2.5 GB to fetch), and some two
minutes. `make soak` strikes fifty times.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.torch_soak.report import line, summary
from chaos.torch_soak.rounds import Outcome
from chaos.torch_soak.soak import WAIT_MAX_S, soak
from chaos.torch_soak.strikes import Kind, drawn
from chaos.torch_training.environment import TORCH

SEED, FAULTS, RANKS = 9, 5, 2


def test_a_seed_draws_the_same_faults_each_time_and_all_kinds_of_them() -> None:
    def first(count: int, seed: int) -> list[object]:
        return [drawn(seed, n, ranks=RANKS, wait_max_s=WAIT_MAX_S) for n in range(1, count + 1)]

    assert first(50, 1) == first(50, 1)
    assert first(50, 1) != first(50, 2)
    # The few faults that CI can afford are of each kind.
    assert {drawn(SEED, n, ranks=RANKS, wait_max_s=WAIT_MAX_S).kind for n in range(1, FAULTS + 1)} == set(
        Kind
    )


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
