"""Tests spare nodes: modes that leave them alone, changes that people make to them, and any order of
events."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recover.api import Outcome
from recover.api.reasons import Reason
from recover.model import Node, Quarantine, Taint
from recover.model.modes import Mode, followed
from recover.triage.spare_node import KEPT, SPARE
from tests.acting import recovering
from tests.builders import NOW, Worlds, gang
from tests.facts import names
from tests.recover.triage.spare_cases import (
    OURS,
    PEOPLES,
    add_label,
    comes_to_rest,
    fails,
    kept,
    lent,
    released,
    spares,
    told,
    without_label,
)

# --- modes ------------------------------------------------------------------------------------------------


def test_in_mode_observe_no_spare_is_touched_and_the_incident_says_what_would_be() -> None:
    world = spares("n7", mode=Mode.OBSERVE).change_node("n7", taints=(OURS,)).running(gang())

    fails(world, "n1")

    assert comes_to_rest(world) == []
    ((outcome, reason, message),) = told(world, "n1")
    assert (outcome, reason) == (Outcome.WOULD, Reason.OBSERVE_MODE)
    assert names(message, "n7", "n1")


def test_what_would_be_done_in_mode_observe_is_refused_with_the_node_once_the_mode_is_higher() -> None:
    world = spares("n7")
    world.pools = followed({}, {"h200": Mode.OBSERVE}, NOW)
    comes_to_rest(fails(world.running(gang()), "n1"))
    assert [outcome for outcome, _, _ in told(world, "n1")] == [Outcome.WOULD]

    world.pools = followed(world.pools, {}, world.later(60).now)
    recovering(world)

    assert [(outcome, reason) for outcome, reason, _ in told(world, "n1")] == [
        (Outcome.REFUSED, Reason.STALE_EVIDENCE)
    ]
    assert comes_to_rest(world) == []


def test_a_spare_of_an_observed_pool_is_not_touched() -> None:
    world = spares("n7")
    add_label(world, "n9")
    world.pools = followed({}, {"h200": Mode.OBSERVE}, NOW)

    assert comes_to_rest(world) == []


# --- people -----------------------------------------------------------------------------------------------


def test_who_takes_the_taint_off_takes_the_node_into_service() -> None:
    world = spares("n7").change_node("n7", taints=())

    assert comes_to_rest(world) == []
    assert comes_to_rest(fails(world, "n1")) == []

    world.change_node("n7", taints=(OURS,))

    assert comes_to_rest(world) == ["lift-spare n7"]


def test_who_takes_the_label_off_ends_it_and_nothing_of_ours_stays() -> None:
    world = spares("n7", "n8").change_node("n7", taints=(PEOPLES, OURS))
    comes_to_rest(fails(world, "n1"))
    assert lent(world) == {"n8": "n1"}

    without_label(world, "n7")
    without_label(world, "n8")

    assert comes_to_rest(world) == ["end-spare n7", "end-spare n8"]
    assert (world.nodes["n7"].taints, world.nodes["n8"].taints) == ((PEOPLES,), ())
    assert not world.nodes["n7"].annotations
    assert not world.nodes["n8"].annotations


def test_a_taint_that_people_had_laid_comes_back_as_they_wrote_it_and_outlasts_the_label() -> None:
    theirs = Taint(SPARE, "NoSchedule")
    world = spares().change_node("n7", taints=(theirs,))
    add_label(world, "n7", "")
    assert kept(world) == ["keep-spare n7"]
    comes_to_rest(fails(world, "n1"))
    assert not world.nodes["n7"].taints

    released(world, "n1")
    comes_to_rest(world)
    without_label(world, "n7")
    comes_to_rest(world)

    assert (world.nodes["n7"].taints, world.nodes["n7"].annotations) == ((theirs,), {})


def test_who_lays_the_taint_of_a_lent_spare_again_wants_it_back_and_another_stands_in() -> None:
    world = fails(spares("n7", "n8"), "n1")
    comes_to_rest(world)
    world.change_node("n7", taints=(OURS,))

    comes_to_rest(world)
    assert lent(world) == {"n8": "n1"}

    comes_to_rest(fails(world, "n2"))
    assert lent(world) == {"n8": "n1", "n7": "n2"}, "it was declined for that one incident"


@pytest.mark.parametrize("garbled", ["{", '{"at": "soon"}', "[]", '{"x":' + "[" * 100_000])
def test_a_note_that_people_have_garbled_stops_nothing(garbled: str) -> None:
    world = fails(spares("n7"), "n1")
    notes = {**world.nodes["n7"].annotations, KEPT: garbled}

    comes_to_rest(world.change_node("n7", annotations=notes))

    assert lent(world) == {"n7": "n1"}


# --- any order of events ----------------------------------------------------------------------------------


NAMES = [f"n{i}" for i in range(8)]


SPARES = ("n5", "n6", "n7")


events = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "fails",
                "is released",
                "loses its taint",
                "gets the taint",
                "changes its label",
                "is silent",
                "is ready",
            ]
        ),
        st.sampled_from(NAMES),
    ),
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(events)
def test_each_spare_serves_one_node_that_is_out_and_all_are_given_back(
    happens: list[tuple[str, str]],
) -> None:
    world = spares(*SPARES, nodes=8)
    for what, name in happens:
        _happen(world.later(1), what, name)
        before = lent(world)
        kept(world)
        after = lent(world)
        for spare in after.keys() - before.keys():
            out = world.nodes[after[spare]]
            assert _is_closed(out) or not out.ready, "nothing is out"
            assert not _is_closed(world.nodes[spare])
        served = [node for spare, node in after.items() if not _is_closed(world.nodes[spare])]
        assert len(served) == len(set(served)), "two stand in for one"
    comes_to_rest(world)

    for name in NAMES:
        _happen(world, "is released", name)
        _happen(world, "is ready", name)
    comes_to_rest(world)

    assert lent(world) == {}
    laid_by_people = {name for what, name in happens if what == "gets the taint"}
    for name, node in world.nodes.items():
        if SPARE not in node.labels:
            assert OURS not in node.taints or name in laid_by_people
            assert not node.annotations


def _is_closed(node: Node) -> bool:
    return node.quarantine is not None


def _happen(world: Worlds, what: str, name: str) -> None:
    node = world.nodes[name]
    mine = Taint("rekindle.dev/unhealthy", "NoSchedule", "device-lost")
    others = tuple(taint for taint in node.taints if taint != mine)
    match what:
        case "fails":
            note = Quarantine(incident=f"{name}-lost", fault="device-lost", at=world.now, cordoned=True)
            world.change_node(name, quarantine=note, unschedulable=True, taints=(*others, mine))
        case "is released":
            world.change_node(name, quarantine=None, unschedulable=False, taints=others)
        case "loses its taint":
            world.change_node(name, taints=tuple(taint for taint in node.taints if taint.key != SPARE))
        case "gets the taint":
            world.change_node(name, taints=(*(taint for taint in node.taints if taint != OURS), OURS))
        case "changes its label":
            without_label(world, name) if SPARE in node.labels else add_label(world, name)
        case "is silent" | "is ready":
            world.change_node(name, ready=what == "is ready")
