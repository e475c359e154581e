"""Devices that a kubelet reports as unhealthy in the status of pods (KEP-4680) make their node a suspect,
and have no other effect."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from recover.diagnose.kubelet_words import CODE, device_words
from recover.diagnose.what_counts import proven, suspected
from recover.k8s.kinds import PODS
from recover.model import Pod, PodPhase, UnhealthyDevice, decode
from recover.model.modes import Mode, Modes, begun
from recover.policy.settings import Settings
from recover.runtime.observe import Observer
from recover.stories.signal_words import device_signals
from recover.triage.plan import plan
from tests.builders import NOW, Worlds, cluster, gang
from tests.facts import missing
from tests.recover.scripted import Scripted, event

WINDOW_S = 3600.0
GPU = "GPU-1a2b3c4d-0000-4000-8000-000000000001"


def told(health: str | None, device: str = GPU, name: str = "nvidia.com/gpu", **more: Any) -> dict[str, Any]:
    """Returns the status as a kubelet writes it:
    https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins (device plugin
    and unhealthy devices). `claim:<name>` and `message` come from DRA."""
    return {"name": name, "resources": [{"resourceID": device, "health": health, **more}]}


def pod_of(*statuses: Any) -> dict[str, Any]:
    gpus = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    containers = [{"name": f"c{number}", "allocatedResourcesStatus": s} for number, s in enumerate(statuses)]
    return {
        "metadata": {"name": "llm-0", "namespace": "ml", "uid": "llm-0-uid"},
        "spec": {"nodeName": "n1", "containers": [{"name": "c0", **gpus}]},
        "status": {"phase": "Running", "containerStatuses": containers},
    }


def read(*statuses: Any) -> tuple[UnhealthyDevice, ...]:
    return decode.pod(msgspec.json.encode(pod_of(*statuses)), ("nvidia.com/gpu",)).unhealthy


def test_only_a_device_that_is_called_unhealthy_is_read() -> None:
    claim = told("Unhealthy", "gpu.nvidia.com/n1/gpu-0", "claim:training/gpu", message="ECC errors")

    assert read([told("Healthy")]) == read([told("Unknown")]) == read([told(None)]) == read([]) == ()
    assert read([told("Unhealthy")], [told("Unhealthy")]) == (UnhealthyDevice("nvidia.com/gpu", GPU),)
    assert read([told("Healthy"), claim]) == (
        UnhealthyDevice("claim:training/gpu", "gpu.nvidia.com/n1/gpu-0", "ECC errors"),
    )


@pytest.mark.parametrize(
    "status",
    [None, "Unhealthy", {"Unhealthy": 1}, [{"resources": "Unhealthy"}], [told("Unhealthy", 7)]],  # type: ignore[arg-type]
)
def test_what_cannot_be_read_hides_nothing_else_of_the_pod(status: Any) -> None:
    pod = decode.pod(msgspec.json.encode(pod_of(status)), ("nvidia.com/gpu",))

    assert (pod.unhealthy, pod.node, pod.accelerators) == ((), "n1", 1)


def test_a_pod_keeps_no_more_devices_than_a_node_may_have() -> None:
    many = [told("Unhealthy", f"GPU-{number}") for number in range(1000)]

    assert len(read(many)) == 64


def says(world: Worlds, rank: int = 1, *, is_unhealthy: bool = True, **changes: Any) -> Worlds:
    pods = world.pods["llm-uid"]
    unhealthy = (UnhealthyDevice("nvidia.com/gpu", GPU),) if is_unhealthy else ()
    pods[f"llm-{rank}-uid"] = msgspec.structs.replace(pods[f"llm-{rank}-uid"], unhealthy=unhealthy, **changes)
    return world


def test_the_node_is_suspected_while_the_word_stands_and_nothing_is_written() -> None:
    world = says(cluster().running(gang()))

    assert suspected(world.world(), world.now, WINDOW_S) == {"n1": CODE}
    assert not proven(world.world(), world.now)
    for turn in range(30):
        world.later(1)
        says(world, is_unhealthy=turn % 2 == 0)
        assert not plan(world.world(), world.settings, world.now).actions
    assert not suspected(world.world(), world.now, WINDOW_S)


def test_the_word_on_every_node_tells_no_node_from_another() -> None:
    world = cluster().running(gang())
    for rank in range(4):
        says(world, rank)

    assert not suspected(world.world(), world.now, WINDOW_S)


def test_the_word_on_a_pod_that_has_ended_fades() -> None:
    world = says(cluster().running(gang()).crash(rank=1))
    assert world.pods["llm-uid"]["llm-1-uid"].phase is PodPhase.FAILED
    assert suspected(world.world(), world.now, WINDOW_S) == {"n1": CODE}

    world.later(WINDOW_S)
    assert not suspected(world.world(), world.now, WINDOW_S)


def test_while_somebody_works_on_the_driver_the_word_does_not_count() -> None:
    world = says(cluster().running(gang()))
    world.change_node("n1", labels={"nvidia.com/mig.config.state": "pending"})

    assert not suspected(world.world(), world.now, WINDOW_S)


def test_which_pods_hold_the_device_is_told() -> None:
    world = cluster().running(gang())
    pods: list[Pod] = [
        msgspec.structs.replace(pod, unhealthy=(UnhealthyDevice("nvidia.com/gpu", GPU, "fell off"),))
        for pod in world.pods["llm-uid"].values()
    ]

    (word,) = device_words(pods[1:3], NOW, WINDOW_S)
    assert (word.subject.device, word.pods) == (GPU, ("ml/llm-worker-1", "ml/llm-worker-2"))
    (line,) = device_signals(pods[1:3], NOW + timedelta(hours=1))
    assert not missing(line.text, GPU, "nvidia.com/gpu", "fell off", *word.pods)


def test_the_observer_keeps_who_complains_until_the_word_or_the_pod_is_gone() -> None:
    observer = Observer(Scripted(), Settings(), lambda: None)
    pods = observer._caches[PODS]

    def complaining(version: int, status: Any, kind: str = "MODIFIED") -> list[str]:
        body = pod_of(status)
        owner = {"kind": "PyTorchJob", "apiVersion": "kubeflow.org/v1", "name": "llm", "uid": "llm-uid"}
        parts = {"spec": body["spec"], "status": body["status"]}
        one = event(kind, "llm-0", version, **parts)
        raw = msgspec.json.decode(bytes(one.object))
        raw["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        pods.apply(msgspec.structs.replace(one, object=msgspec.Raw(msgspec.json.encode(raw))))
        return list(observer.world(Modes(begun(Mode.RECOVER, NOW))).complaining)

    assert complaining(1, [told("Healthy")]) == []
    assert complaining(2, [told("Unhealthy")]) == ["n1"]
    assert complaining(3, [told("Unknown")]) == []
    assert complaining(4, [told("Unhealthy")]) == ["n1"]
    assert complaining(5, [told("Unhealthy")], "DELETED") == []
