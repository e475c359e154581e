"""Objects that are too large, and namespaces with too many of them: the controller leaves them out and
reports them, and they disturb no other object."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from recover.api.reasons import Reason
from recover.k8s.kinds import JOBS, PODS
from recover.model.modes import Mode, Modes, begun
from recover.policy.settings import Rooms, Settings
from recover.runtime.bounds import CacheShare
from recover.runtime.cache import Cache
from recover.runtime.observe import Observer
from recover.triage.guard import Denied, may_touch
from tests.recover.scripted import Scripted, event, raw

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
GPU = {"name": "train", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
ASKS = {"rekindle.dev/auto-recovery": "enabled"}


def job(name: str, *, namespace: str = "ml", version: int = 1, tolerations: int = 0, **meta: Any) -> bytes:
    pod = {
        "containers": [GPU],
        "tolerations": [{"key": f"key-{n}", "operator": "Exists"} for n in range(tolerations)],
    }
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"{name}-uid",
        "resourceVersion": str(version),
        "labels": ASKS,
        **meta,
    }
    return msgspec.json.encode({"metadata": metadata, "spec": {"template": {"spec": pod}}})


def rank(name: str, namespace: str, version: int, text: str = "") -> bytes:
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"{namespace}-{name}-uid",
        "resourceVersion": str(version),
        "annotations": {"text": text},
        "ownerReferences": [
            {
                "apiVersion": "kubeflow.org/v1",
                "kind": "PyTorchJob",
                "name": "llm",
                "uid": "llm-uid",
                "controller": True,
            }
        ],
    }
    return msgspec.json.encode({"metadata": metadata, "spec": {"containers": [GPU]}, "status": {}})


def observer(**room: int) -> Observer:
    return Observer(Scripted(), Settings(mode=Mode.RECOVER, room=Rooms(**room)), lambda: None)


def test_a_job_that_is_too_large_is_known_by_name_and_refused_for_its_size() -> None:
    made = observer()
    made.absorb(JOBS, job("huge", tolerations=30_000))

    world = made.world(Modes(begun(Mode.RECOVER, NOW)))
    gang = world.gangs["huge-uid"]
    verdict = may_touch(world, gang, NOW)

    assert isinstance(verdict, Denied)
    assert verdict.reason is Reason.UNSUPPORTED
    assert all(name in verdict.message for name in ("Job ml/huge", "1161 KiB", "512 KiB"))
    assert made.unreadable()["Job"] == 1
    assert len(msgspec.json.encode(gang)) < 2000


def test_it_is_read_again_once_it_is_smaller() -> None:
    made = observer()
    made.absorb(JOBS, job("huge", tolerations=30_000))
    made.absorb(JOBS, job("huge", version=2, tolerations=3))

    gang = made.world(Modes(begun(Mode.RECOVER, NOW))).gangs["huge-uid"]

    assert (gang.unsupported, gang.size) == ("", 1)
    assert made.unreadable()["Job"] == 0


def test_what_is_kept_of_one_that_is_too_large_is_small_whatever_its_labels_and_annotations_say() -> None:
    made = observer()
    told = {f"rekindle.dev/hold-{n}": "x" * 1000 for n in range(200)}
    reason = {"rekindle.dev/hold": "true", "rekindle.dev/hold-reason": "y" * 100_000}
    made.absorb(JOBS, job("huge", tolerations=30_000, annotations={**told, **reason}))

    gang = made.world(Modes(begun(Mode.RECOVER, NOW))).gangs["huge-uid"]

    assert set(gang.annotations) == set(reason)
    assert len(msgspec.json.encode(gang)) < 2000


def test_a_job_that_is_too_large_and_asks_nothing_of_us_is_not_kept() -> None:
    made = observer()
    made.absorb(JOBS, job("huge", tolerations=30_000, labels={}))

    assert made.world(Modes(begun(Mode.RECOVER, NOW))).gangs == {}


def test_the_jobs_of_one_namespace_leave_room_for_those_of_another() -> None:
    made = observer(jobs_mib=1)
    for number in range(100):
        made.absorb(JOBS, job(f"large-{number}", tolerations=600))
    made.absorb(JOBS, job("small", namespace="team", tolerations=3))

    gangs = made.world(Modes(begun(Mode.RECOVER, NOW))).gangs
    refused = [gang for gang in gangs.values() if gang.unsupported]

    assert gangs["small-uid"].unsupported == ""
    assert 0 < len(refused) < 100
    assert all(name in refused[0].unsupported for name in ("namespace ml", "1 MiB", "room.jobs_mib"))
    read = [gang for gang in gangs.values() if not gang.unsupported]
    assert sum(len(msgspec.json.encode(gang)) for gang in read) <= 1024 * 1024 + 2000


def test_pods_for_which_there_is_no_room_are_left_out_and_those_of_another_namespace_are_not() -> None:
    made = observer(pods_mib=1)
    for number in range(100):
        made.absorb(PODS, rank(f"p{number}", "ml", number + 1, "x" * 100_000))
    made.absorb(PODS, rank("p0", "team", 200))

    assert "team/p0" in made.pods.rows
    assert sum(key.startswith("ml/") for key in made.pods.rows) == 10


def test_what_was_left_out_is_read_by_the_next_list_once_there_is_room() -> None:
    rows: Cache[str] = Cache(
        PODS, lambda raw: "x" * 950_000, lambda *change: None, room=CacheShare("pods", 1)
    )
    rows.absorb(raw("first", 1))
    rows.absorb(raw("second", 2))
    assert (list(rows.rows), rows.owes_list()) == (["ml/first"], False)

    rows.apply(event("DELETED", "first", 3))
    assert rows.owes_list()

    rows.begin()
    rows.listed(msgspec.Raw(raw("second", 2)))
    rows.finish("3")
    assert (list(rows.rows), rows.owes_list()) == (["ml/second"], False)


def test_whoever_writes_an_object_that_is_too_large_again_and_again_fills_no_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = observer()
    for version in range(1, 6):
        made.absorb(JOBS, job("huge", version=version, tolerations=30_000))

    assert capsys.readouterr().out.count("ml/huge") == 1
