"""A status that is too large loses some parts before others, and then fits."""

from __future__ import annotations

from datetime import timedelta

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.folds.status_size import STATUS_BYTES_MAX, bounded
from detectors.wire.contract import (
    Coverage,
    CoverageState,
    Device,
    DevicePod,
    Fault,
    FoldedFindings,
    NodeHealthStatus,
    Severity,
    Source,
)
from detectors.wire.training import Edge, KnownLine, LogError, PodProgress
from tests.detectors.agent import bad_node
from tests.detectors.agent.statuses import NOW, finding, pod

TIGHT_BYTES = 14 * 1024


def size_bytes(status: NodeHealthStatus) -> int:
    return len(msgspec.json.encode(status))


def test_of_a_really_bad_node_every_device_is_told_and_most_pods() -> None:
    wanted = bad_node.broken()

    small = bounded(wanted)

    told = {(f.code, f.subject.device) for f in small.findings}
    first = {(f.code, f.subject.device): f.id for f in reversed(wanted.findings)}
    assert size_bytes(wanted) > 5 * STATUS_BYTES_MAX
    assert size_bytes(small) <= STATUS_BYTES_MAX
    assert told == {(code, d.uuid) for code in ("xid-145", "xid-48") for d in small.devices}
    assert set(first.values()) <= {f.id for f in small.findings}, "what was seen first stays"
    assert len(small.pods) >= 32
    assert len(small.catalogue_problems) == 1


def test_tails_are_dropped_before_evidence_and_evidence_before_findings() -> None:
    status = NodeHealthStatus(
        findings=[finding(n) for n in range(8)],
        pods=[pod(n, tail="t" * 2048, edge=Edge.ENDED) for n in range(8)],
    )

    small = bounded(status, TIGHT_BYTES)

    assert size_bytes(small) <= TIGHT_BYTES
    assert [f.evidence for f in small.findings] == ["e" * 256] * 8
    assert {len(p.tail) for p in small.pods} == {1024}


def test_who_holds_the_devices_is_told_for_all_of_them_or_for_none() -> None:
    """If a pod were listed at only some of its devices, readers would conclude that it uses no others."""
    holders = [DevicePod(uid=f"pod-{n}", namespace="team-name", name=f"train-{n}") for n in range(56)]
    devices = [Device(uuid=f"GPU-{n}", pods=holders) for n in range(8)]

    small = bounded(NodeHealthStatus(devices=devices, findings=[finding(n) for n in range(4)]), TIGHT_BYTES)

    assert size_bytes(small) <= TIGHT_BYTES
    assert [device.pods for device in small.devices] == [[]] * 8
    assert len(small.findings) == 4


def test_lines_that_tenants_print_crowd_out_no_finding_of_the_hardware() -> None:
    """The lines of each namespace match its own recipes, so no line repeats the line of another namespace."""
    pods = [
        PodProgress(
            uid=f"pod-{number}",
            namespace=f"team-{number}",
            name="train-0",
            edge=Edge.STEPPING,
            at=NOW,
            known_lines=[KnownLine(signature=f"recipe-{n}", at=NOW, text="l" * 512) for n in range(8)],
        )
        for number in range(8)
    ]
    status = NodeHealthStatus(findings=[finding(number) for number in range(8)], pods=pods)

    fitting = bounded(status)

    assert len(fitting.findings) == 8
    assert len(fitting.pods) == 8
    assert fitting.pods[0].known_lines


def test_a_crowd_of_pods_with_errors_hides_no_fatal_finding() -> None:
    error = LogError(code="log-python", at=NOW, text="e" * 256)
    pods = [msgspec.structs.replace(pod(n), first_error=error) for n in range(64)]
    fatal = [finding(n, severity=Severity.FATAL) for n in range(8)]

    small = bounded(NodeHealthStatus(findings=fatal, pods=pods), TIGHT_BYTES)

    assert size_bytes(small) <= TIGHT_BYTES
    assert small.findings == fatal or [f.evidence for f in small.findings] == [""] * 8
    assert len(small.pods) > 16
    assert small.pods[0].first_error == LogError(code="log-python", at=NOW)


def test_ranks_that_repeat_a_known_line_lose_it_before_anything_else_of_weight() -> None:
    line = KnownLine(signature="paddle-autogrow-oom", at=NOW, text="x" * 512)
    ranks = [
        msgspec.structs.replace(
            pod(n, tail="t" * 2048, edge=Edge.ENDED),
            known_lines=[msgspec.structs.replace(line, at=NOW + timedelta(seconds=n))] * 4,
        )
        for n in range(8)
    ]
    alone = msgspec.structs.replace(pod(9), known_lines=[msgspec.structs.replace(line, signature="other")])

    small = bounded(
        NodeHealthStatus(findings=[finding(n) for n in range(4)], pods=[*ranks, alone]), TIGHT_BYTES
    )

    assert size_bytes(small) <= TIGHT_BYTES
    assert len(small.pods) == 9
    assert [f.evidence for f in small.findings] == ["e" * 256] * 4
    kept = {p.name: len(p.known_lines) for p in small.pods}
    assert (kept["llm-0"], kept["llm-7"], kept["llm-9"]) == (4, 0, 1)


def test_a_service_without_steps_goes_before_what_ended_and_that_before_training() -> None:
    pods = [pod(n, edge=edge) for n, edge in enumerate((Edge.STEPPING, Edge.ENDED, Edge.STARTED))]

    def tighter(status: NodeHealthStatus) -> NodeHealthStatus:
        return bounded(status, size_bytes(status) - 1)

    less = tighter(NodeHealthStatus(pods=pods))
    assert [p.edge for p in less.pods] == [Edge.STEPPING, Edge.ENDED]
    assert [p.edge for p in tighter(less).pods] == [Edge.STEPPING]


def test_the_gravest_findings_stay_and_the_folded_are_counted() -> None:
    fatal = finding(
        99, severity=Severity.FATAL, fault=Fault.DEVICE_LOST, final=True, first_seen=NOW, last_seen=NOW
    )
    status = NodeHealthStatus(findings=[fatal, *(finding(n) for n in range(60))])

    small = bounded(status)

    assert fatal.id in [f.id for f in small.findings]
    assert len(small.folded) <= 16
    assert size_bytes(small) <= STATUS_BYTES_MAX


def test_a_status_that_fits_is_left_alone() -> None:
    status = NodeHealthStatus(findings=[finding(1)], pods=[pod(1, tail="t" * 2048)])

    assert bounded(status) is status


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 40), st.integers(0, 64), st.integers(0, 64), st.text(max_size=400))
def test_whatever_there_is_fits(findings: int, pods: int, devices: int, tail: str) -> None:
    status = NodeHealthStatus(
        devices=[
            Device(uuid=f"GPU-{n:036}", pci="0000:00:00.0", model="NVIDIA H200") for n in range(devices)
        ],
        coverage=[Coverage(source=s, state=CoverageState.BLIND, since=NOW, why="w" * 256) for s in Source],
        findings=[finding(n) for n in range(findings)],
        folded=[FoldedFindings(code=f"log-{n:058}", count=10**9, last_seen=NOW) for n in range(64)],
        pods=[pod(n, tail=tail) for n in range(pods)],
    )

    assert size_bytes(bounded(status)) <= STATUS_BYTES_MAX
