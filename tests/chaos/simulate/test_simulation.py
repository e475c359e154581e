"""Random scripts in virtual time. tests/chaos/invariants tests the checks that judge them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from chaos.simulate.drawing import run_seed
from chaos.simulate.world import CONTROLLER
from tests.chaos.simulate.seeds import asked_or
from tests.rights import not_granted

SEEDS = range(8, 48)
"""Seeds that meet every kind of cluster. `REKINDLE_SEEDS=1000-2000` or `rekindle chaos simulate` plays other
seeds."""


@pytest.mark.parametrize("seed", asked_or(SEEDS))
def test_no_script_of_faults_breaks_an_invariant_and_every_run_comes_to_rest(seed: int) -> None:
    sim = run_seed(seed)
    writes = [audit for audit in sim.cluster.store.audit if audit.user == CONTROLLER]
    assert not {right for audit in writes if (right := not_granted(audit))}


def test_the_same_seed_makes_the_same_run_byte_for_byte_in_any_process() -> None:
    program = (
        "import hashlib; from chaos.simulate.drawing import run_seed; "
        "print(hashlib.sha256(run_seed(3).log()).hexdigest())"
    )

    def digest(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        ).stdout

    assert digest("1") == digest("2") != ""
