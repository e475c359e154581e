"""Tests that a further framework is one file, like one_more/toy_workload.py, and one line in WORKLOADS.

This line must exist before the rest is imported, so the tests of the toy run in a separate process.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent


def test_a_framework_of_one_file_is_found_stopped_started_diagnosed_enabled_and_its_rights_demanded() -> None:
    plugin = "tests.recover.workloads.one_more.registered"
    asked = [str(HERE / "one_more" / "with_a_toy.py"), "-q", "-p", plugin, "-p", "no:cacheprovider"]

    done = subprocess.run(
        [sys.executable, "-m", "pytest", *asked], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
