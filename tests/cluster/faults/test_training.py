"""Faults of the training itself: Rekindle quarantines no node for them, and the gang starts again if its job
allows that."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.faults.gang import Gang
from tests.cluster.faults.processes import signal
from tests.cluster.faults.rank import CRASH, LEAK, SPOIL
from tests.cluster.faults.trial import Trial, cordoned, quarantined

pytestmark = pytest.mark.real_nodes

Begin = Callable[[Gang], Trial]


def test_an_error_that_nobody_catches_is_the_applications_own_failure(cluster: Cluster, begin: Begin) -> None:
    trial = begin(Gang("wrong"))
    trial.harm(CRASH)

    status = trial.recovered()["status"]

    incident = trial.incident()
    assert incident["spec"]["fault"] == incident["status"]["blame"] == "application"
    assert f"{status['failedLog']['pod']} on " in incident["status"]["summary"]
    assert "exit-1" in incident["status"]["summary"]
    log = status["failedLog"]
    assert log["firstError"] == "ValueError: batch 17 of shard 3: expected 16 inputs, found 15"
    tail = log["tail"].splitlines()
    behind = tail[tail.index(log["firstError"]) + 1 :]
    # Steps and errors are written to different pipes, so the agent may read the last step after the error.
    assert all(line.startswith("step ") for line in behind), "what is kept of a log is its end"
    assert "batch 17" not in str(incident), "an Incident holds no text of a tenant's log"
    assert "avoidNodes" not in status
    assert cordoned(cluster) == quarantined(cluster) == set()


def test_a_checkpoint_that_does_not_load_is_left_for_the_older_one(cluster: Cluster, begin: Begin) -> None:
    """Before a new rank fails, it prints `step=0`, as DeepSpeed does. That line proves nothing."""
    trial = begin(Gang("spoiled"))
    trial.harm(SPOIL)

    status = trial.recovered(attempts=2)["status"]

    spoiled = int((trial.gang.folder / "spoiled-0").read_text().removeprefix("step-"))
    assert 0 < status["checkpoint"]["step"] < spoiled
    assert cordoned(cluster) == quarantined(cluster) == set()


def test_ranks_that_take_more_memory_than_their_limit_are_named_so(cluster: Cluster, begin: Begin) -> None:
    trial = begin(Gang("greedy"))
    trial.harm(LEAK)

    trial.recovered()

    incident = trial.incident()
    assert incident["spec"]["fault"] == incident["status"]["blame"] == "resources"
    assert "(oom-killed)" in incident["status"]["summary"]
    assert cordoned(cluster) == quarantined(cluster) == set()


def test_a_rank_that_hangs_is_seen_by_its_steps_and_blamed_on_nobody(cluster: Cluster, begin: Begin) -> None:
    trial = begin(Gang("hung", annotations={"rekindle.dev/hang-timeout": "15s"}))
    trial.strike()
    signal(cluster, trial.first_pods[1], "STOP")

    trial.recovered()

    incident = trial.incident()
    assert (incident["spec"]["fault"], incident["status"].get("blame", "unknown")) == ("hang", "unknown")
    assert cordoned(cluster) == quarantined(cluster) == set()
