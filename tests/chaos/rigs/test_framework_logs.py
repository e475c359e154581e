"""Training frameworks run for real, on CPUs with tiny models: the agent reads their own state in their logs.

Needs the environments that `python -m chaos.rigs.framework_logs.environment` makes.
tests/detectors/folds/test_real_logs.py reads the logs of such runs that were kept.
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
