"""Tests the checks of an installation that concern what people wrote."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from recover.model import Node, Taint
from recover.triage.spare_node import KEPT, SPARE, SPARE_FOR, Kept
from tests.facts import names
from tests.recover.doctor.installation.cases import (
    NOW,
    found,
    healthy,
    node,
    only,
    reported,
)


def test_the_same_mistake_on_many_objects_is_one_finding() -> None:
    nodes = {f"n{number}": node(f"n{number}", {"rekindle.dev/manged": "false"}) for number in range(1, 6)}

    finding = only(msgspec.structs.replace(healthy(5), nodes=nodes))

    assert finding.name == "misread"
    assert names(finding.what, 5, "node n1", "node n2", "node n3", "node n4", 1, "rekindle.dev/manged")
    assert names(finding.fix, "kubectl label", "node n1", "rekindle.dev/manged-")


def test_an_end_of_a_hold_that_cannot_be_read_is_not_called_without_effect() -> None:
    nodes = {"n1": msgspec.structs.replace(node("n1"), annotations={"rekindle.dev/hold-until": "soon"})}

    finding = only(msgspec.structs.replace(healthy(1), nodes=nodes))

    assert finding.name == "misread"
    assert names(finding.means, "removes the annotation")


def test_spares_that_pods_fill_are_told_and_those_that_stand_by_or_stand_in_are_not() -> None:
    taint = Taint(SPARE, "NoSchedule", "true")
    kept = {KEPT: msgspec.json.encode(Kept(NOW, laid=True, node="n9")).decode()}

    def spare(name: str, annotations: Mapping[str, str] = {}, taints: tuple[Taint, ...] = ()) -> Node:
        return msgspec.structs.replace(node(name, {SPARE: "true"}), taints=taints, annotations=annotations)

    nodes = [
        spare("n1"),
        spare("n2", taints=(taint,)),
        spare("n3", {**kept, SPARE_FOR: "lost-gpu"}),
        spare("n4", kept),
    ]
    seen = msgspec.structs.replace(healthy(4), nodes={one.name: one for one in nodes})

    fresh, taken = found(seen)

    assert fresh.name == "spares-not-kept"
    assert names(fresh.what, 1, "n1")
    assert (taken.name, taken.severity) == ("spares-in-service", "advice")
    assert names(reported(seen).facts.spares, 1, 4, "n3", "n9", "lost-gpu")
