"""Questions of the stories in virtual time about a simulation, in a user's words."""

from __future__ import annotations

from chaos.simulate.world import Simulation
from chaos.simulated.setup import Setup
from recover.api import Outcome, Phase
from recover.model.modes import Mode
from recover.policy.settings import Settings

OBSERVE = Setup(settings=Settings(mode=Mode.OBSERVE))
HANGS_SOON = {"rekindle.dev/hang-timeout": "60s"}
"""Annotation for a short hang limit: a dead peer shows as a hang of all other ranks, which takes ten minutes
by default."""


def over(sim: Simulation, job: str = "llm") -> bool:
    """Whether that job's last recovery has ended."""
    found = sim.recoveries(job)
    return bool(found) and not found[-1].active


def reasons(sim: Simulation, outcome: Outcome) -> set[str]:
    return {r.reason for i in sim.incidents() for r in i.status.actions if r.outcome is outcome}


def touched(sim: Simulation) -> list[str]:
    """Returns the controller's writes to other people's objects."""
    return [w for w in sim.writes() if w.split()[1].split("/")[0] in ("nodes", "jobs", "pytorchjobs", "pods")]


def resumes(sim: Simulation, job: str = "llm") -> int:
    """Returns how often the controller has started that job."""
    return sum(1 for r in sim.recoveries(job) for t in r.status.phases if t.phase is Phase.RESUMING)


def nodes_of(sim: Simulation, job: str = "llm") -> set[str]:
    return {pod["spec"].get("nodeName", "") for pod in sim.pods(job)}
