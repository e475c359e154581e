"""Tests complete Nodes as the projects document them: each count has exactly its signals, and a node that
is well, boots, is upgraded or is checked has none."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from detectors.wire.contract import Severity
from recover.diagnose.signals import as_findings, becomes_findings, doubts
from recover.model import Node, decode
from recover.policy.node_signals import SignalCatalogue, left_out, packaged_signals
from recover.policy.settings import SignalRow, Signals
from recover.stories.signal_words import signals
from tests.builders import cluster
from tests.recover.policy.documented_nodes import NODES, WRITTEN_AT, DocumentedNode

NOW = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)
MAINTENANCE = "cloud.google.com/scheduled-maintenance-time"
BEGINS = datetime(2026, 11, 22, 12, tzinfo=UTC)


def read(one: DocumentedNode, own: Signals | None = None) -> Node:
    """Returns this Node, with the conditions that its kubelet writes."""
    conditions: list[dict[str, Any]] = [
        {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": WRITTEN_AT}
    ]
    conditions += [
        {"type": type_, "status": status, "reason": reason, "lastTransitionTime": WRITTEN_AT}
        for type_, status, reason in one.conditions
    ]
    body = {
        "metadata": {"name": "n1", "labels": dict(one.labels)},
        "spec": {"taints": [{"key": k, "value": v, "effect": e} for k, v, e in one.taints]},
        "status": {"conditions": conditions},
    }
    catalogue = SignalCatalogue(own or Signals())
    return decode.node(msgspec.json.encode(body), (), signals=catalogue.read)


@pytest.mark.parametrize("one", NODES, ids=lambda one: one.name)
def test_exactly_the_documented_signals_of_a_node_count(one: DocumentedNode) -> None:
    counting = doubts(read(one), NOW)

    assert [(signal.kind.value, signal.name) for signal in counting] == sorted(one.expected)
    assert all(signal.severity is Severity.SUSPECT for signal in counting)
    assert one.source.startswith("https://")


def test_each_project_has_a_node_that_is_well_and_one_in_trouble() -> None:
    projects = {one.name.partition(":")[0] for one in NODES if one.expected}

    assert {one.name.partition(":")[0] for one in NODES if not one.expected} >= projects - {
        "ACS",
        "AWS Node Termination Handler",
    }, "these two write nothing on a node that is well"


def test_no_signal_that_is_left_out_is_read_and_each_says_why() -> None:
    for row in left_out():
        names = {one.name for one in packaged_signals()[row.kind]}
        assert not names & set(row.names)
        assert row.by
        assert row.why
        assert row.source.startswith("https://")


def announced(own: Signals | None = None) -> Node:
    value = str(int(BEGINS.timestamp()))
    return read(DocumentedNode("GKE", "", labels=((MAINTENANCE, value),)), own)


def test_a_maintenance_counts_from_a_day_before_it_begins() -> None:
    node = announced()

    assert not doubts(node, BEGINS.replace(day=21, hour=11, minute=59))
    assert doubts(node, BEGINS.replace(day=21))
    assert doubts(node, BEGINS.replace(day=30))


def test_people_are_told_from_when_on_an_announcement_counts() -> None:
    node = announced()
    (before,) = signals(node, BEGINS.replace(day=1))
    (after,) = signals(node, BEGINS)

    assert "2026-11-21 12:00" in before.text
    assert "24 h ago" in after.text


def test_a_raised_announcement_acts_no_sooner_and_wakes_the_controller_then() -> None:
    own = Signals(labels={MAINTENANCE: SignalRow(severity=Severity.PENDING)})
    node = announced(own)
    due = BEGINS.replace(day=21, minute=1)

    assert not list(as_findings(node, due.replace(minute=0, second=59)))
    (finding,) = as_findings(node, due)
    assert finding.severity is Severity.PENDING
    world = msgspec.structs.replace(cluster().world(), signalling={"n1": node})
    assert list(becomes_findings(world)) == [due]
    assert doubts(announced(Signals(labels={MAINTENANCE: SignalRow(values=("x",))})), BEGINS) == []
