"""Checks that the JSON that each command prints is valid by its schema in docs/reference."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from detectors.text.answers import ANSWERS_VERSION
from recover.cli.answers import ANSWERS
from recover.cli.checkpoints_command import run as checkpoints
from recover.cli.doctor_command import run as doctor
from recover.cli.incidents_command import incidents
from recover.cli.read_log_command import run as read_log
from recover.cli.recipes_command import run as recipes
from recover.cli.status_command import status, why
from recover.cli.version_command import version

Captured = pytest.CaptureFixture[str]

SCHEMA = json.loads((Path(__file__).parents[3] / "docs/reference/answers.schema.json").read_text())
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: llm, namespace: team}
spec: {template: {spec: {containers: []}}}
"""
LOG = "step 1/9 loss 1\nstep 2/9 loss 1\nstep 3/9 loss 1\nValueError: bad\n"
AGE = re.compile(r"\d+ (s|min|h|days) ago")


def strict(schema: Any) -> Any:
    """Returns the schema, changed so that it allows no other field than its own."""
    if isinstance(schema, dict):
        closed = {name: strict(part) for name, part in schema.items()}
        if "properties" in schema:
            closed.setdefault("additionalProperties", False)
        return closed
    return [strict(part) for part in schema] if isinstance(schema, list) else schema


ASKED: dict[str, tuple[Callable[[list[str]], int], list[str]]] = {
    "StatusAnswer": (status, ["--kubeconfig", "KUBECONFIG"]),
    "WhyJobAnswer": (why, ["team/llm", "--kubeconfig", "KUBECONFIG"]),
    "WhyNodeAnswer": (why, ["node/node-3", "--kubeconfig", "KUBECONFIG"]),
    "IncidentsAnswer": (incidents, ["--kubeconfig", "KUBECONFIG"]),
    "JobsAnswer": (doctor, ["-f", "FOLDER/job.yaml"]),
    "VersionAnswer": (version, ["--client"]),
    "CheckpointsAnswer": (checkpoints, ["scan", "FOLDER"]),
    "LogAnswer": (read_log, ["FOLDER/rank0.log"]),
    "RecipesAnswer": (recipes, ["list"]),
    "TestAnswer": (recipes, ["test", "vllm-bfloat16", "--log", "FOLDER/rank0.log"]),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "rank0.log").write_text(LOG)
    (tmp_path / "step-40").mkdir()
    return tmp_path


def answered(name: str, form: str, kubeconfig: str, folder: Path, capsys: Captured) -> str:
    command, args = ASKED[name]
    known = {"KUBECONFIG": kubeconfig, "FOLDER": str(folder)}
    filled = [re.sub("KUBECONFIG|FOLDER", lambda found: known[found[0]], arg) for arg in args]
    assert command([*filled, "-o", form]) in (0, 1, 3)
    return capsys.readouterr().out


@pytest.mark.parametrize("name", ASKED)
def test_an_answer_validates_and_is_the_same_in_yaml(
    name: str, kubeconfig: str, folder: Path, capsys: Captured
) -> None:
    answer = json.loads(answered(name, "json", kubeconfig, folder, capsys))
    as_yaml = yaml.safe_load(answered(name, "yaml", kubeconfig, folder, capsys))

    jsonschema.validate(answer, strict({**SCHEMA, "oneOf": [{"$ref": f"#/$defs/{name}"}]}))
    assert answer["apiVersion"] == ANSWERS_VERSION
    assert as_yaml.keys() == answer.keys()
    facts = {key: part for key, part in answer.items() if key not in ("headline", "nextSteps")}
    assert not AGE.search(json.dumps(facts)), "an age is no fact for a program"


def test_every_answer_is_asked_for_here_but_that_of_a_whole_installation() -> None:
    names = {answer.__name__ for answer in ANSWERS.values()}
    assert names - ASKED.keys() == {"InstallationAnswer"}, "tests/recover/doctor has an installation"


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("StatusAnswer", "node/node-3"),
        ("WhyJobAnswer", "job.batch/llm"),
        ("WhyNodeAnswer", "node/node-3"),
        ("JobsAnswer", "job.batch/llm"),
    ],
)
def test_names_are_those_of_kubectl(
    name: str, first: str, kubeconfig: str, folder: Path, capsys: Captured
) -> None:
    assert answered(name, "name", kubeconfig, folder, capsys).splitlines()[0] == first
