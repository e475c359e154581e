"""Tests how API objects become the World's view of repairs, and of pods whose work a repair would end."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from detectors.wire.contract import Fault
from recover.api import Incident, IncidentSpec, IncidentStatus
from recover.api.marks import QUARANTINE, REPAIR_OF
from recover.api.repair_state import Repair, RepairPhase, RepairPhaseTime
from recover.k8s.kinds import INCIDENTS, JOBS, NODES, PODS
from recover.kube.clock import WallClock
from recover.model import Quarantine, World
from recover.model.decode import JOBSET_UID
from recover.model.modes import Mode, Modes, begun
from recover.policy.settings import Settings
from recover.runtime.controller import Controller
from recover.runtime.observe import Observer
from recover.runtime.telemetry import Metrics
from tests.recover.scripted import Scripted

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
WEB = {"containers": [{"name": "web"}], "nodeName": "n1"}
PHASES = ((RepairPhase.WAITING, 0), (RepairPhase.REBOOTING, 4), (RepairPhase.RETURNED, 10))
SPEC: dict[str, Any] = {
    "template": {
        "spec": {"containers": [{"name": "train", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}
    }
}


def body(name: str, version: int, meta: dict[str, Any], **parts: Any) -> bytes:
    return msgspec.json.encode({"metadata": {"name": name, "resourceVersion": str(version), **meta}, **parts})


def observer(mode: Mode = Mode.REPAIR) -> Observer:
    return Observer(Scripted(), Settings(mode=mode), lambda: None)


def world(seen: Observer) -> World:
    return seen.world(Modes(begun(Mode.REPAIR, NOW)))


def pod(version: int = 1, *, owner: str = "ReplicaSet", phase: str = "Running", **spec: Any) -> bytes:
    reference = {"apiVersion": "v1", "kind": owner, "name": "o", "uid": "o-uid", "controller": True}
    meta = {"namespace": "shop", "uid": "web-uid", "ownerReferences": [reference]}
    return body("web", version, meta, spec={**WEB, **spec}, status={"phase": phase})


def test_a_pod_without_accelerators_is_known_by_its_node_for_as_long_as_it_runs() -> None:
    seen = observer()

    seen.absorb(PODS, pod(1, nodeName=""))
    assert world(seen).bystanders == {}
    seen.absorb(PODS, pod(2))
    assert [b.name for b in world(seen).bystanders["n1"].values()] == ["web"]
    seen.absorb(PODS, pod(3, phase="Succeeded"))
    assert world(seen).bystanders == {}


@pytest.mark.parametrize(("gpus", "found"), [(0, "bystander"), (1, "holder")])
def test_a_pod_that_bears_the_label_of_a_jobset_and_belongs_to_none_is_seen_too(
    gpus: int, found: str
) -> None:
    """The pod may be a copy of a rank that somebody made to examine it."""
    seen = observer()
    limits = {"resources": {"limits": {"nvidia.com/gpu": gpus}}} if gpus else {}
    meta = {"namespace": "ml", "uid": "copy-uid", "labels": {JOBSET_UID: "set-uid"}}
    spec = {"containers": [{"name": "main", **limits}], "nodeName": "n1"}

    seen.absorb(PODS, body("copy", 1, meta, spec=spec, status={"phase": "Running"}))

    there = world(seen)
    holders = [pod.name for uid in there.gangs_on.get("n1", ()) for pod in there.pods_of[uid].values()]
    bystanders = [b.name for b in there.bystanders.get("n1", {}).values()]
    assert {"bystander": bystanders, "holder": holders}[found] == ["copy"]


@pytest.mark.parametrize("owner", ["DaemonSet", "Node"])
def test_a_pod_that_comes_back_with_its_node_is_nobodys_loss(owner: str) -> None:
    seen = observer()

    seen.absorb(PODS, pod(owner=owner))

    assert world(seen).bystanders == {}


@pytest.mark.parametrize("is_out", [False, True])
def test_such_a_pod_wakes_somebody_only_where_its_node_is_out(is_out: bool) -> None:
    looks: list[str] = []
    seen = Observer(Scripted(), Settings(mode=Mode.REPAIR), lambda: looks.append("look"))
    note = msgspec.json.encode(Quarantine(incident="i", fault="driver", at=NOW, cordoned=True)).decode()
    seen.absorb(NODES, body("n1", 1, {"annotations": {QUARANTINE: note} if is_out else {}}))
    looks.clear()

    seen.absorb(PODS, pod(2))
    seen.absorb(PODS, pod(3))
    assert len(looks) == (1 if is_out else 0)
    seen.absorb(PODS, pod(4, phase="Succeeded"))

    assert len(looks) == (2 if is_out else 0)


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.RECOVER])
def test_where_nothing_is_rebooted_such_pods_cost_no_memory(mode: Mode) -> None:
    seen = observer(mode)

    seen.absorb(PODS, pod())

    assert seen.pods.rows == {}


def test_a_job_of_a_repair_is_no_gang_and_its_pod_no_bystander() -> None:
    seen = observer()
    labels = {REPAIR_OF: "n1-driver-1"}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "repair-1", "uid": "j-uid", "controller": True}

    seen.absorb(JOBS, job("rekindle-system", labels))
    meta = {"namespace": "rekindle-system", "uid": "p", "labels": labels, "ownerReferences": [owner]}
    seen.absorb(PODS, body("repair-1-x", 2, meta, spec=WEB, status={"phase": "Running"}))

    found = world(seen)
    assert (dict(found.gangs), list(found.repair_jobs), dict(found.bystanders)) == ({}, ["repair-1"], {})
    assert list(found.pods_of) == ["j-uid"]


def test_a_tenants_job_with_that_label_stays_a_gang() -> None:
    """Anybody may write labels. A label must neither hide a training nor end a repair's step."""
    seen = observer()

    seen.absorb(JOBS, job("ml", {REPAIR_OF: "n1-driver-1"}))

    assert world(seen).repair_jobs == {}
    assert len(world(seen).gangs) == 1


def job(namespace: str, labels: dict[str, str]) -> bytes:
    return body("repair-1", 1, {"namespace": namespace, "uid": "j-uid", "labels": labels}, spec=SPEC)


def test_repairs_are_counted_by_phase_with_the_time_that_they_took() -> None:
    controller = Controller(Scripted(), Settings(), Metrics(), WallClock(), asyncio.Event())
    ends = [RepairPhaseTime(phase=p, at=NOW + timedelta(minutes=m)) for p, m in PHASES]
    for number, repair in enumerate((Repair(), Repair(phase=RepairPhase.RETURNED, phases=ends))):
        spec = IncidentSpec(fault=Fault.DRIVER, node="n1", detected_at=NOW)
        incident = Incident(spec=spec, status=IncidentStatus(repair=repair))
        meta = {"name": f"i{number}", "uid": f"u{number}", "resourceVersion": "1"}
        whole = {**msgspec.to_builtins(incident), "metadata": meta}
        controller.observer.absorb(INCIDENTS, msgspec.json.encode(whole))

    controller.refresh_gauges()

    def sample(name: str, phase: str) -> float | None:
        return controller.metrics.registry.get_sample_value(name, {"phase": phase})

    assert sample("rekindle_repairs", "Waiting") == sample("rekindle_repairs", "Returned") == 1
    assert sample("rekindle_repair_seconds", "Returned") == 600
    assert sample("rekindle_repair_seconds", "Waiting") is None
