"""Tests how many devices a node must show after its repair, and that nobody guesses this number if devices
are shared."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from detectors.wire.contract import (
    Device,
    Fault,
    Finding,
    NodeHealth,
    NodeHealthStatus,
    Origin,
    Severity,
    Subject,
    SubjectKind,
)
from recover.model import Node
from recover.repair.device_count import devices_expected

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
GPU = {"nvidia.com/gpu": 8}
NONE: Mapping[str, str] = {}


def node(
    capacity: Mapping[str, int] = GPU, labels: Mapping[str, str] = NONE, annotations: Mapping[str, str] = NONE
) -> Node:
    return Node(
        "n1",
        "u1",
        "1",
        labels=labels,
        annotations=annotations,
        capacity=capacity,
        accelerators=sum(capacity.values()),
    )


def health(devices: int, *, lost: str = "") -> NodeHealth:
    listed = [Device(uuid=f"GPU-{n}", pci=f"0000:{n:02x}:00.0") for n in range(devices)]
    finding = Finding(
        id="1",
        code="xid-79",
        fault=Fault.DEVICE_LOST,
        origin=Origin.KERNEL,
        severity=Severity.FATAL,
        subject=Subject(kind=SubjectKind.DEVICE, pci=lost),
        boot_id="b",
        first_seen=NOW,
        last_seen=NOW,
    )
    findings = [finding] if lost else []
    return NodeHealth(status=NodeHealthStatus(boot_id="b", devices=listed, findings=findings))


@pytest.mark.parametrize(
    ("capacity", "labels", "annotations"),
    [
        ({"nvidia.com/gpu": 80}, {"nvidia.com/gpu.replicas": "10"}, {}),
        ({"nvidia.com/gpu.shared": 80}, {}, {}),
        ({"nvidia.com/mig-1g.10gb": 56}, {"nvidia.com/mig.strategy": "mixed"}, {}),
        ({"nvidia.com/mig-1g.10gb": 56}, {}, {}),
        ({"nvidia.com/gpu": 56}, {"nvidia.com/mig.strategy": "single"}, {}),
        ({"nvidia.com/gpu": 80}, {}, {"hami.io/node-nvidia-register": "[]"}),
        ({"tencent.com/vcuda-core": 800}, {}, {}),
        ({"nvidia.com/mps-core": 800}, {}, {}),
        ({"huawei.com/Ascend910": 8}, {}, {}),
    ],
    ids=["time slicing", "renamed", "MIG mixed", "MIG", "MIG single", "HAMi", "GPU-Manager", "MPS", "Ascend"],
)
def test_places_on_shared_devices_and_those_of_other_vendors_are_no_count_of_gpus(
    capacity: dict[str, int], labels: dict[str, str], annotations: dict[str, str]
) -> None:
    shared = node(capacity, labels, annotations)

    assert devices_expected(shared, None) == 0, "nobody knows"
    assert devices_expected(shared, health(8)) == 8, "the agent lists whole devices"


def test_whole_devices_are_counted_by_what_the_kubelet_offers() -> None:
    whole = node(labels={"nvidia.com/gpu.replicas": "1", "nvidia.com/mig.strategy": "none"})

    assert devices_expected(whole, None) == 8


def test_the_label_counts_where_devices_are_shared_in_time() -> None:
    shared = node({"nvidia.com/gpu": 80}, {"nvidia.com/gpu.replicas": "10", "nvidia.com/gpu.count": "8"})

    assert devices_expected(shared, health(7)) == 8


def test_the_label_of_mig_devices_is_no_count_of_gpus() -> None:
    product = {"nvidia.com/mig.strategy": "single", "nvidia.com/gpu.product": "NVIDIA-H100-MIG-1g.10gb"}
    split = node({"nvidia.com/gpu": 56}, {**product, "nvidia.com/gpu.count": "56"})

    assert devices_expected(split, None) == 0
    assert devices_expected(split, health(8)) == 8


def test_a_lost_device_that_the_agent_lists_no_more_is_still_expected() -> None:
    assert devices_expected(node(), health(7, lost="0000:38:00")) == 8
    assert devices_expected(node(), health(8, lost="0000:03:00")) == 8, "that one is listed"
    assert devices_expected(node(), health(0, lost="0000:38:00")) == 8, "then the kubelet's word counts"


@pytest.mark.parametrize("text", ["", "eight", "-8", "8888", "8.0"])
def test_a_label_that_is_no_count_is_not_read(text: str) -> None:
    assert devices_expected(node(labels={"nvidia.com/gpu.count": text}), None) == 8


def test_an_agent_that_lists_fewer_devices_than_the_kubelet_offers_lets_no_node_pass_that_is_short() -> None:
    assert devices_expected(node(), health(1)) == 8
