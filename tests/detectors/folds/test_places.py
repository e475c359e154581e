"""Tests which containers the agent publishes if a node has more than there is room for."""

from __future__ import annotations

import msgspec
import pytest

from detectors.folds.core import AgentCore, Dirty
from detectors.folds.holders import Given, HeldDevices
from detectors.folds.status_size import bounded
from detectors.rules.facts import PodRef
from detectors.service.settings import AgentSettings
from detectors.wire.contract import PODS_MAX, DevicePod, NodeHealthSpec, NodeHealthStatus
from detectors.wire.training import PodSettings
from tests.detectors.folds.folding import START, at

RANK = PodRef("train", "llm-0", "rank-uid", "main", 0)
TIGHT_BYTES = 6000


def agent() -> AgentCore:
    return AgentCore(AgentSettings(), boot_id="1" * 8)


def steps(core: AgentCore, ref: PodRef, since_s: float) -> None:
    for step in (1, 2):
        core.log_line(ref, f"step: {step} loss: 2.5", at(since_s + step))


def holds_device(core: AgentCore, ref: PodRef = RANK) -> None:
    pod = DevicePod(uid=ref.uid, namespace=ref.namespace, name=ref.name)
    given = Given(ref.namespace, ref.name, {"nvidia.com/gpu": ["GPU-1"]})
    core.pods_listed([HeldDevices(pod, given)], frozenset({ref.uid}))


def of_one_pod(core: AgentCore, *, many: int = 66, namespace: str = "others") -> None:
    for number in range(many):
        steps(core, PodRef(namespace, "crowd", f"{namespace}-crowd", f"c{number}", 0), 100 + number)


def of_many_pods(core: AgentCore, *, many: int = 66, namespace: str = "others") -> None:
    for number in range(many):
        steps(core, PodRef(namespace, f"crowd-{number}", f"{namespace}-{number}", "c", 0), 100 + number)


def uids(status: NodeHealthStatus) -> set[str]:
    return {pod.uid for pod in status.pods}


@pytest.mark.parametrize("crowd", [of_one_pod, of_many_pods])
def test_a_rank_that_holds_devices_keeps_its_place_though_all_other_edges_are_newer(crowd) -> None:  # type: ignore[no-untyped-def]
    core = agent()
    holds_device(core)
    steps(core, RANK, 0)
    crowd(core)

    status = core.status(at(500))

    assert RANK.uid in uids(status)
    assert len(status.pods) == PODS_MAX
    assert (status.pods_left_out, status.whole_pods) == (True, [RANK.uid])


def test_a_rank_that_the_controller_names_keeps_its_place() -> None:
    core = agent()
    core.spec(NodeHealthSpec(pods=[PodSettings(uid=RANK.uid)]))
    steps(core, RANK, 0)
    of_one_pod(core)

    assert RANK.uid in uids(core.status(at(500)))


@pytest.mark.parametrize("crowd", [of_one_pod, of_many_pods])
def test_each_namespace_has_its_share_of_the_places_of_pods_without_devices(crowd) -> None:  # type: ignore[no-untyped-def]
    core = agent()
    for rank in range(8):
        steps(core, msgspec.structs.replace(RANK, uid=f"cpu-{rank}"), rank)
    crowd(core, many=200)

    assert {f"cpu-{rank}" for rank in range(8)} <= uids(core.status(at(500)))


def test_a_pod_of_many_containers_takes_no_places_from_the_other_pods_of_its_namespace() -> None:
    core = agent()
    steps(core, RANK, 0)
    of_one_pod(core, namespace=RANK.namespace)

    assert RANK.uid in uids(core.status(at(500)))


def test_a_pod_with_devices_and_many_containers_takes_no_places_from_another_namespaces_ranks() -> None:
    core = agent()
    holds_device(core)
    holds_device(core, PodRef("others", "crowd", "others-crowd", "c0", 0))
    steps(core, RANK, 0)
    of_one_pod(core)

    status = core.status(at(500))

    assert RANK.uid in uids(status)
    assert status.whole_pods == [RANK.uid], "of the crowd's own pod not all containers are published"


def test_while_all_have_room_nothing_is_said() -> None:
    core = agent()
    holds_device(core)
    steps(core, RANK, 0)

    status = core.status(at(500))

    assert (status.pods_left_out, status.whole_pods) == (False, [])


def test_a_list_without_room_that_is_not_cut_names_the_whole_pods_too() -> None:
    core = agent()
    holds_device(core)
    of_one_pod(core, many=PODS_MAX)

    status = core.status(at(500))

    assert (len(status.pods), status.pods_left_out, status.whole_pods) == (PODS_MAX, False, [RANK.uid])


def test_where_the_status_is_too_large_the_rank_goes_last_and_it_is_said_that_others_went() -> None:
    core = agent()
    holds_device(core)
    steps(core, RANK, 0)
    of_many_pods(core, many=40)

    status = bounded(core.status(at(500)), TIGHT_BYTES, priority_uids=core.priority_pods)

    assert RANK.uid in uids(status)
    assert (status.pods_left_out, status.whole_pods) == (True, [RANK.uid])


def test_of_a_rank_whose_log_is_not_read_it_is_not_said_that_nothing_is_left_out() -> None:
    core = agent()
    holds_device(core)
    core.mark_written()
    core.logs_left_out(frozenset({RANK.uid}))

    status = core.status(START)

    assert core.dirty is Dirty.EDGE
    assert (status.pods_left_out, status.whole_pods) == (True, [])


def test_a_rank_that_comes_into_a_crowd_without_a_word_is_told_of_at_the_next_refresh() -> None:
    core = agent()
    of_one_pod(core)
    core.mark_written()
    holds_device(core)

    assert core.dirty is Dirty.COARSE
    assert core.status(at(500)).whole_pods == [RANK.uid]
