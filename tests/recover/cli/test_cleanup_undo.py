"""Tests what `rekindle cleanup` removes from a node: everything that Rekindle wrote, in one pass, and
nothing that somebody else wrote."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recover.api import Phase, Recreation
from recover.api.marks import QUARANTINE, RELEASED, UNHEALTHY
from recover.api.repair_state import Repair, RepairPhase
from recover.cli.cleanup_undo import under_way, undo
from recover.k8s.bodies import merged
from recover.model import Mark, Quarantine, decode
from recover.stories.keys import WRITTEN_BY_US
from recover.triage.spare_node import KEPT, SPARE, SPARE_FOR, Kept
from tests.acting import only_recovery, recovering
from tests.builders import NOW, cluster, gang
from tests.facts import missing

OURS = {"key": UNHEALTHY, "value": "device-lost", "effect": "NoSchedule"}
PEOPLES = {
    "key": "dedicated",
    "value": "training",
    "effect": "NoSchedule",
    "timeAdded": "2026-11-01T00:00:00Z",
}
RESERVE = {"key": SPARE, "value": "true", "effect": "NoSchedule"}
LABELS = {"pool": "a", "rekindle.dev/managed": "true", SPARE: "true"}
NOTES = {"rekindle.dev/hold-reason": "rack moves", "example.com/x": "y"}
"""Annotations that people have written."""


def node(
    *taints: dict[str, str], cordoned: bool = False, notes: dict[str, str] | None = None, **labels: str
) -> dict[str, Any]:
    spec = {"taints": list(taints), **({"unschedulable": True} if cordoned else {})}
    metadata = {"name": "n1", "uid": "u", "resourceVersion": "7", "labels": {**LABELS, **labels}}
    return {"metadata": {**metadata, "annotations": {**NOTES, **(notes or {})}}, "spec": spec, "status": {}}


def quarantine(*, cordoned: bool) -> dict[str, str]:
    note = Quarantine(incident="n1-device-lost-1", fault="device-lost", at=NOW, cordoned=cordoned)
    return {QUARANTINE: msgspec.json.encode(note).decode()}


def spare(*, laid: bool, lent: bool) -> dict[str, str]:
    kept = Kept(NOW, laid=laid, value="people" if not laid else "true", node="n2" if lent else "")
    return {KEPT: msgspec.json.encode(kept).decode(), **({SPARE_FOR: "n2-device-lost-1"} if lent else {})}


def left(body: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Returns the node after the undo, and the sentence about it. Asserts that a second undo finds nothing
    more."""
    found = undo(decode.node(msgspec.json.encode(body), ()))
    if found is None:
        return body, ""
    assert (found.patch.uid, found.patch.version) == ("u", "7")
    after = merged(body, found.patch.body)
    assert undo(decode.node(msgspec.json.encode(after), ())) is None
    return after, found.words


def test_a_quarantined_node_is_as_it_was_before() -> None:
    body = node(
        PEOPLES, OURS, cordoned=True, notes=quarantine(cordoned=True), **{"rekindle.dev/health": "faulted"}
    )

    after, words = left(body)

    assert after["spec"] == {"taints": [PEOPLES]}
    assert after["metadata"]["labels"] == LABELS
    assert after["metadata"]["annotations"] == NOTES
    ours = (
        "rekindle.dev/unhealthy=device-lost:NoSchedule",
        "rekindle.dev/quarantined-by",
        "rekindle.dev/health",
    )
    assert not missing(words, *ours)
    assert missing(words, PEOPLES["key"]) == [PEOPLES["key"]]


def test_a_cordon_that_a_person_had_made_before_stays() -> None:
    after, _ = left(node(OURS, cordoned=True, notes=quarantine(cordoned=False)))

    assert after["spec"] == {"unschedulable": True}


def test_a_cordon_of_which_nobody_knows_whose_it_is_stays_and_is_told() -> None:
    after, words = left(node(OURS, cordoned=True, notes={QUARANTINE: "{"}))

    assert after["spec"] == {"unschedulable": True}
    assert not missing(words, QUARANTINE)


def test_why_a_cordon_stays_is_told_only_of_a_node_that_has_one() -> None:
    unreadable = {QUARANTINE: "{"}

    assert left(node(OURS, cordoned=True, notes=unreadable))[1] != left(node(OURS, notes=unreadable))[1]


def test_a_node_that_is_only_remembered_is_forgotten() -> None:
    after, words = left(node(PEOPLES, notes={RELEASED: NOW.isoformat()}))

    assert after["metadata"]["annotations"] == NOTES
    assert not missing(words, RELEASED)


