"""Tests which pod uses which device: ids of device plugins, names and uids, pods that are gone."""

from __future__ import annotations

import pytest

from detectors.folds.holders import Claimed, Given, HeldDevices, Holders, MigDevice, Sharing, uids
from detectors.wire.contract import DEVICE_PODS_MAX, INSTANCE_PODS_MAX, Device, DevicePod
from detectors.wire.instance_pods import instances_of

GPUS = (Device(uuid="GPU-0"), Device(uuid="GPU-1"), Device(uuid="GPU-2"))
MIG_DEVICES = {
    "MIG-a": MigDevice("GPU-1", instance=7),
    "MIG-b": MigDevice("GPU-1", instance=8),
    "MIG-c": MigDevice("GPU-2"),
}


def held(
    uid: str, *ids: str, resource: str = "nvidia.com/gpu", claims: tuple[Claimed, ...] = ()
) -> HeldDevices:
    given = Given("ml", f"pod-{uid}", {resource: list(ids)}, claims)
    return HeldDevices(DevicePod(uid=uid, namespace="ml", name=given.name), given)


def holders(*pods: HeldDevices) -> Holders:
    found = Holders()
    found.mig_devices(MIG_DEVICES)
    found.listed(pods, frozenset(one.pod.uid for one in pods))
    return found


def placed(found: Holders, devices: tuple[Device, ...] = GPUS) -> dict[str, list[str]]:
    """Returns the uids of the pods on each device that is known to be in use."""
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


def test_a_pod_that_has_ended_shares_its_gpu_with_nobody() -> None:
    found = holders(held("a", "GPU-1"))
    found.listed([held("b", "GPU-1")], frozenset({"a", "b"}))  # the log of a still exists

    (share,) = found.shares(GPUS)
    assert (share.pod.uid, share.sharing) == ("b", Sharing.WHOLE)
    assert found.sole(GPUS, "GPU-1", None) == share.pod
    assert placed(found) == {"GPU-1": ["a", "b"]}, "it may have been harmed all the same"


def test_a_network_card_beside_the_gpus_hides_nothing_and_a_second_kind_of_gpu_does() -> None:
    plain = {"nvidia.com/gpu": ["GPU-0"], "rdma/hca_shared_devices_a": ["3"], "smarter-devices/fuse": ["f-1"]}
    mixed = {"nvidia.com/gpu": ["GPU-0"], "tencent.com/vcuda-core": ["tencent.com/vcuda-core-1"]}
    pods = [
        HeldDevices(DevicePod(uid=uid, namespace="ml", name=uid), Given("ml", uid, devices))
        for uid, devices in (("plain", plain), ("mixed", mixed))
    ]

    assert placed(holders(*pods)) == {"GPU-0": ["plain"]}


WITH_FILES = tuple(Device(uuid=f"GPU-{n}", minor=n, index=n) for n in range(3))


@pytest.mark.parametrize(
    ("claimed", "devices"),
    [
        (Claimed("gpu.nvidia.com", "gpu-1"), {"GPU-0", "GPU-1"}),
        (Claimed("gpu.nvidia.com", "gpu-2-mig-1g10gb-19-0"), {"GPU-0", "GPU-2"}),
        (Claimed("compute-domain.nvidia.com", "channel-0"), {"GPU-0"}),
        (Claimed("gpu.nvidia.com", "gpu-9"), set()),
        (Claimed("gpu.nvidia.com", "gpu-vfio-0"), set()),
        (Claimed("gpu.example.com", "gpu-1"), set()),
        (Claimed(), set()),
    ],
)
def test_a_claimed_device_names_its_gpu_or_the_pod_may_hold_any(claimed: Claimed, devices: set[str]) -> None:
    found = holders(held("a", "GPU-0", claims=(claimed,)))

    assert placed(found, WITH_FILES).keys() == devices


@pytest.mark.parametrize(
    "devices",
    [
        (Device(uuid="GPU-0", minor=1, index=0), Device(uuid="GPU-1", minor=0, index=1)),
        (Device(uuid="GPU-0", minor=0), Device(uuid="GPU-1", minor=0)),
        (Device(uuid="GPU-0", index=0), Device(uuid="GPU-1", index=1)),
    ],
    ids=["counted in another order", "one number twice", "without device files"],
)
def test_a_claimed_device_whose_number_may_mean_another_gpu_may_be_any(devices: tuple[Device, ...]) -> None:
    found = holders(held("a", claims=(Claimed("gpu.nvidia.com", "gpu-0"),)))

    assert placed(found, devices) == {}


@pytest.mark.parametrize(
    ("ids", "instances"),
    [
        (["MIG-a"], [7]),
        (["MIG-a::1"], [7]),
        (["MIG-a", "MIG-b"], [7, 8]),
        (["MIG-GPU-1/5/0"], [5]),
        (["MIG-GPU-1/five/0"], []),
        (["MIG-a", "GPU-1"], []),
        (["GPU-1"], []),
    ],
)
def test_a_pod_stands_with_the_instances_that_it_holds_or_with_none_for_all(
    ids: list[str], instances: list[int]
) -> None:
    device = holders(held("a", *ids)).placed(GPUS)[1]

    assert [pod.uid for pod in device.pods] == ["a"]
    assert device.instance_pods == [f"{instance}/a" for instance in instances]


