"""Evidence that only makes a node a suspect stops nothing and quarantines no node: restarts prefer other
nodes."""

from __future__ import annotations

import pytest

from detectors.wire.contract import Fault, Origin, Severity
from recover.diagnose.what_counts import proven, suspected
from recover.model.modes import Mode
from tests.acting import recovering
from tests.builders import cluster, gang

WINDOW_S = 3600.0
HARDWARE = sorted(set(Fault) - {Fault.APPLICATION, Fault.RESOURCES})


@pytest.mark.parametrize("fault", HARDWARE)
@pytest.mark.parametrize("origin", [Origin.KERNEL, Origin.FABRIC])
@pytest.mark.parametrize("mode", [Mode.RECOVER, Mode.REPAIR])
def test_no_suspicion_stops_a_gang_or_touches_a_node(fault: Fault, origin: Origin, mode: Mode) -> None:
    world = cluster(mode=mode).running(gang())
    world.finding(on="n1", fault=fault, severity=Severity.SUSPECT, origin=origin)

    for _ in range(3):
        recovering(world.later(3600))
    assert world.nodes["n1"].quarantine is None
    assert not world.recoveries


@pytest.mark.parametrize("fault", HARDWARE)
def test_other_nodes_are_preferred_until_the_suspicion_is_old(fault: Fault) -> None:
    world = cluster().finding(on="n1", fault=fault, severity=Severity.SUSPECT)

    assert sorted(suspected(world.world(), world.now, WINDOW_S)) == ["n1"]
    assert not proven(world.world(), world.now)
    later = world.later(WINDOW_S)
    assert not suspected(later.world(), later.now, WINDOW_S)


def test_a_proof_that_joins_a_suspicion_acts() -> None:
    world = cluster().running(gang())
    world.finding(on="n1", fault=Fault.DRIVER, severity=Severity.SUSPECT, code="rm-init-failed")
    recovering(world)
    world.finding(on="n1")

    assert world.decide().cordons == ["n1"]
