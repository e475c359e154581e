"""`rekindle doctor` names scripts that end with status 0 although the training in them has failed."""

from __future__ import annotations

import pytest

from recover.doctor.exit_statuses import kept
from tests.recover.doctor.doctor_cases import MANIFESTS, PODS, case

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
        f"{TRAIN}\necho done",
        f"{TRAIN} || true  # a comment",
        f"{TRAIN} | tee log 2>&1",
        f"# without pipefail\nexec {TRAIN} |& tee log",
        f"NCCL_DEBUG=INFO timeout 3600 {TRAIN} | tee log",
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
        f"set -e; {TRAIN}; cp log /out || true",
        f"{TRAIN} || exit 1\nexit 0",
        f"{TRAIN} || {{ echo failed; exit 1; }}; exit 0",
        f"if ! {TRAIN}; then exit 1; fi; exit 0",
        f"until {TRAIN}; do sleep 5; done; exit 0",
        "tail -F /logs/rank.log | tee /dev/stderr",
        "echo 'use a | tee log'",
        f"exec > >(tee log)\n{TRAIN}",
        f"cat > run.sh << EOF\n{TRAIN} || true\nEOF\nbash run.sh",
        "a 'quotation that does not end",
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
    assert fields("job", ["bash", "run.sh", "-c", f"{TRAIN} || true"], []) == [], "the script is a file"
    assert fields("job", ["python", "x.py", "--shell", "bash", "-c", f"{TRAIN} || true"], []) == []


def test_a_helper_without_devices_beside_the_training_is_not_reported() -> None:
    command = ["sh", "-c", "python serve.py | tee log"]
    helper = {"name": "exporter", "image": "exporter", "command": command}
    (train,) = MANIFESTS["job"]["spec"]["template"]["spec"]["containers"]
    found = kept(case("job", ((*PODS["job"], "containers"), [train, helper])))

    assert list(found) == []
    assert fields("job", command, []) != [], "the container that requests the devices is reported"
