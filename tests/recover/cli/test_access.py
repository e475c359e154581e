"""Tests the options for cluster and namespace, which all commands share with kubectl."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from chaos.apiserver.store import MemoryCluster
from detectors.client.kubeapi import ApiError
from detectors.commands.completion import run as completion
from detectors.wire.resource import Resource
from recover.api import Phase
from recover.cli.doctor_command import run as doctor
from recover.cli.status_command import status, why
from recover.cli.version_command import version
from recover.k8s.kinds import RECOVERIES
from recover.kube.cluster import ListPage
from recover.kube.rest import RestCluster
from tests.facts import missing
from tests.recover.cli.why_jobs import create
from tests.recover.stories.why_cases import recovery

Captured = pytest.CaptureFixture[str]


def naming(kubeconfig: str, namespace: str) -> str:
    """Makes the context of this kubeconfig name a namespace."""
    path = Path(kubeconfig)
    config = yaml.safe_load(path.read_text())
    config["contexts"][0]["context"]["namespace"] = namespace
    path.write_text(yaml.safe_dump(config))
    return kubeconfig


def listed(args: list[str], capsys: Captured) -> Any:
    assert status([*args, "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    return answer["namespace"], [one["name"] for one in answer["recoveries"]]


def test_the_namespace_of_the_kubeconfig_is_the_usual_one_as_for_kubectl(
    store: MemoryCluster, kubeconfig: str, capsys: Captured
) -> None:
    create(store, RECOVERIES, recovery(Phase.STOPPING, number=2), "team")
    create(store, RECOVERIES, recovery(Phase.STOPPING, number=3), "other")
    every = ["--kubeconfig", kubeconfig]
    assert sorted(listed(every, capsys)[1]) == ["job-llm-2", "job-llm-3"]

    usual = ["--kubeconfig", naming(kubeconfig, "other")]
    assert listed(usual, capsys) == ("other", ["job-llm-3"])
    assert listed([*usual, "-n", "team"], capsys) == ("team", ["job-llm-2"])
    assert sorted(listed([*usual, "-A"], capsys)[1]) == ["job-llm-2", "job-llm-3"]

    assert status([*usual, "-A", "-n", "team"]) == 2
    assert not missing(capsys.readouterr().err, "-n", "-A")


def test_of_several_jobs_of_one_name_that_of_the_usual_namespace_is_meant(
    kubeconfig: str, capsys: Captured
) -> None:
    assert why(["vision", "--kubeconfig", kubeconfig]) == 3
    assert why(["vision", "--kubeconfig", naming(kubeconfig, "other")]) == 0
    assert capsys.readouterr().out.startswith("Job other/vision\n")
    assert why(["team/llm", "--kubeconfig", kubeconfig]) == 0, "all other jobs are found as before"


def test_all_missing_rights_are_one_line(
    kubeconfig: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    unhindered = RestCluster.list

    async def refusing(self: RestCluster, resource: Resource, **asked: Any) -> ListPage:
        if resource.plural in ("nodes", "jobs", "jobsets", "pytorchjobs"):
            raise ApiError(403, "Forbidden", f"{resource.plural} is forbidden")
        return await unhindered(self, resource, **asked)

    monkeypatch.setattr(RestCluster, "list", refusing)

    assert why(["team/llm", "--kubeconfig", kubeconfig]) == 0

    (line,) = capsys.readouterr().err.splitlines()
    assert not missing(line, "you have no permission to list", "nodes", "jobs", "jobsets", "pytorchjobs")
    assert line.count("is forbidden") == 1


def test_what_the_doctor_may_not_read_is_one_line_and_an_exit_status(
    store: MemoryCluster, kubeconfig: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refusing(self: RestCluster, resource: Resource, **asked: Any) -> ListPage:
        raise ApiError(403, "Forbidden", f"{resource.plural} is forbidden")

    monkeypatch.setattr(RestCluster, "list", refusing)

    ended = doctor(["-n", "rekindle-system", "--kubeconfig", kubeconfig])

    printed = capsys.readouterr().out
    assert ended in (1, 6)
    verdict = printed.splitlines()[1]
    (line,) = (line for line in printed.splitlines() if "no permission to read" in line and "  - " in line)
    assert not missing(line, "nodes", "pods", "nodehealths")
    assert not missing(verdict, "could not be made")


def test_the_version_is_told_also_without_a_cluster(kubeconfig: str, capsys: Captured) -> None:
    assert version(["--client"]) == 0
    client = capsys.readouterr()
    assert client.out.startswith("client ")
    assert client.err == ""

    assert version(["--kubeconfig", kubeconfig, "-o", "json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["controller"] is None
    assert not missing(told.err, "controller", "release")


def test_a_shell_completes_commands_and_options(tmp_path: Path, capsys: Captured) -> None:
    assert completion(["bash"]) == 0
    script = tmp_path / "completion.bash"
    script.write_text(capsys.readouterr().out)

    def completed(*words: str) -> list[str]:
        given = " ".join(words)
        ask = f"source {script}; COMP_WORDS=({given}); COMP_CWORD={len(words) - 1}; _rekindle"
        asked = ["bash", "-c", f'{ask}; echo "${{COMPREPLY[@]}}"']
        return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.split()

    assert completed("rekindle", "stat") == ["status"]
    assert completed("rekindle", "status", "--all") == ["--all-namespaces"]
    assert completed("rekindle", "recipes", "te") == ["test"]
    assert completed("rekindle", "recipes", "test", "--exit") == ["--exit-code"]
