"""People act on a node while a gang is being recovered. Their actions prevail, and Rekindle tells them what
is pending."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.faults.gang import Gang, slow_to_stop
from tests.cluster.faults.trial import Trial, cordoned, quarantined
from tests.cluster.kernel_log import xid

pytestmark = pytest.mark.real_nodes


def test_a_node_that_is_drained_in_a_recovery_stays_drained_until_its_person_lets_it_go(
    cluster: Cluster, begin: Callable[[Gang], Trial]
) -> None:
    trial = begin(slow_to_stop("drained"))
    bad, drained = trial.node(0), trial.node(1)
    trial.strike()
    xid(bad, gpu=1)
    trial.until_phase("Stopping")
    flags = ("--ignore-daemonsets", "--delete-emptydir-data", "--timeout=180s")
    cluster.kubectl("drain", drained.name, *flags)

    def message() -> str:
        return str(trial.recovery()["status"]["message"])

    assert trial.until_phase("Blocked")["status"]["reason"] == "NoCapacity"
    assert "1 of 2" in message()
    assert drained.name in message()
    assert trial.pods() == [], "a gang that does not fit is not started"
    assert cordoned(cluster) == {bad.name, drained.name}
    assert quarantined(cluster) == {bad.name}

    cluster.kubectl("uncordon", drained.name)
    trial.recovered()

    assert bad.name not in trial.nodes()
    assert cordoned(cluster) == quarantined(cluster) == {bad.name}
