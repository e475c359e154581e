"""Which pod holds which device: ids of device plugins, names and uids, pods that are gone."""

from __future__ import annotations

import pytest

from detectors.folds.holders import Given, HeldDevices, Holders, uids
from detectors.wire.contract import DEVICE_PODS_MAX, Device, DevicePod

GPUS = (Device(uuid="GPU-0"), Device(uuid="GPU-1"), Device(uuid="GPU-2"))
PARENTS = {"MIG-a": "GPU-1", "MIG-b": "GPU-1", "MIG-c": "GPU-2"}


def held(uid: str, *ids: str, resource: str = "nvidia.com/gpu", claims: bool = False) -> HeldDevices:
    given = Given("ml", f"pod-{uid}", {resource: list(ids)}, claims)
    return HeldDevices(DevicePod(uid=uid, namespace="ml", name=given.name), given)


def holders(*pods: HeldDevices) -> Holders:
    found = Holders()
    found.parents(PARENTS)
    found.listed(pods, frozenset(one.pod.uid for one in pods))
    return found


def placed(found: Holders, devices: tuple[Device, ...] = GPUS) -> dict[str, list[str]]:
    """Device -> uids, of the devices that anybody is known to hold."""
    return {device.uuid: [pod.uid for pod in device.pods] for device in found.placed(devices) if device.pods}


@pytest.mark.parametrize(
    ("resource", "ids", "devices"),
    [
        ("nvidia.com/gpu", ["GPU-1"], {"GPU-1"}),
        ("nvidia.com/gpu", ["GPU-1", "GPU-0"], {"GPU-0", "GPU-1"}),
        ("nvidia.com/gpu.shared", ["GPU-1::0", "GPU-1::7"], {"GPU-1"}),
        ("nvidia.com/mig-1g.10gb", ["MIG-a"], {"GPU-1"}),
        ("nvidia.com/mig-1g.10gb.shared", ["MIG-a::2", "MIG-c::0"], {"GPU-1", "GPU-2"}),
        ("nvidia.com/mig-1g.5gb", ["MIG-GPU-2/7/0"], {"GPU-2"}),
        ("nvidia.com/mig-1g.5gb", ["MIG-unheard-of"], set()),
        ("nvidia.com/gpu", ["GPU-1", "GPU-unheard-of"], set()),
        ("nvidia.com/gpu", ["GPU-1-3"], set()),
        ("tencent.com/vcuda-core", ["tencent.com/vcuda-core-12"], set()),
        ("amd.com/gpu", ["0000:38:00.0"], set()),
    ],
)
def test_an_id_names_its_gpu_or_the_pod_may_hold_any(
    resource: str, ids: list[str], devices: set[str]
) -> None:
    assert placed(holders(held("a", *ids, resource=resource))).keys() == devices


def test_a_network_card_beside_the_gpus_hides_nothing_and_a_second_kind_of_gpu_does() -> None:
    plain = {"nvidia.com/gpu": ["GPU-0"], "rdma/hca_shared_devices_a": ["3"], "smarter-devices/fuse": ["f-1"]}
    mixed = {"nvidia.com/gpu": ["GPU-0"], "tencent.com/vcuda-core": ["tencent.com/vcuda-core-1"]}
    pods = [
        HeldDevices(DevicePod(uid=uid, namespace="ml", name=uid), Given("ml", uid, devices))
        for uid, devices in (("plain", plain), ("mixed", mixed))
    ]

    assert placed(holders(*pods)) == {"GPU-0": ["plain"]}


def test_a_pod_with_resource_claims_may_hold_any_device() -> None:
    assert placed(holders(held("a", "GPU-0", claims=True))) == {}


def test_a_mig_device_is_placed_once_the_driver_has_told_its_gpu() -> None:
    found = Holders()
    found.listed([held("a", "MIG-a")], frozenset({"a"}))
    assert placed(found) == {}

    found.parents(PARENTS)

    assert placed(found) == {"GPU-1": ["a"]}


def test_a_pod_that_finds_no_room_at_one_of_its_devices_stands_at_none() -> None:
    many = [held(f"a{n:02}", "GPU-0") for n in range(DEVICE_PODS_MAX)]

    found = placed(holders(*many, held("z", "GPU-0", "GPU-1")))

    assert len(found["GPU-0"]) == DEVICE_PODS_MAX
    assert "GPU-1" not in found, "there it would stand as one that holds nothing else"


def test_a_pod_that_is_gone_is_still_told_and_the_longest_gone_are_forgotten() -> None:
    found = holders(held("a", "GPU-0"), held("b", "GPU-1"))
    found.listed([held("b", "GPU-1")], frozenset({"b"}))
    assert placed(found) == {"GPU-0": ["a"], "GPU-1": ["b"]}

    for n in range(16):
        found.listed([held("b", "GPU-1"), held(f"c{n:02}", "GPU-2")], frozenset({"b", f"c{n:02}"}))
    found.listed([], frozenset({"b"}))

    assert "GPU-0" not in placed(found)
    assert placed(found)["GPU-1"] == ["b"]
    assert len(placed(found)["GPU-2"]) == 16


def test_what_an_earlier_run_published_is_known_until_the_kubelet_says_more() -> None:
    before = holders(held("a", "GPU-0", "GPU-1"), held("b", "MIG-c")).placed(GPUS)
    found = Holders()

    found.restore(before)

    assert found.placed(GPUS) == before
    found.listed([held("b", "GPU-1")], frozenset({"a", "b"}))
    assert placed(found) == {"GPU-0": ["a"], "GPU-1": ["a", "b"]}


def test_a_name_belongs_to_the_one_pod_that_runs() -> None:
    folders = [("ml", "a", "1"), ("ml", "b", "2"), ("ml", "b", "3"), ("ml", "c", "4"), ("ml", "c", "5")]

    assert uids(folders, lambda uid: uid in "1345") == {("ml", "a"): "1", ("ml", "b"): "3"}
