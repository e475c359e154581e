"""Tests recover/cli/hold_command.py against a served API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chaos.apiserver.store import MemoryCluster
from recover.cli.hold_command import hold, release
from recover.k8s.kinds import JOBS, NODES, RECOVERIES
from recover.policy.consent import held
from tests.facts import missing


def notes(store: MemoryCluster, subject: str) -> dict[str, str]:
    kind, _, name = subject.partition("/")
    where: Any = (NODES, name, "") if kind == "node" else (JOBS, name, kind)
    found: dict[str, str] = store.read(*where).body["metadata"].get("annotations", {})
    return {key: value for key, value in found.items() if "hold" in key}


@pytest.mark.parametrize("subject", ["node/node-3", "team/llm"])
def test_a_hold_is_written_as_decisions_read_it_and_removed_whole(
    subject: str, store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    access = ["--kubeconfig", kubeconfig]
    assert hold([subject, "--for", "1d", "--reason", "new cables", *access]) == 0
    now = datetime.now(UTC)
    found = held(notes(store, subject), now)
    assert found is not None
    assert found.reason == "new cables"
    assert found.until is not None
    assert timedelta(hours=23) < found.until - now <= timedelta(days=1)
    assert not missing(capsys.readouterr().out, subject.partition("/")[2], "is held until", "new cables")

    assert hold([subject, *access]) == 0
    assert notes(store, subject) == {"rekindle.dev/hold": "true"}, (
        "the second call has neither end nor reason"
    )

    assert release([subject, "--dry-run", *access]) == 0
    assert notes(store, subject)
    assert release([subject, *access]) == 0
    assert notes(store, subject) == {}
    capsys.readouterr()
    assert release([subject, *access]) == 0
    assert "has no hold" in capsys.readouterr().out


@pytest.mark.parametrize("subject", ["nobody", "node/gpu-99", "vision"])
def test_what_is_not_there_or_not_the_only_one_is_refused(
    subject: str, store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    writes = len(store.audit)
    assert hold([subject, "--kubeconfig", kubeconfig]) == 3
    assert subject.rpartition("/")[2] in capsys.readouterr().err
    assert len(store.audit) == writes


def test_a_dry_run_writes_nothing(store: MemoryCluster, kubeconfig: str) -> None:
    assert hold(["team/llm", "--dry-run", "--kubeconfig", kubeconfig]) == 0
    assert notes(store, "team/llm") == {}
    assert (store.audit[-1].verb, store.audit[-1].changed) == ("patch", False)


def test_a_hold_on_a_job_that_is_being_recovered_warns_that_it_may_stay_stopped(
    store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (recovery,) = store.objects(RECOVERIES)
    name, uid = recovery["metadata"]["name"], recovery["spec"]["gang"]["uid"]
    store.patch(RECOVERIES, name, {"status": {"phase": "Choosing"}}, namespace="team", subresource="status")
    (job,) = [one for one in store.objects(JOBS, "team") if one["metadata"]["name"] == "llm"]
    same = {"spec": {"gang": {"uid": job["metadata"]["uid"]}}}
    store.patch(RECOVERIES, name, same, namespace="team")
    assert uid

    assert hold(["team/llm", "--kubeconfig", kubeconfig]) == 0
    assert not missing(capsys.readouterr().out, "WARNING", name, "stays stopped until the hold ends")


def test_a_release_says_what_else_keeps_rekindle_from_the_node(
    store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store.patch(NODES, "node-3", {"metadata": {"labels": {"rekindle.dev/managed": "false"}}})

    assert release(["node/node-3", "--kubeconfig", kubeconfig]) == 0
    assert "kubectl label node node-3 rekindle.dev/managed-" in capsys.readouterr().out
