"""`rekindle chaos run` as a script starts it: in the background, with SIGINT ignored."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes


def test_sigterm_ends_a_scenario_in_the_background_of_a_script_and_leaves_nothing(tmp_path: Path) -> None:
    started = subprocess.Popen(
        ["sh", "-c", 'trap "" INT; exec "$0" -m detectors.cli chaos run xid', sys.executable],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert started.stdout is not None
        while "4 ranks run" not in started.stdout.readline():
            assert started.poll() is None
        started.terminate()
        _, told = started.communicate(timeout=60)
    finally:
        started.kill()

    assert (started.returncode, told) == (130, "interrupted; nothing was left behind\n")
    assert list(tmp_path.iterdir()) == []
