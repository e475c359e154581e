"""A weak Incident that is open on a node hides no strong fault: decisions follow the current findings."""

from __future__ import annotations

import pytest

from chaos.simulate.play import play
from chaos.simulate.world import Simulation
from chaos.simulated import lines
from chaos.simulated.jobs import Job
from chaos.simulated.lines import Harm, KernelText
from detectors.wire.contract import Fault, Severity
from tests.acting import recovering
from tests.builders import cluster, gang

PMU_BREAKPOINT = KernelText(
    "NVRM: Xid ({pci}): 61, pid=1, name=python, 0cb5(305c) 00000000 00000000", harm=Harm.UNKNOWN
)


@pytest.mark.parametrize("before_s", [0.1, 5.0, 3600.0])
def test_a_gpu_that_falls_off_the_bus_is_taken_out_though_an_unknown_xid_came_before(before_s: float) -> None:
    async def story(sim: Simulation) -> None:
        await sim.submit(Job(ranks=2))
        await sim.passes(65)
        sim.kernel("n2", PMU_BREAKPOINT)
        await sim.passes(before_s)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.passes(600)
        assert sim.cordoned() == ["n2"]

    play(story)


@pytest.mark.parametrize("first", [Fault.UNKNOWN, Fault.THERMAL])
def test_a_dead_gpu_cordons_its_node_whatever_weaker_incident_is_open_there(first: Fault) -> None:
    world = cluster(8).running(gang(ranks=4))
    recovering(world.finding(on="n1", code="xid-61", fault=first, severity=Severity.PENDING, final=False))
    recovering(world.later(3600).finding(on="n1", code="xid-79", fault=Fault.DEVICE_LOST))

    assert world.nodes["n1"].unschedulable


def test_a_fatal_finding_of_no_known_class_does_not_hide_a_dead_gpu_after_it() -> None:
    world = cluster(8).running(gang(ranks=4))
    world.finding(
        on="n1", code="own-row", fault=Fault.UNKNOWN, severity=Severity.FATAL, final=False, ago_s=60
    )

    decision = world.finding(on="n1", code="xid-79").decide()

    assert (decision.cordons, decision.restarts) == (["n1"], ["llm"])
