"""An object that nobody foresaw makes Rekindle's own code fail: the controller leaves out this object, and
handles all others."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from detectors.wire.contract import Severity
from recover.api import IncidentPhase, Phase
from recover.diagnose import gang_faults
from recover.triage import advice, restarts, wishes
from tests.acting import advanced, recovering, step
from tests.builders import Worlds, cluster, gang
from tests.recover.recovery.test_known_issues import OUT_OF_MEMORY, template


class Defect(Exception):
    pass


def not_judged(world: Worlds) -> list[str]:
    return [failure.about["name"] for failure in world.decide().plan.failures]


def poisoned(world: Worlds, node: str) -> Worlds:
    """Returns the world with an agent that reports the earliest time that exists, as anybody with the
    agent's token could."""
    status = world.health[node].status
    findings = [msgspec.structs.replace(f, last_seen=datetime(1, 1, 1, tzinfo=UTC)) for f in status.findings]
    status = msgspec.structs.replace(status, findings=findings)
    world.health[node] = msgspec.structs.replace(world.health[node], status=status)
    return world


def two_gangs() -> Worlds:
    """Returns a world in which `llm` on n0 to n3 and `odd` on n4 to n7 have lost a rank each."""
    world = cluster(nodes=60).running(gang("llm")).running(gang("odd"), first_node=4)
    return world.crash("llm", rank=2).crash("odd", rank=2)


def test_a_node_that_cannot_be_judged_keeps_no_other_in_service_and_no_gang_down() -> None:
    world = poisoned(two_gangs().finding(on="n1").finding(on="n5"), "n5")

    decision = world.decide()

    assert not_judged(world) == ["n5"]
    assert decision.cordons == ["n1"]
    assert sorted(decision.restarts) == ["llm", "odd"]


def test_a_recovery_goes_on_though_some_other_node_cannot_be_judged() -> None:
    world = recovering(cluster(nodes=60).running(gang()).finding(on="n1"))
    poisoned(world.finding(on="n50"), "n50")

    advanced(world, Phase.RESUMING)

    assert step(world) == ["start-gang"]


def test_the_incident_of_a_node_that_cannot_be_judged_any_more_stays_open() -> None:
    world = recovering(cluster(nodes=60).finding(on="n5", severity=Severity.PENDING))
    world.change_node("n5", quarantine=None)

    recovering(poisoned(world.later(60), "n5"))

    assert [incident.status.phase for incident in world.incidents.values()] == [IncidentPhase.OPEN]


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (gang_faults, "losses"),
        (gang_faults, "_lost_ranks"),
        (wishes, "_blind"),
        (restarts, "_taken_up"),
        (restarts, "_answered"),
    ],
)
def test_a_gang_that_cannot_be_judged_keeps_no_other_down(
    module: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_for(monkeypatch, module, name, "odd")
    world = two_gangs()

    assert not_judged(world) == ["odd"]
    assert world.decide().restarts == ["llm"]


def fails_for(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, odd: str) -> None:
    """Makes a function of this module raise for arguments that contain `odd`. No real defect is known,
    since it would have been fixed."""
    real = getattr(module, name)

    def broken(world: Any, *args: Any) -> Any:
        if odd in repr(args):
            raise Defect
        return real(world, *args)

    monkeypatch.setattr(module, name, broken)


def test_a_pod_whose_lines_cannot_be_matched_keeps_no_other_from_advice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = {"Worker": template({"tencent.com/vcuda-core": "30"})}
    world = cluster(nodes=60).running(gang("llm", opted_in=False, templates=asked))
    world.running(gang("odd", opted_in=False, templates=asked), first_node=4)
    world.says(OUT_OF_MEMORY, job="llm").says(OUT_OF_MEMORY, job="odd")
    assert len(world.decide().incidents) == 2

    fails_for(monkeypatch, advice, "_of_pod", "odd-worker-0")

    assert not_judged(world) == ["odd-worker-0"]
    assert len(world.decide().incidents) == 1
