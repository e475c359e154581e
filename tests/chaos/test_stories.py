"""Single stories in virtual time: the production controller and agents' state on the in-memory cluster.

Each plays with the shipped settings unless it says otherwise, and every invariant of chaos/simulate is
checked after each write.
"""

from __future__ import annotations

import msgspec
import pytest

from chaos.cluster.containers import Exit
from chaos.simulate import lines
from chaos.simulate.jobs import Job, Kind, Storage
from chaos.simulate.play import comes_to_rest, play
from chaos.simulate.world import CONTROLLER, Setup, Simulation
from recover.api import Outcome, Phase, Recovery
from recover.model import Mode
from recover.settings import Settings, Timing

OBSERVE = Setup(settings=Settings(mode=Mode.OBSERVE))


def over(sim: Simulation, job: str = "llm") -> bool:
    """That job's last recovery has ended."""
    found = sim.recoveries(job)
    return bool(found) and not found[-1].active


def reasons(sim: Simulation, outcome: Outcome) -> set[str]:
    return {r.reason for i in sim.incidents() for r in i.status.actions if r.outcome is outcome}


def touched(sim: Simulation) -> list[str]:
    """What the controller wrote on other people's objects."""
    return [w for w in sim.writes() if w.split()[1].split("/")[0] in ("nodes", "jobs", "pytorchjobs", "pods")]


def nodes_of(sim: Simulation, job: str = "llm") -> set[str]:
    return {pod["spec"].get("nodeName", "") for pod in sim.pods(job)}


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("scanned", [True, False], ids=["with a scan", "without a scan"])
def test_an_xid_79_takes_the_node_out_and_the_gang_resumes_elsewhere(kind: Kind, scanned: bool) -> None:
    async def story(sim: Simulation) -> None:
        gang = await sim.submit(Job(kind=kind, scanned=scanned, storage=Storage.CLAIM))
        await sim.passes(65)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.until(lambda: over(sim), within_s=60)
        assert sim.recovery().status.phase is Phase.SUCCEEDED
        assert sim.recovery().status.resumed_step == 51
        assert sim.cordoned() == ["n2"]
        assert "n2" not in nodes_of(sim)
        await comes_to_rest(sim)
        assert gang.step > 1000

    play(story)


def test_in_observe_mode_nothing_is_written_on_nodes_and_jobs_and_the_incident_says_what_would_be() -> None:
    async def story(sim: Simulation) -> None:
        await sim.submit(Job())
        await sim.passes(65)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.passes(10)
        sim.crash_rank(1, Exit(1))
        await comes_to_rest(sim)
        assert touched(sim) == []
        assert sim.recoveries() == []
        assert reasons(sim, Outcome.WOULD) == {"ObserveMode"}
        described = {r.action for i in sim.incidents() for r in i.status.actions}
        assert described == {"quarantine-node", "restart-gang"}

    play(story, OBSERVE)


def test_a_job_that_did_not_opt_in_is_left_alone_while_its_node_is_cordoned() -> None:
    async def story(sim: Simulation) -> None:
        await sim.submit(Job(opted_in=False))
        await sim.passes(65)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await comes_to_rest(sim)
        assert touched(sim) == ["patch nodes/n2"]
        assert sim.recoveries() == []
        assert reasons(sim, Outcome.REFUSED) == {"NotOptedIn"}

    play(story)
