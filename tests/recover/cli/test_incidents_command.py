"""Tests recover/cli/incidents_command.py against a served API."""

from __future__ import annotations

import json

import pytest

from chaos.apiserver.store import MemoryCluster
from recover.cli.incidents_command import incidents
from recover.k8s.kinds import INCIDENTS


def listed(kubeconfig: str, capsys: pytest.CaptureFixture[str], *args: str) -> list[str]:
    assert incidents([*args, "-o", "name", "--kubeconfig", kubeconfig]) == 0
    return [line.partition("/")[2] for line in capsys.readouterr().out.splitlines()]


@pytest.fixture
def old(store: MemoryCluster) -> str:
    """Adds a closed Incident of another node, newer than the open one. Returns the name of the open one."""
    (first,) = store.objects(INCIDENTS)
    name = str(first["metadata"]["name"])
    store.patch(INCIDENTS, name, {"status": {"phase": "Open"}}, subresource="status")
    spec = {**first["spec"], "node": "node-4", "detectedAt": "2099-01-01T00:00:00Z"}
    later = {"apiVersion": first["apiVersion"], "kind": "Incident", "metadata": {"name": "later"}}
    store.create(INCIDENTS, {**later, "spec": spec})
    store.patch(INCIDENTS, "later", {"status": {"phase": "Closed", "summary": "s"}}, subresource="status")
    return name


def test_open_ones_come_first_and_are_filtered_by_node_and_phase(
    old: str, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert listed(kubeconfig, capsys) == [old, "later"]
    assert listed(kubeconfig, capsys, "--open") == [old]
    assert listed(kubeconfig, capsys, "--node", "node-4") == ["later"]
    assert listed(kubeconfig, capsys, "--node", "node-4", "--open") == []


def test_the_table_tells_what_was_done_and_json_has_the_same_as_data(
    old: str, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert incidents(["--kubeconfig", kubeconfig]) == 0
    table = capsys.readouterr().out
    assert table.startswith("INCIDENT")
    assert old in table

    assert incidents(["-o", "json", "--kubeconfig", kubeconfig]) == 0
    answer = json.loads(capsys.readouterr().out)
    done = [r for r in answer["decisions"] if r["incident"] == old and r["outcome"] == "done"]
    assert answer["kind"] == "Incidents"
    assert all(record["target"] in table for record in done)


def test_nothing_is_said_plainly(
    kubeconfig: str, store: MemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert incidents(["--node", "nobody", "--kubeconfig", kubeconfig]) == 0
    assert capsys.readouterr().out == "No incidents.\n"
