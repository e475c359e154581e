"""Tests which container of a pod counts for its training, if the node's agent reports several."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from detectors.wire.training import Edge, PodProgress
from tests.builders import NOW, cluster, gang


def told(*containers: PodProgress) -> PodProgress | None:
    world = cluster(nodes=2).running(gang("llm", ranks=1), stepping=False)
    (pod,) = world.pods["llm-uid"].values()
    health = world.health[pod.node]
    pods = [msgspec.structs.replace(one, uid=pod.uid) for one in containers]
    status = msgspec.structs.replace(health.status, pods=pods)
    world.health[pod.node] = msgspec.structs.replace(health, status=status)
    return world.world().progress(pod)


def container(
    name: str, edge: Edge, steps: tuple[int, int] | None, *, ago_s: float, instance: int = 0
) -> PodProgress:
    first, last = steps or (None, None)
    return PodProgress(
        uid="",
        namespace="ml",
        name="llm-worker-0",
        container=name,
        instance=instance,
        edge=edge,
        at=NOW - timedelta(seconds=ago_s),
        first_step=first,
        last_step=last,
    )


def test_a_side_container_that_names_a_step_once_never_hides_the_one_whose_steps_advance() -> None:
    train = container("train", Edge.STEPPING, (1, 900), ago_s=3600)
    logger = container("logger", Edge.STALLED, (3, 3), ago_s=5, instance=4)

    assert told(train, logger) == told(logger, train)
    assert (found := told(train, logger)) is not None
    assert found.container == "train"


def test_a_side_container_that_ended_with_an_error_does_not_hide_the_training() -> None:
    found = told(
        container("train", Edge.STEPPING, (1, 1), ago_s=60), container("side", Edge.ENDED, None, ago_s=5)
    )

    assert found is not None
    assert found.container == "train"


def test_the_newest_instance_of_the_training_container_counts_and_not_its_longest() -> None:
    found = told(
        container("train", Edge.ENDED, (1, 900), ago_s=60),
        container("train", Edge.STEPPING, (880, 880), ago_s=5, instance=1),
    )

    assert found is not None
    assert (found.instance, found.edge) == (1, Edge.STEPPING)


def test_a_container_that_has_only_printed_a_line_of_a_recipe_says_nothing_of_progress() -> None:
    assert told(container("train", Edge.STARTED, None, ago_s=5)) is None


def test_the_first_line_of_a_restarted_container_does_not_hide_how_far_it_was() -> None:
    found = told(
        container("train", Edge.ENDED, (1, 900), ago_s=60),
        container("train", Edge.STARTED, None, ago_s=5, instance=1),
    )

    assert found is not None
    assert found.last_step == 900
