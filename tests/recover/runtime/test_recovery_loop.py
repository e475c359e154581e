"""Tests which recoveries a change wakes, and what that costs."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from detectors.wire.contract import Fault, ObjectMeta
from detectors.wire.resource import Resource
from recover.api import Phase, Recovery, RecoverySpec, RecoveryStatus
from recover.api.marks import SCAN_OF
from recover.k8s.kinds import PODS, PYTORCHJOBS, RECOVERIES
from recover.kube.clock import WallClock
from recover.model.actions import Patch, Plan
from recover.policy.settings import Settings
from recover.recovery.scan_pod import scan_label
from recover.runtime.execute import Executor
from recover.runtime.loop_parts import LoopParts
from recover.runtime.mode_keeper import ModeKeeper
from recover.runtime.observe import Observer
from recover.runtime.recovery_loop import Recoveries
from recover.runtime.rest import rest_after
from recover.runtime.telemetry import Metrics
from tests.builders import gang
from tests.recover.runtime.executing import SPEC, patch
from tests.recover.scripted import Scripted, event, raw

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


class Asked(Observer):
    """Counts for each recovery how often its scan was looked up."""

    def __init__(self) -> None:
        super().__init__(Scripted(), Settings(), lambda: None)
        self.asked: Counter[str] = Counter()

    def has_scan(self, recovery: Recovery) -> bool:
        self.asked[recovery.metadata.name] += 1
        return super().has_scan(recovery)


def scan(observer: Observer, name: str, version: int, *, of: str, namespace: str = "ml") -> None:
    """Adds a pod with the label of a scan, as anybody may create it."""
    meta = {"name": name, "namespace": namespace, "uid": f"{name}-uid", "resourceVersion": str(version)}
    pod = {"metadata": {**meta, "labels": {SCAN_OF: of}}, "spec": {"containers": [{"name": "scan"}]}}
    observer.absorb(PODS, msgspec.json.encode(pod))


def ended(name: str) -> Recovery:
    return Recovery(
        metadata=ObjectMeta(name=name, namespace="ml", uid=f"{name}-uid"),
        spec=RecoverySpec(gang=gang().ref, number=1, incident="i", fault=Fault.DEVICE_LOST, detected_at=NOW),
        status=RecoveryStatus(phase=Phase.SUCCEEDED),
    )


def loop(observer: Observer, *recoveries: Recovery) -> tuple[Recoveries, Metrics]:
    for each in recoveries:
        observer.recoveries.rows[f"ml/{each.metadata.name}"] = each
    cluster, metrics, clock = Scripted(), Metrics(), WallClock()
    executor = Executor(cluster, observer, metrics, clock)
    modes = ModeKeeper(cluster, observer, Settings(), clock)
    return Recoveries(LoopParts(observer, executor, modes, metrics, clock), Settings()), metrics


def test_a_recovery_has_a_scan_while_a_pod_of_its_namespace_bears_its_label() -> None:
    seen, mine, other = Asked(), ended("mine"), ended("other")
    scan(seen, "a", 1, of="mine")
    scan(seen, "b", 2, of="mine")
    scan(seen, "c", 3, of="other", namespace="tenant")
    assert (seen.has_scan(mine), seen.has_scan(other)) == (True, False)

    seen.pods.apply(event("DELETED", "a", 4))
    scan(seen, "b", 5, of="mine")
    assert seen.has_scan(mine)

    scan(seen, "b", 6, of="other")
    assert (seen.has_scan(mine), seen.has_scan(other)) == (False, True)

    seen.pods.apply(event("DELETED", "b", 7))
    assert not seen.has_scan(other)


def test_pods_of_another_namespace_with_the_label_of_a_scan_make_no_wake_slower(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop looks up the scan of each ended recovery. With 20,000 such pods and 3,000 ended recoveries,
    one change stopped the event loop for 14 s, longer than the renewal of the lease can wait."""
    seen, labels = Asked(), 0
    for number in range(1, 301):
        scan(seen, f"p{number}", number, of="x", namespace="tenant")

    def counted(recovery: Recovery) -> str:
        nonlocal labels
        labels += 1
        return scan_label(recovery)

    monkeypatch.setattr("recover.runtime.observe.scan_label", counted)

    assert not seen.has_scan(ended("r"))
    assert labels == 1


async def test_many_changes_in_one_turn_of_the_event_loop_wake_the_recoveries_once() -> None:
    """A list that is read again may bring thousands of changes without a pause."""
    seen = Asked()
    tested, _ = loop(seen, ended("a"), ended("b"))

    for _ in range(100):
        tested.wake()
    await asyncio.sleep(0)
    assert seen.asked == {"a": 1, "b": 1}

    tested.wake()
    await asyncio.sleep(0)
    assert seen.asked == {"a": 2, "b": 2}


