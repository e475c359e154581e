"""`rekindle doctor` names scripts that end with status 0 although the training in them has failed."""

from __future__ import annotations

import pytest

from recover.doctor.exit_statuses import kept
from tests.recover.doctor.doctor_cases import PODS, case

TRAIN = "torchrun --nnodes=2 train.py"


def fields(kind: str, command: list[str], args: list[str]) -> list[tuple[str, str]]:
    """Returns name and field of each finding about a container with this command."""
    container = (*PODS[kind], "containers", 0)
    found = kept(case(kind, ((*container, "command"), command), ((*container, "args"), args)))
    return [(one.name, one.where.field.rpartition(".")[2]) for one in found]


@pytest.mark.parametrize(
    "script",
    [
        f"{TRAIN} | tee /logs/rank.log",
        f"{TRAIN} \\\n  --lr 0.1 2>&1 | tee -a /logs/$RANK.log\n",
        f"{TRAIN} || true",
        f"cd /app\n{TRAIN} || :\n# the end\n",
        f"{TRAIN}; exit 0",
    ],
)
def test_a_script_that_hides_the_status_is_reported(script: str) -> None:
    assert fields("job", ["bash", "-c", script], []) == [("exit-status-hidden", "command")]
    assert fields("pytorchjob", ["/bin/sh", "-c"], [script]) == [("exit-status-hidden", "args")]
    assert fields("jobset", ["tini", "--", "/bin/bash", "-lc", script], []) == [
        ("exit-status-hidden", "command")
    ]


@pytest.mark.parametrize(
    "script",
    [
        TRAIN,
        f"set -o pipefail\n{TRAIN} | tee log",
        f"pip install -r more.txt || true\nexec {TRAIN}",
        f"{TRAIN} || exit 1",
        f"set -e; {TRAIN}; exit 0",
        f"python fetch.py | tee fetch.log\n{TRAIN}",
        "",
    ],
)
def test_a_script_that_shows_the_status_is_not_reported(script: str) -> None:
    assert fields("job", ["bash", "-c", script], []) == []


def test_options_of_the_shell_count() -> None:
    piped, ended = f"{TRAIN} | tee log", f"{TRAIN}; exit 0"

    assert fields("job", ["bash", "-o", "pipefail", "-c", piped], []) == []
    assert fields("job", ["bash", "-ec", ended], []) == []
    assert fields("job", ["python", "-c", "print() or 'a | tee log'"], []) == [], "no shell runs this"
