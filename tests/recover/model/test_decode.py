"""Tests objects as other people write them: absent fields, strange quantities, times out of range."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recover.api import Toleration
from recover.api.marks import QUARANTINE, RELEASED
from recover.model import Waiting, decode
from recover.policy.settings import Settings
from recover.workloads.job import Job
from recover.workloads.patches import MARK
from tests.facts import missing

DEEP = '{"x":' + "[" * 100_000
"""JSON that is nested more deeply than Python's stack."""
ACCELERATORS = ("nvidia.com/gpu", "tencent.com/vcuda-core")


def pod(metadata: dict[str, Any], **parts: Any) -> bytes:
    return msgspec.json.encode({"metadata": {"name": "p", "namespace": "ml", **metadata}, **parts})


def test_a_node_of_which_nothing_is_known_yet_is_not_ready() -> None:
    node = decode.node(b'{"metadata":{"name":"n1"}}', ACCELERATORS)

    assert (node.ready, node.ready_since, node.is_accelerated) == (False, None, False)


def test_ten_cards_with_a_hundred_shares_each_are_counted_as_the_api_server_writes_them() -> None:
    """Tencent's GPU-Manager offers 100 shares of each card, and the API server writes 1000 as `1k`."""
    status = {"capacity": {"tencent.com/vcuda-core": "1k"}, "allocatable": {"tencent.com/vcuda-core": "900"}}
    raw = msgspec.json.encode({"metadata": {"name": "n1"}, "status": status})

    node = decode.node(raw, ACCELERATORS)

    assert (node.accelerators, node.capacity) == (10, {"tencent.com/vcuda-core": 1000})
    assert node.allocatable == {"tencent.com/vcuda-core": 900}


@pytest.mark.parametrize("note", ["", "{", "[]", '{"incident":"i"}', '{"incident":1}', "null", DEEP])
@pytest.mark.parametrize("released", ["", "yesterday", "2026-11-21T12:00:00", "0000"])
def test_our_own_annotations_on_a_node_may_be_garbled_by_people(note: str, released: str) -> None:
    annotations = {QUARANTINE: note, RELEASED: released}
    raw = msgspec.json.encode({"metadata": {"name": "n1", "annotations": annotations}})

    node = decode.node(raw, ACCELERATORS)

    assert (node.quarantine, node.released_at) == (None, None)


@pytest.mark.parametrize(
    "mark", ["", "{", "[]", "null", '{"recovery":"r","attempt":"x","did":"stopped"}', DEEP]
)
def test_a_garbled_mark_on_a_job_is_no_mark(mark: str) -> None:
    raw = msgspec.json.encode({"metadata": {"name": "j", "annotations": {MARK: mark}}, "spec": {}})

    assert Job().parse(raw).mark is None


def test_of_a_pods_tolerations_those_that_every_pod_has_are_left_out() -> None:
    told = [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300},
        {"operator": "Exists", "tolerationSeconds": 60},
    ]

    found = decode.pod(pod({}, spec={"tolerations": told}), ACCELERATORS)

    assert found.tolerations == (
        Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule"),
        Toleration(operator="Exists"),
    )