@pytest.mark.parametrize(
    ("ids", "device", "instances"),
    [
        (["nvidia1"], "GPU-1", []),
        (["nvidia1/vgpu3"], "GPU-1", []),
        (["nvidia1/gi5"], "GPU-1", ["5/a"]),
        (["nvidia1/gi5/vgpu0", "nvidia1/gi6/vgpu2"], "GPU-1", ["5/a", "6/a"]),
        (["nvidia9"], "", []),
        (["nvidia1/gi5/ci0"], "", []),
        (["nvidia"], "", []),
    ],
)
def test_ids_of_gke_name_the_gpu_by_its_device_file(
    ids: list[str], device: str, instances: list[str]
) -> None:
    found = holders(held("a", *ids)).placed(WITH_FILES)

    assert {one.uuid for one in found if one.pods} == ({device} if device else set())
    assert [entry for one in found for entry in one.instance_pods] == instances


def test_a_pod_of_an_instance_that_is_not_known_holds_the_whole_gpu() -> None:
    device = holders(held("a", "MIG-c")).placed(GPUS)[2]

    assert ([pod.uid for pod in device.pods], device.instance_pods) == (["a"], [])


def test_a_pod_whose_instances_find_no_room_holds_the_whole_gpu() -> None:
    each = [f"MIG-GPU-1/{number}/0" for number in range(4)]

    device = holders(*(held(f"a{n:02}", *each) for n in range(40))).placed(GPUS)[1]

    assert (len(device.pods), len(device.instance_pods)) == (40, INSTANCE_PODS_MAX)
    told = instances_of(device)
    assert told["a31"] == frozenset(range(4))
    assert "a32" not in told


@pytest.mark.parametrize("entry", ["x/a", "/a", "-1/a", "12345/a", "a"])
def test_an_entry_that_cannot_be_read_leaves_its_pod_the_whole_gpu(entry: str) -> None:
    assert instances_of(Device(uuid="GPU-0", instance_pods=["5/a", entry, "6/b"])).get("b") == {6}
    assert entry == "a" or "a" not in instances_of(Device(uuid="GPU-0", instance_pods=["5/a", entry]))


def test_a_mig_device_is_placed_once_the_driver_has_told_its_gpu() -> None:
    found = Holders()
    found.listed([held("a", "MIG-a")], frozenset({"a"}))
    assert placed(found) == {}

    found.mig_devices(MIG_DEVICES)

    assert placed(found) == {"GPU-1": ["a"]}


def test_a_lost_gpu_whose_mig_devices_nvml_no_longer_shows_keeps_their_pods() -> None:
    found = holders(held("a", "MIG-a"), held("b", "MIG-c"))

    found.mig_devices({"MIG-c": MIG_DEVICES["MIG-c"]})

    assert placed(found) == {"GPU-1": ["a"], "GPU-2": ["b"]}
    found.mig_devices({"MIG-b": MIG_DEVICES["MIG-b"]})
    assert placed(found) == {"GPU-2": ["b"]}, "the GPU was divided in another way"


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
    before = holders(held("a", "GPU-0", "GPU-1"), held("b", "MIG-c"), held("c", "MIG-a")).placed(GPUS)
    found = Holders()

    found.restore(before)

    assert found.placed(GPUS) == before
    found.listed([held("b", "GPU-1")], frozenset({"a", "b", "c"}))
    assert placed(found) == {"GPU-0": ["a"], "GPU-1": ["a", "b", "c"]}


def test_pods_on_mig_devices_keep_what_an_earlier_run_published_until_nvml_answers() -> None:
    """After its start the agent hears from the kubelet before it hears from NVML, which may never answer
    while a GPU is broken."""
    before = holders(held("a", "MIG-a"), held("b", "MIG-c"), held("c", "MIG-a", "GPU-0")).placed(GPUS)
    found = Holders()
    found.restore(before)

    found.listed([held("a", "MIG-a"), held("b", "MIG-c"), held("new", "MIG-b")], frozenset("abc") | {"new"})

    assert found.placed(GPUS) == before
    found.mig_devices(MIG_DEVICES)
    assert placed(found) == {"GPU-0": ["c"], "GPU-1": ["a", "c", "new"], "GPU-2": ["b"]}


def test_a_name_belongs_to_the_one_pod_that_runs() -> None:
    folders = [("ml", "a", "1"), ("ml", "b", "2"), ("ml", "b", "3"), ("ml", "c", "4"), ("ml", "c", "5")]

    assert uids(folders, lambda uid: uid in "1345") == {("ml", "a"): "1", ("ml", "b"): "3"}
