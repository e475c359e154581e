"""Kept logs of real runs of frameworks: the agent's step equals the trainer's step at each checkpoint.

`make framework-logs` runs the frameworks again (tests/chaos/rigs/test_framework_logs.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.rigs.framework_logs.kept import kept
from chaos.rigs.framework_logs.runs import RUNS
from tests.detectors.folds.real_runs import RULES, as_held, as_written, complaints

FOLDER = Path(__file__).parents[1] / "logs_of_real_runs"


@pytest.mark.parametrize("again", ["", "-resumed"])
@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_the_agents_step_is_the_trainers(run, again: str) -> None:  # type: ignore[no-untyped-def]
    chunks, truth = kept(FOLDER, f"{run.name}{again}")

    read = as_written(chunks, truth), as_held(chunks, truth)

    assert complaints(RULES[run.name], *read, truth.events) == []
