"""`rekindle chaos run` is ended from outside: in the background of a script, and after --keep."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

SCENARIO = """
name: short
about: A short training without a fault.
job: {ranks: 2, steps: 4, step_time_s: 0.01, shard_write_s: 0.0}
faults: []
expect: {recoveries: 0}
"""


@contextmanager
def started(command: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Starts the command as a script's shell starts it in the background, with SIGINT ignored."""
    process = subprocess.Popen(
        [
            "sh",
            "-c",
            f'trap "" INT; exec "$0" -m detectors.commands.main chaos run {command}',
            sys.executable,
        ],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_sigterm_ends_a_scenario_in_the_background_of_a_script_and_leaves_nothing(tmp_path: Path) -> None:
    with started("xid", tmp_path) as process:
        assert process.stdout is not None
        while "4 ranks" not in process.stdout.readline():
            assert process.poll() is None
        process.terminate()
        _, told = process.communicate(timeout=60)

    assert (process.returncode, len(told.splitlines())) == (130, 1)
    assert list(tmp_path.iterdir()) == []


def test_what_was_kept_until_it_was_ended_is_no_interruption_and_has_its_verdict(tmp_path: Path) -> None:
    scenario, left = tmp_path / "short.yaml", tmp_path / "left"
    scenario.write_text(SCENARIO)
    left.mkdir()

    with started(f"{scenario} --keep -o json", left) as process:
        assert process.stderr is not None
        while "KUBECONFIG=" not in process.stderr.readline():
            assert process.poll() is None
        process.terminate()
        verdict, _ = process.communicate(timeout=60)

    assert process.returncode == 0
    assert json.loads(verdict)["scenario"] == "short"
    assert list(left.iterdir()) == []
