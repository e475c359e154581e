"""ConfigMaps of device plugins reach the Nodes that decisions read, and a bad ConfigMap hides only its own
node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from chaos.apiserver.client import Client
from chaos.apiserver.store import MemoryCluster
from detectors.client.kubeapi import ApiError, WatchEvent
from detectors.wire.resource import Resource
from recover.k8s.kinds import CONFIGMAPS, NAMESPACES, NODES
from recover.kube.cluster import ListPage
from recover.kube.reflector import Reflector
from recover.model.modes import Mode, Modes, begun
from recover.policy.settings import DeviceReports, Settings, Signals
from recover.runtime.bounds import READ_BYTES_MAX
from recover.runtime.cache import Cache
from recover.runtime.device_maps import places
from recover.runtime.observe import Observer
from tests.device_plugins import config_map, device_info, fault, free_devices
from tests.recover.scripted import Scripted, WatchedEnough

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
ON = DeviceReports(ascend=True, iluvatar=True)


class Seen:
    """An observer with a separate clock."""

    def __init__(self, reports: DeviceReports = ON) -> None:
        self.now = NOW
        self.looks = 0
        self.observer = Observer(
            Scripted(), Settings(signals=Signals(reports=reports)), self._look, lambda: self.now
        )

    def _look(self) -> None:
        self.looks += 1

    def node(self, name: str, version: int, *, left: int = 7) -> None:
        resources = {
            "capacity": {"huawei.com/Ascend910": "8"},
            "allocatable": {"huawei.com/Ascend910": str(left)},
        }
        metadata = {"name": name, "resourceVersion": str(version)}
        self.observer.absorb(NODES, msgspec.json.encode({"metadata": metadata, "status": resources}))

    def says(self, node: str, text: str, version: int) -> None:
        raw = config_map(f"mindx-dl-deviceinfo-{node}", {"DeviceInfoCfg": text}, version=version)
        self.observer.device_maps.caches["kube-system"].absorb(raw)

    def signals(self, node: str) -> list[tuple[str, datetime | None]]:
        world = self.observer.world(Modes(begun(Mode.OBSERVE, NOW)))
        assert (node in world.signalling) == bool(world.nodes[node].signals)
        return [(one.place, one.since) for one in world.nodes[node].signals]


BROKEN = device_info(fault("Ascend910-4", "SeparateNPU"), unhealthy=["Ascend910-4"])
PLACE = "report-SeparateNPU-Ascend910-4"


@pytest.mark.parametrize("first", ["node", "ConfigMap"])
def test_a_report_stands_on_its_node_whichever_comes_first_and_goes_with_its_configmap(first: str) -> None:
    seen = Seen()
    steps = [lambda: seen.node("n1", 1), lambda: seen.says("n1", BROKEN, 2)]
    for step in steps if first == "node" else reversed(steps):
        step()

    assert seen.signals("n1") == [(PLACE, NOW)]
    seen.now += timedelta(minutes=5)
    seen.node("n1", 3, left=6)
    assert seen.signals("n1") == [(PLACE, NOW)], "a report of the kubelet begins no new time"

    cache = seen.observer.device_maps.caches["kube-system"]
    gone = config_map("mindx-dl-deviceinfo-n1", {}, version=9)
    cache.apply(WatchEvent("DELETED", msgspec.Raw(gone)))
    assert seen.signals("n1") == []


def test_a_report_that_comes_again_begins_again() -> None:
    seen = Seen()
    seen.node("n1", 1)
    seen.says("n1", BROKEN, 2)
    seen.now += timedelta(hours=1)
    seen.says("n1", device_info(), 3)
    assert seen.signals("n1") == []
    seen.says("n1", BROKEN, 4)

    assert seen.signals("n1") == [(PLACE, NOW + timedelta(hours=1))]


def test_the_same_words_each_five_minutes_wake_nobody() -> None:
    seen = Seen()
    seen.node("n1", 1)
    seen.says("n1", BROKEN, 2)
    looks = seen.looks

    for turn in range(5):
        text = device_info(
            fault("Ascend910-4", "SeparateNPU"),
            unhealthy=["Ascend910-4"],
            update_time=1744182144 + 300 * turn,
        )
        seen.says("n1", text, 3 + turn)

    assert seen.looks == looks


@pytest.mark.parametrize("bad", ["{", device_info(check_code="00"), device_info(), "x" * READ_BYTES_MAX])
def test_a_configmap_that_cannot_be_read_hides_what_was_said_of_its_node_and_nothing_else(bad: str) -> None:
    seen = Seen()
    for number, name in enumerate(["n1", "n2"]):
        seen.node(name, 1 + number)
        seen.says(name, BROKEN, 10 + number)

    with capture_logs() as logs:
        seen.says("n1", bad, 20)

    assert seen.signals("n1") == []
    assert seen.signals("n2") == [(PLACE, NOW)]
    is_bad = bad != device_info()
    assert seen.observer.unreadable()[CONFIGMAPS.kind] == is_bad
    assert [log["object"] for log in logs] == (["kube-system/mindx-dl-deviceinfo-n1"] if is_bad else [])


def test_a_bad_entry_of_a_configmap_about_many_nodes_is_told_once_a_minute() -> None:
    seen = Seen()
    seen.node("n1", 1)
    cache = seen.observer.device_maps.caches["mindx-dl"]

    with capture_logs() as logs:
        for turn in range(5):
            text = '{"mindx-dl-deviceinfo-n1":3}'
            cache.absorb(
                config_map("cluster-info-device-0", {"a": text}, namespace="mindx-dl", version=2 + turn)
            )

    assert [(log["event"], log["node"]) for log in logs] == [("entry skipped: cannot be read", "n1")]
    assert seen.observer.unreadable()[CONFIGMAPS.kind] == 1


def test_the_largest_configmap_that_clusterd_writes_is_read() -> None:
    """ClusterD writes up to 800 KiB of text into its ConfigMap
    (component/clusterd/pkg/domain/device/device_util.go)."""
    seen = Seen()
    seen.node("n1", 1)
    entry = msgspec.json.decode(BROKEN)["DeviceInfo"]
    many = {f"mindx-dl-deviceinfo-n{number}": entry for number in range(1, 1701)}
    text = msgspec.json.encode(many).decode()
    assert READ_BYTES_MAX < len(text) < 800 * 1024

    raw = config_map(
        "cluster-info-device-0", {"cluster-info-device-0": text}, namespace="mindx-dl", version=2
    )
    seen.observer.device_maps.caches["mindx-dl"].absorb(raw)

    assert seen.signals("n1") == [(PLACE, NOW)]
    assert seen.observer.unreadable()[CONFIGMAPS.kind] == 0


def test_off_by_default_nothing_is_watched_and_nothing_is_told() -> None:
    seen = Seen(DeviceReports())
    seen.node("n1", 1)

    assert seen.observer.device_maps.reflectors == []
    assert seen.signals("n1") == []
    assert CONFIGMAPS.kind not in seen.observer.unreadable()


def test_what_is_watched_is_as_narrow_as_the_plugins_labels_allow() -> None:
    ascend = {"kube-system": "mx-consumer-cim=true", "mindx-dl": ""}

    assert dict(places(DeviceReports(ascend=True))) == ascend
    assert dict(places(DeviceReports(iluvatar=True))) == {"kube-system": ""}
    assert dict(places(ON)) == {**ascend, "kube-system": ""}, "Iluvatar's plugin writes no label"
    assert dict(places(DeviceReports())) == {}


async def test_a_reflector_asks_for_one_namespace_and_its_labels() -> None:
    asked: list[Any] = []

    class Asked(Scripted):
        async def list(self, *args: Any, **of: Any) -> ListPage:
            asked.append((of["namespace"], of["labels"]))
            return await super().list(*args, **of)

        def watch(self, *args: Any, **of: Any) -> Any:
            asked.append((of["namespace"], of["labels"]))
            return super().watch(*args, **of)

    cache: Cache[bytes] = Cache(CONFIGMAPS, lambda raw: raw, lambda *_: None)
    reflector = Reflector(Asked(), CONFIGMAPS, cache, namespace="kube-system", labels="a=b")

    with pytest.raises(WatchedEnough):
        async with asyncio.timeout(5):
            await reflector.run()

    assert asked == [("kube-system", "a=b")] * 2, "a list, and the watch"


def test_iluvatars_list_of_free_devices_contradicts_a_kubelet_that_lags() -> None:
    seen = Seen()
    resources = {"capacity": {"iluvatar.com/gpu": "8"}, "allocatable": {"iluvatar.com/gpu": "7"}}
    metadata = {"name": "n1", "resourceVersion": "1"}
    seen.observer.absorb(NODES, msgspec.json.encode({"metadata": metadata, "status": resources}))
    assert seen.signals("n1") == [("report-iluvatar.com/gpu", NOW)]

    raw = config_map("ix-device-info-cm-n1", free_devices(map(str, range(8))), version=2)
    seen.observer.device_maps.caches["kube-system"].absorb(raw)

    assert seen.signals("n1") == []


class Refusing(Client):
    """An account that may not list ConfigMaps, except the one that pauses Rekindle."""

    async def list(self, resource: Resource, **of: Any) -> ListPage:
        if resource == CONFIGMAPS and "fields" not in of:
            raise ApiError(403, "Forbidden", "you may not list configmaps")
        return await super().list(resource, **of)

    def watch(self, resource: Resource, **of: Any) -> AsyncIterator[WatchEvent]:
        if resource == CONFIGMAPS and "fields" not in of:
            raise ApiError(403, "Forbidden", "you may not watch configmaps")
        return super().watch(resource, **of)


@pytest.mark.parametrize("client", [Client, Refusing])
async def test_reports_are_there_at_the_start_and_a_missing_right_holds_nothing_up(
    client: type[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    if client is Refusing:
        monkeypatch.setattr("recover.runtime.device_maps.IN_STEP_S_MAX", 0.1)
    store = MemoryCluster(lambda: NOW)
    for namespace in ("mindx-dl", "ml"):
        store.create(NAMESPACES, {"metadata": {"name": namespace}})
    for name in ("n1", "n2", "n3"):
        store.create(NODES, {"metadata": {"name": name}})
    settings = Settings(signals=Signals(reports=DeviceReports(ascend=True)))
    observer = Observer(client(store, "controller"), settings, lambda: None, lambda: NOW)

    def says(node: str, namespace: str, labels: dict[str, str]) -> None:
        metadata = {"name": f"mindx-dl-deviceinfo-{node}", "namespace": namespace, "labels": labels}
        store.create(CONFIGMAPS, {"metadata": metadata, "data": {"DeviceInfoCfg": BROKEN}})

    says("n1", "kube-system", {"mx-consumer-cim": "true"})
    says("n2", "kube-system", {})
    says("n3", "ml", {"mx-consumer-cim": "true"})
    watching = asyncio.create_task(observer.run())
    try:
        async with asyncio.timeout(20):
            await observer.synced()
        told = {name for name, node in observer.nodes.rows.items() if node.signals}
        assert told == ({"n1"} if client is Client else set()), "by the plugin's label, in its namespace"
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
