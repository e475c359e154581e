"""Real training frameworks, on CPUs with tiny models: the agent reads the frameworks' own state in their
logs.

The tests need the environments that `python -m chaos.rigs.framework_logs.environment` makes.
tests/detectors/folds/test_real_logs.py reads kept logs of such runs.
"""

from __future__ import annotations

import pytest

from chaos.rigs.framework_logs.runs import RUNS, Run, played
from tests.detectors.folds.real_runs import RULES, as_held, as_written, complaints

pytestmark = [pytest.mark.processes, pytest.mark.on_request("REKINDLE_FRAMEWORK_LOGS")]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_the_agent_reads_the_trainers_own_state(run: Run) -> None:
    for chunks, truth in played(run):
        read = as_written(chunks, truth), as_held(chunks, truth)

        assert complaints(RULES[run.name], *read, truth.events) == []
