"""A gang that its framework has mended by itself trains on, and is left alone."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from detectors.contract import Edge
from tests.builders import Worlds, cluster, gang


def replaced(world: Worlds, rank: int, *, ago_s: float, node: str, steps: bool = True) -> Worlds:
    """The framework keeps the failed pod, and has made another one in its place."""
    old = world.pods["llm-uid"][f"llm-{rank}-uid"]
    created = world.now - timedelta(seconds=ago_s)
    new = msgspec.structs.replace(
        old,
        uid=f"llm-{rank}-new-uid",
        name=f"llm-{rank}-new",
        node=node,
        created=created,
        deleting_since=None,
    )
    world.pods["llm-uid"][new.uid] = new
    if steps:
        world.progress(new, Edge.STEPPING, at=created + timedelta(seconds=30))
    return world


def test_a_job_that_keeps_a_failed_pod_and_trains_with_its_replacement_is_not_stopped() -> None:
    world = replaced(cluster(nodes=8).running(gang(ranks=2)), 1, ago_s=110, node="n4")

    assert world.crash(rank=1, ago_s=120).decide().restarts == []


def test_a_replacement_that_makes_no_step_brings_no_gang_back() -> None:
    world = replaced(cluster(nodes=8).running(gang(ranks=2)), 1, ago_s=110, node="n4", steps=False)

    assert world.crash(rank=1, ago_s=120).decide().restarts == ["llm"]


def test_of_two_lost_ranks_one_replacement_is_not_enough() -> None:
    world = replaced(cluster(nodes=8).running(gang(ranks=3)), 1, ago_s=110, node="n4")

    assert world.crash(rank=1, ago_s=120).crash(rank=2, ago_s=119).decide().restarts == ["llm"]


def test_a_pod_that_lingers_on_a_silent_node_does_not_stop_the_gang_that_trains_without_it() -> None:
    world = replaced(cluster(nodes=8).running(gang(ranks=2)), 1, ago_s=110, node="n4").not_ready(
        "n1", ago_s=400
    )
    pod = world.pods["llm-uid"]["llm-1-uid"]
    told_to_go = world.now - timedelta(seconds=115)
    world.pods["llm-uid"][pod.uid] = msgspec.structs.replace(pod, deleting_since=told_to_go)

    assert world.decide().restarts == []
