"""The controller blames an application only if its node was watched: by an agent that is alive, and that
reads the kind of fault in question."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from detectors.wire.contract import Coverage, CoverageState, Family, Source
from recover.api import Blame
from recover.diagnose import coverage
from recover.diagnose.coverage import FAMILIES, looked_at, silence
from recover.diagnose.whole import diagnose
from recover.k8s.kinds import PODS
from recover.model import AgentPod
from recover.model.agent_readiness import AgentPods
from recover.model.modes import Mode, Modes, begun
from recover.policy.settings import Settings
from recover.runtime.observe import Observer
from tests.builders import NOW, Decision, Worlds, cluster, gang
from tests.facts import names
from tests.recover.scripted import Scripted


def training() -> Worlds:
    """Returns a gang whose rank 1, on n1, has just crashed."""
    world = cluster(nodes=4).running(gang("llm", ranks=4))
    world.crash(rank=1, ago_s=1)
    return world


def watched_by_pods(world: Worlds) -> Worlds:
    world.settings = msgspec.structs.replace(world.settings, agents_are_pods=True)
    world.agents = {name: AgentPod(name, f"{name}-agent", ready=True) for name in world.nodes}
    return world


def agent_of(world: Worlds, node: str, **changes: Any) -> Worlds:
    world.agents[node] = msgspec.structs.replace(world.agents[node], **changes)
    return world


def health(world: Worlds, node: str, **changes: Any) -> Worlds:
    status = msgspec.structs.replace(world.health[node].status, **changes)
    world.health[node] = msgspec.structs.replace(world.health[node], status=status)
    return world


def blamed(decision: Decision) -> Blame:
    assert decision.restarts == ["llm"]
    assert decision.cordons == []
    return decision.incident.status.blame


# --- whether the agent is alive --------------------------------------------------------------------------


def test_an_application_is_blamed_where_a_ready_agent_shows_no_fault() -> None:
    assert blamed(watched_by_pods(training()).decide()) is Blame.APPLICATION


def test_without_an_agents_pod_nobody_is_blamed_whatever_its_last_status_says() -> None:
    world = watched_by_pods(training())
    del world.agents["n1"]

    decision = world.decide()

    assert blamed(decision) is Blame.UNKNOWN
    silent = silence(world.world(), "n1", NOW)
    assert silent is not None
    assert silent.why in decision.incident.status.summary


def test_agents_of_other_nodes_that_are_away_change_nothing() -> None:
    world = watched_by_pods(training())
    for node in ("n0", "n2", "n3"):
        del world.agents[node]

    assert blamed(world.decide()) is Blame.APPLICATION


@pytest.mark.parametrize("since_s", [None, 3600.0, 0.5])
def test_an_agent_that_is_not_ready_covers_nothing(since_s: float | None) -> None:
    """This is also true if the agent restarts in this second: it has not yet reported the kernel's lines
    of the meantime."""
    world = watched_by_pods(training())
    since = None if since_s is None else NOW - timedelta(seconds=since_s)
    agent_of(world, "n1", ready=False, since=since)

    assert blamed(world.decide()) is Blame.UNKNOWN


def test_a_loss_long_before_the_agent_went_was_covered() -> None:
    """If a fault had caused the loss, the agent would have reported the fault before it went."""
    world = watched_by_pods(cluster(nodes=4).running(gang("llm", ranks=4)))
    world.crash(rank=1, ago_s=60)
    agent_of(world, "n1", ready=False, since=NOW - timedelta(seconds=20))

    assert blamed(world.decide()) is Blame.APPLICATION


def test_what_was_settled_while_the_node_was_watched_stays_settled() -> None:
    world = watched_by_pods(training())
    first = world.decide().incident
    world.incidents[first.metadata.name] = first
    del world.agents["n1"]
    world.later(3600)

    seen = world.world()
    (found,) = diagnose(seen, seen.subjects, world.settings, world.now).found

    assert (found.name, found.blame, found.suspects) == (first.metadata.name, Blame.APPLICATION, ())


def test_a_node_that_is_new_is_not_watched_until_its_agent_has_said_so() -> None:
    world = watched_by_pods(training())
    health(world, "n1", coverage=[])
    agent_of(world, "n1", ready=False)

    assert blamed(world.decide()) is Blame.UNKNOWN


# --- agents that run outside pods ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refresh_s", "age_s", "blame"),
    [
        (600, 1700, Blame.APPLICATION),
        (600, 1900, Blame.UNKNOWN),
        (0, 1_000_000, Blame.APPLICATION),
    ],
    ids=["in time", "three refreshes missed", "an agent that promises none is not judged"],
)
def test_an_agent_that_breaks_its_promise_to_write_is_taken_for_dead(
    refresh_s: float, age_s: float, blame: Blame
) -> None:
    world = training()
    health(world, "n1", refresh_s=refresh_s, observed_at=NOW - timedelta(seconds=age_s))

    assert blamed(world.decide()) is blame


def test_where_agents_are_pods_their_age_says_nothing() -> None:
    world = watched_by_pods(training())
    health(world, "n1", refresh_s=600, observed_at=NOW - timedelta(days=1))

    assert silence(world.world(), "n1", NOW) is None


# --- kinds of faults -------------------------------------------------------------------------------------


def kernel_log(
    world: Worlds, node: str, *families: Family, state: CoverageState = CoverageState.COVERED
) -> Worlds:
    row = Coverage(source=Source.KMSG, state=state, since=NOW - timedelta(hours=5), families=list(families))
    return health(world, node, coverage=[row])


@pytest.mark.parametrize("read", [{Family.GPU_XID, Family.OOM}, set(Family)], ids=["some", "all"])
def test_blame_says_what_nobody_watched_for(read: set[Family]) -> None:
    summary = kernel_log(training(), "n1", *read).decide().incident.status.summary

    assert {family for family, words in FAMILIES.items() if words in summary} == set(Family) - read


def test_an_older_agent_is_said_to_be_older() -> None:
    world = kernel_log(training(), "n1")

    decision = world.decide()

    assert blamed(decision) is Blame.APPLICATION
    summary = decision.incident.status.summary
    assert coverage.looked_at(world.world(), "n1") in summary
    assert not any(words in summary for words in FAMILIES.values()), "nobody knows which it reads"


def test_an_agent_that_does_not_read_gpu_faults_blames_nobody() -> None:
    world = kernel_log(training(), "n1", Family.NETWORK)

    decision = world.decide()

    assert blamed(decision) is Blame.UNKNOWN
    summary = decision.incident.status.summary
    assert [family for family, words in FAMILIES.items() if words in summary] == [Family.GPU_XID]
    assert names(summary, "n1")


def test_a_source_that_is_blind_covers_none_of_its_families() -> None:
    world = kernel_log(training(), "n1", *Family, state=CoverageState.BLIND)

    assert blamed(world.decide()) is Blame.UNKNOWN


def test_every_family_has_words() -> None:
    assert set(FAMILIES) == set(Family)
    assert len(looked_at(training().world(), "n1")) < 400, "a summary has room for it"


# --- the index -------------------------------------------------------------------------------------------


def test_a_node_has_an_agent_as_long_as_one_of_its_pods_is_ready() -> None:
    index = AgentPods()
    old, new = AgentPod("n1", "old", ready=True), AgentPod("n1", "new", ready=False)

    assert index.change(None, old) == {"n1"}
    assert index.change(None, new) == set()
    ready = msgspec.structs.replace(new, ready=True)
    assert index.change(new, ready) == set()
    assert index.change(old, None) == set()
    assert index.by_node == {"n1": ready}
    assert index.change(ready, None) == {"n1"}
    assert index.by_node == {}


AGENT = {"app.kubernetes.io/name": "rekindle", "app.kubernetes.io/component": "agent"}


def pod(version: int, *, namespace: str = "rekindle-system", ready: str = "True", **meta: Any) -> bytes:
    conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-11-22T11:00:00Z"}]
    return msgspec.json.encode(
        {
            "metadata": {
                "name": "rekindle-agent-x",
                "namespace": namespace,
                "uid": "agent-uid",
                "resourceVersion": str(version),
                "labels": AGENT,
                "creationTimestamp": "2026-11-22T08:00:00Z",
                **meta,
            },
            "spec": {"nodeName": "n1", "containers": [{"name": "agent"}]},
            "status": {"phase": "Running", "conditions": conditions},
        }
    )


def agents_of(observer: Observer) -> dict[str, bool]:
    world = observer.world(Modes(begun(Mode.RECOVER, NOW)))
    return {name: agent.ready for name, agent in world.agents.items()}


def test_the_observer_follows_agents_pods_of_our_own_namespace_only() -> None:
    observer = Observer(Scripted(), Settings(agents_are_pods=True), lambda: None)

    observer.absorb(PODS, pod(1, namespace="ml"))
    assert agents_of(observer) == {}, "anybody may write our labels in another namespace"
    observer.absorb(PODS, pod(2))
    assert agents_of(observer) == {"n1": True}
    observer.absorb(PODS, pod(3, ready="False"))
    assert agents_of(observer) == {"n1": False}
    observer.absorb(PODS, pod(4))
    observer.absorb(PODS, pod(5, deletionTimestamp="2026-11-22T12:00:30Z", deletionGracePeriodSeconds=30))
    assert agents_of(observer) == {"n1": False}