@given(grace_s=st.integers(0, 2**63 - 1), year=st.integers(1, 9999))
def test_a_pod_deleted_with_any_grace_period_can_be_read(grace_s: int, year: int) -> None:
    metadata = {
        "deletionTimestamp": f"{year:04}-06-01T00:00:00Z",
        "deletionGracePeriodSeconds": grace_s,
    }

    found = decode.pod(pod(metadata), ACCELERATORS)

    assert found.deleting_since is not None
    assert found.deleting_until == datetime(year, 6, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("limits", "count"),
    [
        ({"nvidia.com/gpu": "8"}, 8),
        ({"nvidia.com/gpu": 8}, 8),
        ({"nvidia.com/mig-1g.10gb": "2"}, 2),
        ({"tencent.com/vcuda-core": "30", "tencent.com/vcuda-memory": "60"}, 1),
        ({"tencent.com/vcuda-core": "150"}, 2),
        ({"tencent.com/vcuda-core": "1k"}, 10),
        ({"nvidia.com/mps-core": "50", "nvidia.com/mps-memory": "8"}, 1),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}, 1),
        ({"huawei.com/Ascend910B4": "2", "huawei.com/Ascend910B4-memory": "32768"}, 2),
        ({"iluvatar.ai/BI-V150-vgpu": "1", "iluvatar.ai/BI-V150.vCore": "50"}, 1),
        ({"iluvatar.ai/BI-V200-vgpu": "2", "iluvatar.ai/BI-V200.vMem": "64"}, 2),
        ({"iluvatar.com/gpu": "8"}, 8),
        ({"huawei.com/Ascend910": "16"}, 16),
        ({"huawei.com/npu": "8"}, 8),
        ({"huawei.com/Ascend910-8c": "1"}, 1),
        ({"huawei.com/Ascend910-12c.3cpu.32g": "1"}, 1),
        ({"huawei.com/Ascend310P-4c.3cpu.ndvpp": "1", "huawei.com/Ascend310P-2c": "1"}, 2),
        ({"huawei.com/Ascend310P-V": "1", "huawei.com/Ascend310P-VPro": "1"}, 2),
        ({"huawei.com/Ascend310P": "1", "huawei.com/Ascend310P-memory": "21527"}, 1),
        ({"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "3000"}, 1),
        ({"nvidia.com/gpu": "eight"}, 0),
        ({"cpu": "4"}, 0),
        ({}, 0),
    ],
)
def test_a_pods_accelerators_are_counted_from_its_limits(limits: dict[str, Any], count: int) -> None:
    """The resources have the names of the default settings. Part of a card counts as one card, whatever
    unit the parts have."""
    spec = {"containers": [{"name": "c", "resources": {"limits": limits}}]}

    assert decode.pod(pod({}, spec=spec), Settings().accelerators).accelerators == count


@pytest.mark.parametrize(
    ("spec", "preempts"),
    [
        ({"preemptionPolicy": "Never"}, False),
        ({"preemptionPolicy": "PreemptLowerPriority"}, True),
        ({}, True),
    ],
)
def test_whether_the_scheduler_evicts_others_for_a_pod_is_read(spec: dict[str, Any], preempts: bool) -> None:
    assert decode.pod(pod({}, spec=spec), ACCELERATORS).preempts is preempts


