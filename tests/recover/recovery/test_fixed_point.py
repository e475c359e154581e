"""Once its plan is written, a second reconcile pass over an unchanged world writes nothing: no decision
loops."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.wire.contract import Fault, Origin, Severity
from detectors.wire.training import Edge
from recover.api import Outcome
from recover.model import PodPhase, Terminal
from recover.model.actions import Create, Plan
from recover.model.modes import Mode
from recover.recovery.advance import advance
from tests.acting import apply, recovering
from tests.builders import Worlds, cluster, gang

Trouble = Callable[[Worlds], object]


def _evicted(world: Worlds) -> None:
    """Makes a pod Failed without a container status, so nothing shows when it failed."""
    pods = world.pods["llm-uid"]
    pods["llm-2-uid"] = msgspec.structs.replace(pods["llm-2-uid"], phase=PodPhase.FAILED, containers=())


def _node_gone(world: Worlds) -> None:
    world.without_node("n3")


def _stall_ahead(world: Worlds) -> None:
    for pod in world.pods["llm-uid"].values():
        world.progress(pod, Edge.STALLED, at=world.now + timedelta(hours=2))


def _never_ready(world: Worlds) -> None:
    world.change_node("n0", ready=False, ready_since=None)


def _many_small_gangs(world: Worlds) -> None:
    for i in range(30):
        job = gang(f"small-{i}", ranks=1, opted_in=i % 2 == 0)
        world.running(job, first_node=5)
    world.finding(on="n5")


TROUBLES: dict[str, Trouble] = {
    "lost gpu": lambda w: w.finding(on="n1"),
    "pending": lambda w: w.finding(on="n1", severity=Severity.PENDING),
    "open verdict": lambda w: w.finding(on="n2", fault=Fault.DRIVER, final=False),
    "from the future": lambda w: w.finding(on="n2", final=False, ago_s=-7200),
    "tenant": lambda w: w.finding(on="n3", origin=Origin.TENANT),
    "called host": lambda w: w.finding(on="n4", fault=Fault.HOST),
    "unknown": lambda w: w.finding(on="n3", fault=Fault.UNKNOWN),
    "stale": lambda w: w.finding(on="n0", ago_s=7200),
    "crash": lambda w: w.crash(rank=1),
    "crash ahead": lambda w: w.crash(rank=2, ago_s=-7200),
    "in place": lambda w: w.restart_in_place(rank=0),
    "in place ahead": lambda w: w.restart_in_place(rank=0, ago_s=-7200),
    "stall": lambda w: w.stall(),
    "stall ahead": _stall_ahead,
    "not ready": lambda w: w.not_ready("n2"),
    "evicted": _evicted,
    "node gone": _node_gone,
    "never ready": _never_ready,
    "many gangs": _many_small_gangs,
    "blind": lambda w: w.blind("n1"),
    "opted out": lambda w: w.change_gang(labels={}),
    "terminal": lambda w: w.change_gang(terminal=Terminal(succeeded=False, reason="BackoffLimitExceeded")),
    "foreign": lambda w: w.change_gang(foreign_owner="Kueue (queue a)"),
}


@settings(max_examples=150, deadline=None)
@given(
    troubles=st.lists(st.sampled_from(sorted(TROUBLES)), min_size=1, max_size=4, unique=True),
    mode=st.sampled_from(Mode),
    waits_s=st.lists(st.sampled_from([0.1, 1.5, 30.0, 400.0]), min_size=1, max_size=3),
)
def test_a_look_at_an_unchanged_world_writes_nothing_more(
    troubles: list[str], mode: Mode, waits_s: list[float]
) -> None:
    world = cluster(nodes=8, mode=mode).running(gang())
    for trouble in troubles:
        TROUBLES[trouble](world)

    for wait_s in waits_s:
        world.later(wait_s)
        for _ in range(4):
            recovering(world)
        again = world.later(0.001).decide().plan
        assert [action.what for action in again.actions if hasattr(action, "what")] == []


def test_an_incident_that_a_crash_kept_from_being_written_is_made_good_from_its_recovery() -> None:
    world = cluster(nodes=8).running(gang()).crash(rank=1)
    plan = world.decide().plan
    opened = [a for a in plan.actions if isinstance(a, Create) and a.what == "open-recovery"]
    apply(world, Plan(chains=(tuple(opened),)))

    for _ in range(3):
        for recovery in list(world.recoveries.values()):
            apply(world, advance(recovery, world.world(), world.settings, world.now))
    recovering(world)

    (recovery,) = world.recoveries.values()
    (incident,) = world.incidents.values()
    assert incident.metadata.name == recovery.spec.incident
    assert incident.spec.gang == recovery.spec.gang
    assert incident.status.summary == recovery.spec.summary
    assert [(a.action, a.outcome) for a in incident.status.actions] == [("restart-gang", Outcome.DONE)]
    assert recovering(world).decide().plan.actions == ()
