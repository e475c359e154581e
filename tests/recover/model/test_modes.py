"""Tests the modes of pools and namespaces: which setting lowers which mode. After a mode rises, Rekindle
never acts on what it saw before."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recover.api.reasons import Reason
from recover.model import NamespaceView
from recover.model.modes import Mode, Modes, Standing, begun, changed, followed, lowest, until_now
from recover.policy.consent import in_force_for, in_force_on
from tests.acting import recovering
from tests.builders import NOW, Worlds, cluster, gang
from tests.facts import missing

POOL = "node.kubernetes.io/instance-type"


def in_pools(*, mode: Mode = Mode.RECOVER, **pools: Mode) -> Worlds:
    """Returns sixty nodes: n0 and n1 are in pool a, all others in pool b. A lowered pool has always had
    its lower mode."""
    world = cluster(nodes=60, mode=mode)
    for name in world.nodes:
        world.change_node(name, labels={POOL: "a" if name in ("n0", "n1") else "b"})
    world.pools = followed({}, pools, NOW - timedelta(hours=1))
    return world


def at(minutes: float) -> datetime:
    return NOW + timedelta(minutes=minutes)


# --- which setting lowers which mode ----------------------------------------------------------------------


def test_the_words_of_the_modes_sort_as_the_modes_do() -> None:
    assert list(Mode) == sorted(Mode) == [Mode.OBSERVE, Mode.RECOVER, Mode.REPAIR]


def test_a_node_of_an_observed_pool_is_not_quarantined_and_it_is_said_what_would_be() -> None:
    decision = in_pools(a=Mode.OBSERVE).finding(on="n1").finding(on="n5").decide()

    assert decision.cordons == ["n5"]
    (record,) = [r for i in decision.incidents if i.spec.node == "n1" for r in i.status.actions]
    assert (record.outcome, record.reason) == ("would", Reason.OBSERVE_MODE)
    assert not missing(record.message, "n1", "pool a", Mode.OBSERVE)


def test_a_gang_with_a_rank_in_an_observed_pool_is_not_restarted() -> None:
    world = in_pools(a=Mode.OBSERVE).running(gang("across"), first_node=1)
    world.running(gang("beside"), first_node=6)

    decision = world.crash("across", rank=2).crash("beside", rank=2).decide()

    assert decision.restarts == ["beside"]
    (record,) = [r for i in decision.incidents for r in i.status.actions if r.reason]
    assert (record.outcome, record.reason) == ("would", Reason.OBSERVE_MODE)
    assert not missing(record.message, "PyTorchJob ml/across", "pool a", Mode.OBSERVE)


def test_in_a_namespace_that_the_settings_lower_gangs_stay_while_nodes_are_quarantined() -> None:
    world = cluster().running(gang()).finding(on="n1")
    world.lowered = followed({}, {"ml": Mode.OBSERVE}, NOW)

    decision = world.decide()

    assert (decision.cordons, decision.restarts) == (["n1"], [])
    assert decision.reasons("restart-gang") == [Reason.OBSERVE_MODE]


@pytest.mark.parametrize(
    ("cluster_mode", "said", "mode"),
    [
        (Mode.REPAIR, "observe", Mode.OBSERVE),
        (Mode.REPAIR, "recover", Mode.RECOVER),
        (Mode.RECOVER, "repair", Mode.RECOVER),
        (Mode.OBSERVE, "recover", Mode.OBSERVE),
        (Mode.RECOVER, "Observe", Mode.RECOVER),
        (Mode.RECOVER, "dry-run", Mode.RECOVER),
    ],
)
def test_a_namespaces_own_word_lowers_and_never_raises(cluster_mode: Mode, said: str, mode: Mode) -> None:
    world = cluster(mode=cluster_mode).running(gang())
    world.namespaces["ml"] = NamespaceView("ml", annotations={"rekindle.dev/mode": said})

    assert in_force_for(world.world(), gang()).mode is mode


def test_neither_a_pool_nor_a_namespace_raises_the_clusters_mode() -> None:
    world = in_pools(mode=Mode.OBSERVE, a=Mode.RECOVER).running(gang(ranks=2)).finding(on="n1")
    world.lowered = followed({}, {"ml": Mode.RECOVER}, NOW)

    decision = world.decide()

    assert (decision.cordons, decision.restarts) == ([], [])
    assert set(decision.reasons()) == {Reason.OBSERVE_MODE}
    assert in_force_on(world.world(), world.nodes["n1"]).because == ""
    assert in_force_for(world.world(), gang(ranks=2)).because == ""


def test_of_several_that_lower_a_gangs_mode_the_lowest_counts_and_is_named() -> None:
    world = in_pools(mode=Mode.REPAIR, a=Mode.RECOVER, b=Mode.OBSERVE).running(gang(), first_node=1)

    found = in_force_for(world.world(), gang())

    assert (found.mode, found.by) == (Mode.OBSERVE, "pool b")


def test_a_node_without_the_pools_label_follows_the_cluster() -> None:
    world = in_pools(mode=Mode.REPAIR, a=Mode.OBSERVE).change_node("n1", labels={})

    assert in_force_on(world.world(), world.nodes["n1"]).mode is Mode.REPAIR
    assert in_force_on(world.world(), world.nodes["n0"]).mode is Mode.OBSERVE


# --- after a mode rises -----------------------------------------------------------------------------------


def test_the_promotion_of_one_pool_never_acts_on_what_was_seen_there_before_it() -> None:
    world = in_pools(a=Mode.OBSERVE).running(gang("llm", ranks=1), first_node=1)
    world.finding(on="n1", ago_s=30).finding(on="n7", ago_s=30)
    recovering(world)
    world.pools = followed(world.pools, {}, NOW)

    recovering(world.later(60))

    assert [name for name, node in world.nodes.items() if node.quarantine is not None] == ["n7"]
    assert not world.recoveries
    (incident,) = [i for i in world.incidents.values() if i.spec.node == "n1"]
    assert {a.reason for a in incident.status.actions} == {Reason.STALE_EVIDENCE}

    recovering(world.later(60).finding(on="n0"))

    assert world.nodes["n0"].quarantine is not None


def test_the_promotion_of_a_namespace_never_restarts_a_gang_for_what_was_seen_before_it() -> None:
    world = cluster().running(gang()).crash(rank=1, ago_s=30)
    world.lowered = followed(followed({}, {"ml": Mode.OBSERVE}, NOW), {}, NOW)

    assert world.decide().reasons("restart-gang") == [Reason.STALE_EVIDENCE]


def test_what_was_seen_in_mode_recover_is_older_than_the_mode_repair_that_follows() -> None:
    world = cluster(mode=Mode.RECOVER)
    world.pools = {"a": Standing(Mode.RECOVER)}
    world.change_node("n1", labels={POOL: "a"})
    node = world.nodes["n1"]
    assert in_force_on(world.world(), node).began(Mode.REPAIR) is None

    modes = world.world().modes
    modes = msgspec.structs.replace(modes, cluster=changed(modes.cluster, Mode.REPAIR, at(5)))
    of_cluster_only = msgspec.structs.replace(world.world(), modes=modes)
    assert in_force_on(of_cluster_only, node).began(Mode.REPAIR) is None

    modes = msgspec.structs.replace(modes, pools=followed(modes.pools, {}, at(9)))
    both = in_force_on(msgspec.structs.replace(world.world(), modes=modes), node)
    assert both.began(Mode.REPAIR) == at(9)
    assert both.acting_since == world.mode_since, "what recover does, goes on"


def test_a_pool_that_was_never_lowered_is_not_kept() -> None:
    assert followed({}, {"a": Mode.REPAIR}, NOW) == {}


moves = st.lists(st.sampled_from(Mode), min_size=1, max_size=8)


@given(st.lists(moves, min_size=1, max_size=3))
def test_a_mode_is_in_force_since_the_last_of_all_rose_to_it(histories: list[list[Mode]]) -> None:
    """The mode of the cluster, and two modes that may lower it, change once a minute."""
    standings, rose = [], []
    for history in histories:
        standing = begun(history[0], at(0)) if not standings else Standing(history[0])
        since = {mode: at(0) for mode in Mode if mode <= history[0]} if not standings else {}
        for minute, mode in enumerate(history[1:], 1):
            standing = changed(standing, mode, at(minute))
            reached = {each: at(minute) for each in Mode if history[minute - 1] < each <= mode}
            since = {each: then for each, then in since.items() if each <= mode} | reached
        standings.append(standing)
        rose.append(since)

    found = lowest(standings[0], [(str(n), one) for n, one in enumerate(standings[1:])])

    assert found.mode == min(history[-1] for history in histories)
    for mode in Mode:
        times = [since[mode] for since in rose if mode in since]
        assert found.began(mode) == (max(times) if mode <= found.mode else None)


def test_no_time_of_a_mode_or_of_a_pause_is_in_the_future() -> None:
    ahead = Modes(
        begun(Mode.REPAIR, at(5)),
        pools={"a": Standing(Mode.OBSERVE, {Mode.OBSERVE: at(-5)})},
        namespaces={"ml": begun(Mode.RECOVER, at(1))},
        resumed=at(3),
    )

    modes = until_now(ahead, NOW)

    assert (modes.cluster, modes.namespaces["ml"]) == (begun(Mode.REPAIR, NOW), begun(Mode.RECOVER, NOW))
    assert (modes.pools, modes.resumed) == (ahead.pools, NOW)
    assert until_now(modes, NOW) is modes
