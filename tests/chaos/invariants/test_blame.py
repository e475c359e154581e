"""Rekindle names no culprit without proof."""

from __future__ import annotations

import pytest

from chaos.apiserver.kinds import Object
from chaos.invariants.blame import ApplicationsAreBlamedIfSeen, CausesAreItsOwn
from chaos.simulate.world import Simulation
from chaos.simulated.setup import Setup
from recover.k8s.kinds import PODS, RECOVERIES
from tests.chaos.invariants.misdeeds import facts, found_by, found_of, incident, made, written

_GANG = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "namespace": "ml", "name": "llm", "uid": "u"}


@pytest.mark.parametrize(
    ("node", "text", "blame", "is_caught"),
    [
        ("n1", "", "application", False),
        ("n2", "", "application", True),
        ("n2", "", "unknown", False),
        ("n1", "the first error of its log (log-cuda-ecc)", "application", True),
    ],
)
def test_a_blame_of_the_application_without_a_look_at_its_node_is_caught(
    node: str, text: str, blame: str, is_caught: bool
) -> None:
    async def act(sim: Simulation) -> None:
        seen = {
            "at": "2026-11-21T09:00:00Z",
            "origin": "tenant",
            "code": "exit-1",
            "node": node,
            "text": text,
        }
        await incident(
            sim, "i", {"fault": "application", "gang": _GANG}, {"blame": blame, "evidence": [seen]}
        )

    found = found_of(act, Setup(without_agent=("n2",)))
    assert found.rules == [ApplicationsAreBlamedIfSeen] * is_caught


@pytest.mark.parametrize(
    ("node", "blame", "is_caught"), [("n1", "node", False), ("n2", "node", True), ("n2", "unknown", False)]
)
def test_a_cause_on_a_node_where_no_rank_has_been_is_caught(node: str, blame: str, is_caught: bool) -> None:
    check = CausesAreItsOwn(facts())
    references = [{"uid": "u", "controller": True, "kind": "PyTorchJob"}]
    pod: Object = {"metadata": {"ownerReferences": references}, "spec": {"nodeName": "n1"}}
    cause = {"incident": "i", "attempt": 1, "node": node, "blame": blame}
    recovery = made(RECOVERIES, "r", {"gang": {"uid": "u"}, "causes": [cause]})

    assert found_by(check, written(PODS, pod)) == []
    assert [node in said for said in found_by(check, written(RECOVERIES, recovery))] == [True] * is_caught
