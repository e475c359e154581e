"""Tests each preset against the objects that its project documents: an object in trouble makes the node a
suspect, and an object that is well gives no signal. Every packaged row has such an object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from detectors.wire.contract import Severity
from recover.model import NodeSignal, SignalKind, decode
from recover.policy.node_signals import SignalCatalogue, packaged_signals
from recover.policy.settings import Signals
from tests.recover.policy.documented_objects import DOCUMENTED, Documented

AT = "2026-11-21T10:00:00Z"
CATALOGUE = SignalCatalogue(Signals())
ALL = pytest.mark.parametrize("one", DOCUMENTED, ids=lambda one: one.project)


def read(
    conditions: list[tuple[str, str, str]] | None = None,
    taints: list[tuple[str, str, str]] | None = None,
    labels: dict[str, str] | None = None,
) -> tuple[NodeSignal, ...]:
    """Returns the signals of a Node with these objects and the kubelet's own conditions."""
    mine: list[dict[str, Any]] = [
        {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": AT},
        {"type": "DiskPressure", "status": "False", "reason": "KubeletHasNoDiskPressure"},
    ]
    mine += [
        {"type": type_, "status": status, "reason": reason, "message": "any", "lastTransitionTime": AT}
        for type_, status, reason in conditions or []
    ]
    body = {
        "metadata": {"name": "n1", "labels": labels or {}},
        "spec": {"taints": [{"key": k, "value": v, "effect": e} for k, v, e in taints or []]},
        "status": {"conditions": mine},
    }
    return decode.node(msgspec.json.encode(body), (), signals=CATALOGUE.read).signals


def objects(one: Documented) -> Iterator[tuple[tuple[SignalKind, str, str], tuple[NodeSignal, ...]]]:
    """Yields each object that the project writes in trouble, and the signals that Rekindle reads from this
    object alone."""
    for type_, status, reason, _, _ in one.conditions:
        yield (SignalKind.CONDITION, type_, status), read([(type_, status, reason)])
    for key, value, effect in one.taints:
        yield (SignalKind.TAINT, key, value), read(taints=[(key, value, effect)])
    for key, value in one.labels:
        yield (SignalKind.LABEL, key, value), read(labels={key: value})


@ALL
def test_what_a_project_writes_in_trouble_makes_the_node_suspect_and_no_more(one: Documented) -> None:
    for written, signals in objects(one):
        (signal,) = signals
        assert (signal.kind, signal.name, signal.value) == written
        assert signal.severity is Severity.SUSPECT
        assert signal.by


@ALL
def test_what_a_project_writes_when_all_is_well_says_nothing(one: Documented) -> None:
    well = [(type_, status, reason) for type_, _, _, status, reason in one.conditions]
    assert read(well) == ()
    assert read([(type_, "Unknown", "NodeStatusUnknown") for type_, *_ in one.conditions]) == ()
    for key, value in one.well:
        assert read(labels={key: value}) == ()


def test_every_packaged_row_stands_in_the_documents_and_every_source_is_public() -> None:
    shown = {written[:2] for one in DOCUMENTED for written, _ in objects(one)}
    values = {written for one in DOCUMENTED for written, _ in objects(one)}

    for kind, rows in packaged_signals().items():
        assert {(kind, row.name) for row in rows} == {found for found in shown if found[0] == kind}
        for row in rows:
            assert all((kind, row.name, value) in values for value in row.values)
    assert all(one.source.startswith("https://") for one in DOCUMENTED)


def test_a_node_of_a_whole_cloud_says_each_thing_once() -> None:
    """Several projects run on one node, for example node-problem-detector and the cloud's own agent."""
    conditions = [
        (type_, status, reason) for one in DOCUMENTED for type_, status, reason, _, _ in one.conditions
    ]
    taints = [taint for one in DOCUMENTED for taint in one.taints]

    signals = read(conditions, taints)

    assert len(signals) == len({(s.kind, s.name) for s in signals}) == len(conditions) + len(taints)
