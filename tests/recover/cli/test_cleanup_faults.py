"""Tests which nodes stay out of service when Rekindle is removed: the nodes of which nothing proves that
they are repaired."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from detectors.wire.contract import Fault, NodeHealth, Origin, Severity
from recover.api.marks import UNHEALTHY
from recover.cli.cleanup_faults import broken_in_service, stays_cordoned
from recover.cli.cleanup_undo import undo
from recover.k8s.bodies import merged
from recover.model import Node, Taint
from tests.facts import missing
from tests.recover.stories.why_cases import NOW, finding, health, node

TAINT = Taint(UNHEALTHY, "NoSchedule", "device-lost")
OUT = node(quarantined=True, taints=(TAINT,), boot_id="b00t")
OPEN = "xid-79 (a GPU was lost, 0000:3b:00.0) is open on the node"


def out(**changes: Any) -> Node:
    return msgspec.structs.replace(OUT, **changes)


def blind() -> NodeHealth:
    report = health()
    return msgspec.structs.replace(report, status=msgspec.structs.replace(report.status, coverage=[]))


@pytest.mark.parametrize(
    ("at", "report", "named"),
    [
        pytest.param(out(), health(finding()), ("xid-79", "0000:3b:00.0"), id="its fault is open"),
        pytest.param(out(), health(), (), id="its agent sees it and finds nothing"),
        pytest.param(out(), health(finding(cleared_at=NOW)), (), id="its fault was cleared"),
        pytest.param(out(boot_id="next"), health(finding()), ("device-lost",), id="just booted"),
        pytest.param(
            out(boot_id="next"),
            msgspec.structs.replace(
                health(finding()), status=msgspec.structs.replace(health(finding()).status, boot_id="next")
            ),
            (),
            id="its fault is of an earlier boot",
        ),
        pytest.param(out(), None, ("device-lost",), id="no agent"),
        pytest.param(out(), blind(), ("device-lost",), id="a blind agent"),
        pytest.param(out(ready=False), health(), ("device-lost",), id="a silent node"),
        pytest.param(out(), health(finding(origin=Origin.TENANT)), (), id="a tenant's word"),
        pytest.param(
            out(), health(finding(fault=Fault.THERMAL, severity=Severity.PENDING)), (), id="no proof"
        ),
        pytest.param(out(unschedulable=False), health(finding()), (), id="a person has released it"),
        pytest.param(
            out(released_at=NOW), health(finding()), (), id="a person has released it after the fault"
        ),
        pytest.param(
            out(taints=(Taint(UNHEALTHY, "PreferNoSchedule", "nvlink"),)), None, (), id="it took pods"
        ),
        pytest.param(node(), health(finding()), (), id="it was never taken out"),
    ],
)
def test_a_node_returns_only_where_its_agent_shows_that_no_fault_is_open(
    at: Node, report: NodeHealth | None, named: tuple[str, ...]
) -> None:
    found = stays_cordoned(at, report, [], NOW)

    assert not missing(found, *named)
    assert bool(found) == bool(named)


def test_each_reason_why_nobody_can_tell_is_told_apart() -> None:
    unseen = [(out(boot_id="next"), health()), (out(), None), (out(), blind()), (out(ready=False), health())]

    said = {stays_cordoned(at, report, [], NOW) for at, report in unseen}

    assert len(said) == len(unseen)


def test_it_is_left_with_a_plain_cordon_and_the_command_that_lifts_it() -> None:
    found = undo(OUT, OPEN)

    assert found is not None
    body = merged({"spec": {"unschedulable": True, "taints": [{"key": UNHEALTHY}]}}, found.patch.body)
    assert body["spec"] == {"unschedulable": True, "taints": []} or body["spec"] == {"unschedulable": True}
    assert not missing(found.words, OPEN, "kubectl uncordon node-3")
    lifted = undo(OUT)
    assert lifted is not None
    uncordoned, *_ = lifted.words.split(", ")
    assert uncordoned not in found.words.split(", ")


def test_one_that_only_our_taint_keeps_out_gets_a_cordon_in_its_place() -> None:
    quarantine = msgspec.structs.replace(OUT.quarantine, cordoned=False) if OUT.quarantine else None

    found = undo(out(quarantine=quarantine, unschedulable=False), OPEN)

    assert found is not None
    assert found.patch.body["spec"]["unschedulable"] is True


@pytest.mark.parametrize(
    ("at", "named"),
    [(node(), True), (node(unschedulable=True), False), (OUT, False)],
    ids=["in service", "cordoned by a person", "quarantined"],
)
def test_a_broken_node_that_takes_pods_is_named(at: Node, *, named: bool) -> None:
    assert bool(broken_in_service(at, health(finding()), [], NOW + timedelta(hours=3))) == named