@pytest.mark.parametrize(
    ("laid", "lent", "taints"),
    [
        (True, False, []),
        (True, True, []),
        (False, False, [{**RESERVE, "value": "people"}]),
        (False, True, [{**RESERVE, "value": "people"}]),
    ],
)
def test_a_spare_takes_pods_afterwards_unless_a_person_had_kept_them_out(
    *, laid: bool, lent: bool, taints: list[dict[str, str]]
) -> None:
    before = [] if lent else [{**RESERVE, "value": "true" if laid else "people"}]

    after, _ = left(node(PEOPLES, *before, notes=spare(laid=laid, lent=lent)))

    assert after["spec"]["taints"] == [PEOPLES, *taints]
    assert after["metadata"]["annotations"] == NOTES
    assert after["metadata"]["labels"] == LABELS


def test_a_spare_that_is_out_is_taken_back_in_one_patch() -> None:
    notes = {**quarantine(cordoned=True), **spare(laid=True, lent=False)}

    after, _ = left(node(RESERVE, OURS, PEOPLES, cordoned=True, notes=notes))

    assert after["spec"] == {"taints": [PEOPLES]}


def test_a_node_on_which_nothing_is_ours_is_not_written() -> None:
    assert left(node(PEOPLES, RESERVE, cordoned=True))[1] == ""


@given(
    taints=st.lists(st.sampled_from([OURS, PEOPLES, RESERVE]), unique_by=lambda taint: taint["key"]),
    notes=st.dictionaries(st.sampled_from(sorted(WRITTEN_BY_US)), st.sampled_from(["", "{}", "x"])),
    labels=st.dictionaries(st.sampled_from(sorted(WRITTEN_BY_US)), st.just("x")),
    cordoned=st.booleans(),
)
def test_whatever_stands_there_nothing_of_ours_is_left_and_all_else_is(
    taints: list[dict[str, str]], notes: dict[str, str], labels: dict[str, str], *, cordoned: bool
) -> None:
    after, _ = left(node(*taints, cordoned=cordoned, notes=notes, **labels))

    assert after["metadata"]["labels"] == LABELS
    assert after["metadata"]["annotations"] == NOTES
    assert [t for t in after["spec"].get("taints", []) if t["key"] not in (UNHEALTHY, SPARE)] == [
        t for t in taints if t is PEOPLES
    ]
    assert UNHEALTHY not in {t["key"] for t in after["spec"].get("taints", [])}
    assert after["spec"].get("unschedulable", False) is cordoned, "no note says that it was ours"


def test_only_a_job_whose_restart_is_under_way_is_waited_for() -> None:
    world = recovering(cluster(nodes=8).running(gang()).finding(on="n1"))
    recovery = only_recovery(world)
    job = world.gangs["llm-uid"]
    mark = Mark(recovery=recovery.metadata.name, attempt=1, did="stopped")
    stopped = msgspec.structs.replace(job, suspended=True, mark=mark)
    resumed = msgspec.structs.replace(stopped, mark=msgspec.structs.replace(mark, did="resumed"))
    started = msgspec.structs.replace(stopped, suspended=False)

    assert [one.blocks for one in under_way([stopped], [recovery], [])] == [True]
    for other in (job, resumed, started):
        (found,) = under_way([other], [recovery], [])
        assert not found.blocks, "it is waited for, and keeps nobody"
        assert not missing(found.words, str(job.ref), "Planned")
    assert under_way([stopped], [], []) == [], "its people have been told long ago"
    (found,) = under_way([stopped], [recovery], [])
    assert not missing(found.words, str(job.ref))
    start = (
        """kubectl patch pytorchjob -n ml llm --type merge -p '{"spec":{"runPolicy":{"suspend":false}}}'"""
    )
    assert not missing(found.needs, start)


def test_a_job_that_only_its_recovery_can_make_again_keeps_rekindle() -> None:
    recovery = only_recovery(recovering(cluster(nodes=8).running(gang()).finding(on="n1")))
    kept = Recreation(
        attempt=1, why="the framework's controller has marked the job as failed", definition="{}"
    )
    status = msgspec.structs.replace(recovery.status, phase=Phase.RESUMING, recreation=kept)

    (found,) = under_way([], [msgspec.structs.replace(recovery, status=status)], [])

    assert found.blocks
    assert not missing(found.words, recovery.metadata.name)
    assert "jsonpath={.status.recreation.definition} | kubectl create -f -" in found.needs


@pytest.mark.parametrize("phase", RepairPhase)
def test_only_a_node_on_which_a_repair_does_something_is_waited_for(phase: RepairPhase) -> None:
    (incident,) = recovering(cluster().finding(on="n1")).incidents.values()
    repair = Repair(phase=phase)
    repaired = msgspec.structs.replace(
        incident, status=msgspec.structs.replace(incident.status, repair=repair)
    )

    found = under_way([], [], [incident, repaired])

    works = phase in (RepairPhase.RESETTING, RepairPhase.REBOOTING, RepairPhase.VALIDATING)
    assert [missing(one.words, "n1", phase) for one in found] == ([[]] if works else [])
    assert all(one.blocks for one in found)