async def test_of_the_ended_recoveries_those_with_a_scan_are_looked_at() -> None:
    seen = Asked()
    scan(seen, "s", 1, of="a")
    tested, metrics = loop(seen, ended("a"), ended("b"))
    running = asyncio.create_task(tested.run())

    tested.wake()
    await asyncio.sleep(0.05)
    running.cancel()
    await asyncio.wait({running})

    assert metrics.registry.get_sample_value("rekindle_reconciles_total", {"loop": "recovery"}) == 1


class Flipping(Scripted):
    """Accepts every phase of a recovery."""

    version = 7

    async def patch(self, resource: Resource, name: str, body: Any, **_: Any) -> bytes:
        await asyncio.sleep(0)
        self.version += 1
        return raw(name, self.version, spec=SPEC, status=body["status"])


async def test_a_recovery_whose_phases_go_round_hands_its_turn_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next pass follows each change of phase at once. A defect that makes two phases alternate must
    not make the controller write without end."""
    looks = 0

    def planned(recovery: Recovery, *_: object) -> Plan:
        nonlocal looks
        looks += 1
        phase = Phase.BLOCKED if recovery.status.phase is Phase.RESUMING else Phase.RESUMING
        change = msgspec.structs.replace(patch("r1"), body={"status": {"phase": phase}})
        return Plan(chains=((change,),))

    monkeypatch.setattr("recover.runtime.recovery_loop.advance", planned)
    cluster, metrics, clock = Flipping(), Metrics(), WallClock()
    observer = Observer(cluster, Settings(), lambda: None)
    observer.absorb(RECOVERIES, raw("r1", 7, spec=SPEC))
    modes = ModeKeeper(cluster, observer, Settings(), clock)
    executor = Executor(cluster, observer, metrics, clock)
    tested = Recoveries(LoopParts(observer, executor, modes, metrics, clock), Settings())

    async with asyncio.timeout(5):
        await tested._reconcile("ml/r1")

    assert looks == len(Phase)


def test_blocked_recoveries_that_take_long_rest_together_and_a_restart_does_not_rest_for_them() -> None:
    """Each of them compares all nodes, and one change may wake hundreds of them."""
    cluster, metrics, clock = Scripted(), Metrics(), WallClock()
    observer = Observer(cluster, Settings(), lambda: None)
    for name in ("r1", "r2", "r3"):
        observer.absorb(RECOVERIES, raw(name, 7, spec=SPEC, status={"phase": "Blocked"}))
    observer.absorb(RECOVERIES, raw("restarts", 7, spec=SPEC, status={"phase": "Resuming"}))
    modes = ModeKeeper(cluster, observer, Settings(), clock)
    executor = Executor(cluster, observer, metrics, clock)
    tested = Recoveries(LoopParts(observer, executor, modes, metrics, clock), Settings())

    for name, took_s in (("r1", 0.02), ("r2", 0.03), ("r3", 0.001), ("gone", 0.5), ("restarts", 0.01)):
        tested._note_duration(f"ml/{name}", took_s)

    assert tested._rest_s("ml/r1") == tested._rest_s("ml/r2") == pytest.approx(rest_after(0.05))
    assert tested._rest_s("ml/r3") == 0.0
    assert tested._rest_s("ml/restarts") == pytest.approx(rest_after(0.01))
    tested._note_duration("ml/r2", 0.001)
    assert tested._rest_s("ml/r1") == pytest.approx(rest_after(0.02))


class Stopping(Scripted):
    """Accepts the phase of a recovery, which starts work of other loops, and then the stop of the gang."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []

    async def patch(self, resource: Resource, name: str, body: Any, **_: Any) -> bytes:
        if resource == RECOVERIES:
            await asyncio.sleep(0)  # an answer takes some time
            asyncio.get_running_loop().call_soon(self.done.append, "other loops")
            return raw(name, 8, spec=SPEC, status=body["status"])
        self.done.append("stop")
        return raw(name, 9)


async def test_a_phases_act_follows_the_answer_to_its_write_before_any_other_loop_has_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At thousands of nodes a pass of another loop takes long, and every change starts one."""

    def planned(recovery: Recovery, *_: object) -> Plan:
        if recovery.status.phase is Phase.PLANNED:
            return Plan(chains=((patch("r1"),),))
        stop = Patch(what="stop-gang", resource=PYTORCHJOBS, name="llm", namespace="ml", body={})
        return Plan(chains=((stop,),) if "stop" not in cluster.done else ())

    monkeypatch.setattr("recover.runtime.recovery_loop.advance", planned)
    cluster, metrics, clock = Stopping(), Metrics(), WallClock()
    observer = Observer(cluster, Settings(), lambda: None)
    observer.absorb(RECOVERIES, raw("r1", 7, spec=SPEC))
    modes = ModeKeeper(cluster, observer, Settings(), clock)
    executor = Executor(cluster, observer, metrics, clock)
    tested = Recoveries(LoopParts(observer, executor, modes, metrics, clock), Settings())
    running = asyncio.create_task(tested.run())

    tested.wake()
    async with asyncio.timeout(5):
        while len(cluster.done) < 2:
            await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running})

    assert cluster.done == ["stop", "other loops"]
