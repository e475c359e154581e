"""Tests Recoveries that triage opens, and running Recoveries to which triage adds a further cause. Pure
cases."""

from __future__ import annotations

from datetime import timedelta

from recover.api import Outcome, Phase
from recover.api.reasons import Reason
from recover.model import Refusal
from recover.triage.restarts import CAUSES_MAX
from tests.acting import acts, advanced, only_recovery, recovering, start_pods, step
from tests.builders import Worlds, cluster, gang


def told(world: Worlds) -> list[str]:
    return [what for what in acts(world.decide().plan) if what == "tell-recovery"]


def test_all_causes_of_one_look_stand_in_the_recovery_that_it_opens() -> None:
    world = cluster(nodes=100).running(gang()).finding(on="n1").finding(on="n2").crash(rank=0)

    recovering(world)

    assert [cause.node for cause in only_recovery(world).spec.causes] == ["n1", "n2"]


def test_a_cause_is_told_once() -> None:
    world = recovering(cluster(nodes=100).running(gang()).finding(on="n1"))
    advanced(world, Phase.STOPPING)
    world.finding(on="n2")

    assert told(world) == ["tell-recovery"]
    recovering(world)
    assert told(world) == []
    assert [cause.node for cause in only_recovery(world).spec.causes] == ["n1", "n2"]


def test_a_cause_that_the_api_server_refuses_is_told_as_refused_and_waits_for_its_next_try() -> None:
    world = recovering(cluster(nodes=100).running(gang()).finding(on="n1"))
    advanced(world, Phase.STOPPING)
    name = only_recovery(world).metadata.name
    world.refused[f"recoveries/ml/{name}"] = Refusal(world.now, "recoveries is forbidden", may_pass=True)

    recovering(world.finding(on="n2"))

    assert told(world) == []
    (incident,) = [i for i in world.incidents.values() if i.spec.node == "n2"]
    (record,) = [r for r in incident.status.actions if r.action == "restart-gang"]
    assert (record.outcome, record.reason) == (Outcome.REFUSED, Reason.WRITE_REFUSED)
    assert told(world.later(60)) == ["tell-recovery"]


def test_a_running_gang_is_stopped_for_a_new_cause_though_its_recovery_has_had_many() -> None:
    world = recovering(cluster(nodes=400).running(gang(ranks=100)).crash(rank=99))
    for number in range(1, CAUSES_MAX + 10):
        world.finding(on=f"n{number}", ago_s=1000)  # before the brake's window
    recovering(world)
    assert len(only_recovery(world).spec.causes) == CAUSES_MAX
    while "start-gang" not in step(world):
        world.pods["llm-uid"] = {}
    start_pods(world.later(2), first_node=200)
    advanced(world, Phase.VERIFYING)

    recovering(world.later(30).crash(rank=3))

    assert step(world) == ["recovery-stopping"]
    assert only_recovery(world).status.attempt == 2
    assert told(world) == []
    assert world.now - only_recovery(world).status.phases[-1].at < timedelta(seconds=5)
