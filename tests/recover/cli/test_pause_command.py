"""Tests recover/cli/pause_command.py against a served API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from chaos.apiserver.history import Stored
from chaos.apiserver.store import MemoryCluster
from detectors.client.kubeapi import ApiError
from detectors.wire.contract import Fault
from detectors.wire.resource import Resource
from recover.api import Act, ActionRecord, IncidentSpec, Outcome
from recover.api.reasons import Reason
from recover.cli import pause_command
from recover.cli.pause_command import pause, resume
from recover.cli.status_command import status, why
from recover.k8s.bodies import body
from recover.k8s.kinds import CONFIGMAPS, INCIDENTS, NAMESPACES, NODES
from recover.model.modes import Mode, Modes, begun
from recover.model.pause import Pause
from tests.facts import missing

SYSTEM = "rekindle-system"


@pytest.fixture(autouse=True)
def no_controller(store: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pause_command, "SEEN_WITHIN_S", 0.0)
    store.create(NAMESPACES, {"metadata": {"name": SYSTEM}})


def written(store: MemoryCluster) -> dict[str, str] | None:
    try:
        data: dict[str, str] = store.read(CONFIGMAPS, "rekindle-pause", SYSTEM).body["data"]
    except ApiError:
        return None
    return data


def test_a_pause_is_written_told_loudly_and_ended(
    store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    access = ["--kubeconfig", kubeconfig]
    assert pause(["--reason", "new switches", "--for", "2h", *access]) == 0
    data = written(store)
    assert data is not None
    assert data["reason"] == "new switches"
    lasts = datetime.fromisoformat(data["until"]) - datetime.fromisoformat(data["since"])
    assert lasts == timedelta(hours=2)
    told = capsys.readouterr()
    assert not missing(told.out, "Rekindle is paused", "new switches", "`rekindle resume`")
    assert "rekindle-state cannot be read" in told.err

    for ask in (status, lambda args: why(["node-3", *args])):
        assert ask(access) == 0
        assert "Rekindle IS PAUSED since" in capsys.readouterr().out

    assert pause(["--reason", "longer", *access]) == 0
    again = written(store)
    assert again == {"since": data["since"], "reason": "longer"}, "the end is gone, the begin stays"

    assert resume(access) == 0
    assert written(store) is None
    capsys.readouterr()
    assert resume(access) == 0
    assert "is not paused" in capsys.readouterr().out


def test_a_dry_run_asks_the_api_server_and_writes_nothing(
    store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pause(["--dry-run", "--kubeconfig", kubeconfig]) == 0
    assert written(store) is None
    assert store.audit[-1].verb == "create"
    assert not store.audit[-1].changed
    assert "(dry run)" in capsys.readouterr().out

    assert pause(["--kubeconfig", kubeconfig]) == 0
    assert resume(["--dry-run", "--kubeconfig", kubeconfig]) == 0
    assert written(store) is not None


@pytest.mark.parametrize(
    ("args", "says", "ends"),
    [
        (["--for", "soon"], "--for 'soon': expected a number with a unit", 2),
        (["--for", "off"], "--for 'off': expected a number with a unit", 2),
        (["--reason", "x" * 300], "--reason has 300 characters", 2),
        (["-n", "nowhere"], "nowhere", 1),
    ],
)
def test_what_cannot_be_used_is_named_and_changes_nothing(
    args: list[str],
    says: str,
    ends: int,
    store: MemoryCluster,
    kubeconfig: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert pause([*args, "--kubeconfig", kubeconfig]) == ends
    assert says in capsys.readouterr().err
    assert written(store) is None


def test_an_unusable_end_is_told_and_repaired_by_the_next_pause(
    store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = {"until": "tomorrow", "colour": "red"}
    store.create(CONFIGMAPS, {"metadata": {"name": "rekindle-pause"}, "data": data}, SYSTEM)

    assert status(["--kubeconfig", kubeconfig]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert not missing(told, "IS PAUSED", "data.until is 'tomorrow'", "data.colour is not known")

    assert pause(["--kubeconfig", kubeconfig]) == 0
    assert (written(store) or {}).keys() == {"since"}


def refuse(store: MemoryCluster, node: str) -> None:
    """Records in the open Incident that Rekindle did not quarantine the node because of the pause."""
    kept_back = ActionRecord(
        at=datetime.now(UTC),
        action=Act.QUARANTINE_NODE,
        target=node,
        outcome=Outcome.WOULD,
        reason=Reason.PAUSED,
        message=f"would take {node} out of service (Rekindle is paused since today)",
    )
    (open_one,) = store.objects(INCIDENTS)
    actions = [
        {
            "at": kept_back.at.isoformat(),
            **{k: str(getattr(kept_back, k)) for k in ("action", "target", "outcome", "reason", "message")},
        }
    ]
    name = open_one["metadata"]["name"]
    store.patch(INCIDENTS, name, {"status": {"phase": "Open", "actions": actions}}, subresource="status")


def test_the_resume_lists_what_was_not_done_in_the_pause(
    store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refuse(store, "node-3")
    assert pause(["--kubeconfig", kubeconfig]) == 0
    capsys.readouterr()

    assert resume(["--kubeconfig", kubeconfig]) == 0
    assert "`kubectl cordon node-3`" in capsys.readouterr().out


def test_the_resume_lists_the_nodes_that_one_incident_names(
    store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = IncidentSpec(fault=Fault.DEVICE_LOST, detected_at=datetime.now(UTC))
    store.create(INCIDENTS, body(INCIDENTS, "paused-device-lost-1", spec=spec))
    status = {"phase": "Open", "summary": "2 nodes stay in service", "members": ["node-3", "node-4"]}
    store.patch(INCIDENTS, "paused-device-lost-1", {"status": status}, subresource="status")
    assert pause(["--kubeconfig", kubeconfig]) == 0
    capsys.readouterr()

    assert resume(["--kubeconfig", kubeconfig]) == 0

    told = capsys.readouterr().out
    assert not missing(told, "`kubectl cordon node-3`", "`kubectl cordon node-4`", "paused-device-lost-1")


def test_the_resume_does_not_ask_for_the_cordon_of_a_node_that_is_cordoned(
    store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    access = ["--kubeconfig", kubeconfig]
    refuse(store, "node-3")
    store.patch(NODES, "node-3", {"spec": {"unschedulable": True}})
    assert pause(access) == 0
    capsys.readouterr()

    assert resume(access) == 0

    assert "kubectl cordon" not in capsys.readouterr().out


def test_a_pause_that_may_not_be_read_is_told_as_the_controller_has_noted_it(
    store: MemoryCluster,
    kubeconfig: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reader lacks the permission to read the pause's ConfigMap."""
    read = store.read

    def refusing(resource: Resource, name: str, namespace: str = "") -> Stored:
        if name == "rekindle-pause":
            raise ApiError(403, "Forbidden", "no right")
        return read(resource, name, namespace)

    begun_at = datetime(2026, 1, 1, tzinfo=UTC)
    modes = Modes(begun(Mode.RECOVER, begun_at), paused=Pause(since=begun_at, reason="new switches"))
    data = {"mode": "recover", "since": begun_at.isoformat(), "modes": msgspec.json.encode(modes).decode()}
    store.create(CONFIGMAPS, {"metadata": {"name": "rekindle-state"}, "data": data}, SYSTEM)
    monkeypatch.setattr(store, "read", refusing)

    assert status(["--kubeconfig", kubeconfig]) == 0
    assert "Rekindle IS PAUSED since 2026-01-01" in capsys.readouterr().out