@pytest.mark.parametrize(
    ("spec", "may_hold"),
    [
        ({"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]}, True),
        ({"resourceClaims": []}, False),
        ({}, False),
    ],
)
def test_a_pod_with_a_resource_claim_may_hold_devices(spec: dict[str, Any], may_hold: bool) -> None:
    found = decode.pod(pod({}, spec=spec), ACCELERATORS)

    assert (found.accelerators, found.may_hold_devices) == (0, may_hold)


def asking(
    count: int | str, name: str = "c", resource: str = "nvidia.com/gpu", **more: str
) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": {resource: count}}, **more}


def sidecar(count: int | str, resource: str = "nvidia.com/gpu") -> dict[str, Any]:
    return asking(count, "side", resource, restartPolicy="Always")


@pytest.mark.parametrize(
    ("init", "containers", "held"),
    [
        ([sidecar(2)], [{"name": "c"}], 2),
        ([sidecar(1)], [asking(4)], 5),
        ([asking(8)], [asking(4)], 8),
        ([asking(2), asking(2)], [asking(4)], 4),
        ([sidecar(1), asking(4)], [asking(2)], 5),
        ([asking(4), sidecar(1)], [asking(2)], 4),
        ([asking(8, restartPolicy="Never")], [{"name": "c"}], 8),
        ([sidecar(2), sidecar(3)], [], 5),
        ([{"name": "wait"}], [asking(8)], 8),
    ],
)
def test_init_containers_and_sidecars_hold_what_the_scheduler_keeps_for_them(
    init: list[dict[str, Any]], containers: list[dict[str, Any]], held: int
) -> None:
    spec = {"initContainers": init, "containers": containers}

    found = decode.pod(pod({}, spec=spec), ACCELERATORS)

    assert found.accelerators == held
    assert found.requests == (("nvidia.com/gpu", held),)


def test_what_init_containers_hold_is_counted_for_each_resource() -> None:
    spec = {
        "initContainers": [asking("250", resource="tencent.com/vcuda-core"), sidecar(1)],
        "containers": [asking("30", resource="tencent.com/vcuda-core"), asking(2, "d")],
    }

    found = decode.pod(pod({}, spec=spec), ACCELERATORS)

    assert found.requests == (("nvidia.com/gpu", 3), ("tencent.com/vcuda-core", 250))
    assert found.accelerators == 6, "part of a card is one card"


def test_the_last_ending_of_a_container_is_read_while_its_next_instance_runs() -> None:
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-11-21T12:00:00Z"}}
    status = {"name": "c", "restartCount": 1, "state": {"running": {}}, "lastState": ended}

    (container,) = decode.pod(pod({}, status={"containerStatuses": [status]}), ACCELERATORS).containers

    assert (container.running, container.exit_code, container.reason) == (True, 137, "OOMKilled")


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z", None])
def test_a_runtimes_zero_is_no_time_at_which_a_container_ended(at: str | None) -> None:
    state = {"terminated": {"exitCode": 255, "reason": "Unknown", "finishedAt": at}}
    status = {"containerStatuses": [{"name": "c", "state": state}]}

    (container,) = decode.pod(pod({}, status=status), ACCELERATORS).containers

    assert (container.exit_code, container.finished_at) == (255, None)


@pytest.mark.parametrize(("asks", "beside"), [(True, [False, True]), (False, [False, False])])
def test_a_container_without_accelerators_stands_beside_one_that_asks_for_some(
    asks: bool, beside: list[bool]
) -> None:
    train = {"name": "train", "resources": {"limits": {"nvidia.com/gpu": "8"}} if asks else {}}
    spec = {"containers": [{"name": "proxy"}, train]}
    status = {"containerStatuses": [{"name": "train"}, {"name": "proxy"}]}

    found = decode.pod(pod({}, spec=spec, status=status), ACCELERATORS)

    assert [container.beside for container in found.containers] == beside


def test_what_a_container_waits_for_is_read_in_its_kubelets_words() -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    statuses = [{"name": "c", "state": {"waiting": waiting}}, {"name": "d", "state": {"waiting": {}}}]

    first, second = decode.pod(pod({}, status={"containerStatuses": statuses}), ACCELERATORS).containers

    assert first.waiting == Waiting(waiting["reason"], waiting["message"])
    assert second.waiting == Waiting()


def test_why_a_kubelet_ended_a_whole_pod_is_read() -> None:
    status = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}

    found = decode.pod(pod({}, status=status), ACCELERATORS)

    assert not missing(found.failure, status["reason"], status["message"])


def test_a_pod_reads_a_config_map_if_all_its_training_containers_do() -> None:
    ours = [{"secretRef": {"name": "s"}}, {"configMapRef": {"name": "llm-rekindle", "optional": True}}]
    gpu = {"limits": {"nvidia.com/gpu": "8"}}
    beside = {"name": "logs"}
    reading = {"name": "train", "resources": gpu, "envFrom": ours}
    deaf = {"name": "eval", "resources": gpu}

    def environments(*containers: dict[str, Any]) -> tuple[str, ...]:
        return decode.pod(pod({}, spec={"containers": containers}), ACCELERATORS).environments

    assert environments(reading, beside) == ("llm-rekindle",)
    assert environments(reading, deaf) == ()
    assert environments(beside) == ()
    assert environments() == ()


def test_a_watched_label_tells_when_it_was_written_and_others_do_not() -> None:
    def entry(label: str, at: str, **more: str) -> dict[str, Any]:
        fields = {"f:metadata": {"f:labels": {f"f:{label}": {}}}}
        return {"manager": "gpu-operator", "time": at, "fieldsV1": fields, **more}

    watched, absent = "nvidia.com/mig.config.state", "nvidia.com/gpu-driver-upgrade-state"
    raw = msgspec.json.encode(
        {
            "metadata": {
                "name": "n1",
                "labels": {watched: "pending", "zone": "a"},
                "managedFields": [
                    entry(watched, "2026-11-21T12:00:00Z"),
                    entry(watched, "2026-11-21T12:05:00Z"),
                    entry(watched, "2026-11-21T13:00:00Z", subresource="status"),
                    entry("zone", "2026-11-21T14:00:00Z"),
                    entry(absent, "2026-11-21T15:00:00Z"),
                    {"manager": "kubelet"},
                ],
            }
        }
    )

    node = decode.node(raw, ACCELERATORS, {watched, absent})

    assert node.labelled_at == {watched: datetime(2026, 11, 21, 12, 5, tzinfo=UTC)}
    assert decode.node(raw, ACCELERATORS).labelled_at == {}


asks = st.dictionaries(
    st.sampled_from(["nvidia.com/gpu", "nvidia.com/mig-1g.5gb"]), st.integers(0, 9), max_size=2
)
inits = st.lists(st.tuples(st.booleans(), asks), max_size=6)


def held_by_rule(init: list[tuple[bool, dict[str, int]]], beside: list[dict[str, int]]) -> int:
    """Computes the number step by step, as the scheduler's documentation describes it."""
    total = 0
    for name in ("nvidia.com/gpu", "nvidia.com/mig-1g.5gb"):
        stays, most = 0, 0
        for is_sidecar, asked in init:
            most = max(most, stays + asked.get(name, 0))
            stays += asked.get(name, 0) if is_sidecar else 0
        total += max(most, stays + sum(asked.get(name, 0) for asked in beside))
    return total


@given(inits, st.lists(asks, max_size=4))
def test_whatever_containers_ask_for_is_held_as_the_scheduler_does(
    init: list[tuple[bool, dict[str, int]]], beside: list[dict[str, int]]
) -> None:
    def limits(asked: dict[str, int]) -> dict[str, Any]:
        return {"name": "c", "resources": {"limits": {name: str(count) for name, count in asked.items()}}}

    always = {"restartPolicy": "Always"}
    spec = {
        "initContainers": [limits(asked) | (always if stays else {}) for stays, asked in init],
        "containers": [limits(asked) for asked in beside],
    }
    body = {"metadata": {"name": "p", "namespace": "ml", "uid": "u"}, "spec": spec}

    found = decode.pod(msgspec.json.encode(body), ("nvidia.com/gpu", "nvidia.com/mig-"))

    assert found.accelerators == held_by_rule(init, beside)


def test_many_containers_beside_many_resources_cost_their_sum_and_not_their_product() -> None:
    many = {f"nvidia.com/mig-{number}": "1" for number in range(3500)}
    first = {"name": "s", "restartPolicy": "Always", "resources": {"limits": many}}
    spec = {
        "initContainers": [first, *[{"name": f"c{n}"} for n in range(1600)]],
        "containers": [{"name": "c"}] * 1600,
    }
    body = msgspec.json.encode({"metadata": {"name": "p", "namespace": "ml", "uid": "u"}, "spec": spec})
    began_s = time.process_time()

    found = decode.pod(body, ("nvidia.com/mig-",))

    assert found.accelerators == 3500
    assert time.process_time() - began_s < 1.0, "it took 6.7 s"
