"""Plays all rounds of a soak: jobs with several faults each, and the undisturbed weights to compare with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from chaos.rigs.torch_soak.manifest import Training
from chaos.rigs.torch_soak.rounds import Outcome, play_round
from chaos.rigs.torch_soak.strikes import drawn
from chaos.rigs.torch_training.launch import run_undisturbed

__all__ = ["FAULTS_PER_JOB", "soak"]

FAULTS_PER_JOB = 10
WAIT_MAX_S = 1.5
"""Maximum wait before a fault, about the time of two saves: a fault may strike before the resumed gang has
saved."""
STEPS_PER_FAULT = 60
"""Number of steps for each fault. It is more than a gang makes between two faults, so that a job does not end
before its last fault."""


async def soak(
    folder: Path, python: Path, *, faults: int, seed: int, ranks: int, tell: Callable[[str | Outcome], None]
) -> bool:
    """Returns True if all weights were right. Outcome reports what went wrong with a fault. Raises
    RoundError, and RuntimeError if the undisturbed run fails. A round that raised leaves its folder."""
    weights: dict[int, str] = {}
    right = True
    for first in range(1, faults + 1, FAULTS_PER_JOB):
        numbers = range(first, min(first + FAULTS_PER_JOB, faults + 1))
        training = Training(ranks=ranks, steps=STEPS_PER_FAULT * (len(numbers) + 1))
        if training.steps not in weights:
            weights[training.steps] = await run_undisturbed(
                python, ranks=ranks, steps=training.steps, checkpoint_every=training.checkpoint_every
            )
        strikes = [drawn(seed, number, ranks=ranks, wait_max_s=WAIT_MAX_S) for number in numbers]
        found = await play_round(folder / f"from-{first}", python, training, strikes, tell)
        same = found == weights[training.steps]
        right = right and same
        tell(
            f"faults {numbers[0]} to {numbers[-1]}: {training.steps} steps, final weights {found[:16]}, "
            f"{'as' if same else 'NOT as'} in an undisturbed run"
        )
    return right
