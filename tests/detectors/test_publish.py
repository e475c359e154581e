"""What is written, how large it is, how often, and what happens when the API does not play along."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.contract import (
    Coverage,
    CoverageState,
    Device,
    DevicePod,
    Edge,
    Fault,
    Finding,
    KnownLine,
    LogError,
    NodeHealth,
    NodeHealthStatus,
    Origin,
    PodProgress,
    Severity,
    Source,
    Subject,
    SubjectKind,
)
from detectors.core import AgentCore
from detectors.facts import KernelLine, PodRef
from detectors.kubeapi import Credentials, KubeApi
from detectors.metrics import Metrics
from detectors.publish import Publisher, content, patch_body
from detectors.settings import AgentSettings, Publishing
from detectors.size import STATUS_BYTES_MAX, bounded

from .node_api import NodeApi, merge, node_api

NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
QUICK = Publishing(missing_retry_s=0.05, retry_max_s=0.05, ask_s=30, ask_busy_s=0.05)


def finding(number: int, **changes: object) -> Finding:
    base = Finding(
        id=f"0f1e2d3c-kmsg-{number}",
        code=f"xid-{number}",
        fault=Fault.UNKNOWN,
        origin=Origin.KERNEL,
        severity=Severity.PENDING,
        subject=Subject(kind=SubjectKind.DEVICE, device=f"GPU-{number}", pci=f"0000:{number:02x}:00"),
        boot_id="0f1e2d3c-0000-4000-8000-000000000000",
        first_seen=NOW + timedelta(seconds=number),
        last_seen=NOW + timedelta(seconds=number),
        evidence="e" * 256,
    )
    return msgspec.structs.replace(base, **changes)


def pod(number: int, tail: str = "", edge: Edge = Edge.STEPPING) -> PodProgress:
    return PodProgress(
        uid=f"uid-{number}",
        namespace="train",
        name=f"llm-{number}",
        edge=edge,
        at=NOW + timedelta(seconds=number),
        tail=tail,
    )


def kernel_line(number: int, code: int = 79) -> KernelLine:
    return KernelLine(sequence=number, at=NOW, text=f"NVRM: Xid (PCI:0000:{number % 256:02x}:00): {code}, x")


def test_a_patch_names_every_field_so_that_what_went_away_goes() -> None:
    stored: dict[str, object] = {}
    full = NodeHealthStatus(boot_id="b", findings=[finding(1)], pods=[pod(1)], devices=[Device(uuid="GPU-1")])
    empty = NodeHealthStatus(boot_id="b")

    merge(stored, patch_body(full)["status"])
    assert msgspec.convert(stored, NodeHealthStatus) == full
    merge(stored, patch_body(empty)["status"])
    assert msgspec.convert(stored, NodeHealthStatus) == empty


def test_time_of_writing_and_reading_position_are_no_content() -> None:
    assert content(NodeHealthStatus(observed_at=NOW)) == content(NodeHealthStatus())
    assert content(NodeHealthStatus(boot_id="b")) != content(NodeHealthStatus())


def test_tails_are_dropped_before_evidence_and_evidence_before_findings() -> None:
    status = NodeHealthStatus(
        findings=[finding(n) for n in range(8)],
        pods=[pod(n, tail="t" * 2048, edge=Edge.ENDED) for n in range(8)],
    )

    small = bounded(status)

    assert len(msgspec.json.encode(small)) <= STATUS_BYTES_MAX
    assert [f.evidence for f in small.findings] == ["e" * 256] * 8
    assert {len(p.tail) for p in small.pods} == {1024}


def test_who_holds_the_devices_is_told_for_all_of_them_or_for_none() -> None:
    """A pod that stood at some of its devices only would count as one that holds no other."""
    holders = [DevicePod(uid=f"pod-{n}", namespace="team-name", name=f"train-{n}") for n in range(56)]
    devices = [Device(uuid=f"GPU-{n}", pods=holders) for n in range(8)]

    small = bounded(NodeHealthStatus(devices=devices, findings=[finding(n) for n in range(4)]))

    assert len(msgspec.json.encode(small)) <= STATUS_BYTES_MAX
    assert [device.pods for device in small.devices] == [[]] * 8
    assert len(small.findings) == 4


def test_lines_that_tenants_print_crowd_out_no_finding_of_the_hardware() -> None:
    """The lines of each namespace are of recipes of its own, so none repeats another's."""
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

    small = bounded(NodeHealthStatus(findings=fatal, pods=pods))

    assert len(msgspec.json.encode(small)) <= STATUS_BYTES_MAX
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

    small = bounded(NodeHealthStatus(findings=[finding(n) for n in range(4)], pods=[*ranks, alone]))

    assert len(msgspec.json.encode(small)) <= STATUS_BYTES_MAX
    assert len(small.pods) == 9
    assert [f.evidence for f in small.findings] == ["e" * 256] * 4
    kept = {p.name: len(p.known_lines) for p in small.pods}
    assert (kept["llm-0"], kept["llm-7"], kept["llm-9"]) == (4, 0, 1)


def test_a_service_without_steps_goes_before_what_ended_and_that_before_training() -> None:
    pods = [pod(n, edge=edge) for n, edge in enumerate((Edge.STEPPING, Edge.ENDED, Edge.STARTED))]

    def tighter(status: NodeHealthStatus) -> NodeHealthStatus:
        return bounded(status, len(msgspec.json.encode(status)) - 1)

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
    assert len(msgspec.json.encode(small)) <= STATUS_BYTES_MAX


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
        pods=[pod(n, tail=tail) for n in range(pods)],
    )

    assert len(msgspec.json.encode(bounded(status))) <= STATUS_BYTES_MAX


@asynccontextmanager
async def publishing(api: NodeApi, core: AgentCore, how: Publishing = QUICK) -> AsyncIterator[Publisher]:
    replies: list[NodeHealth] = []
    async with KubeApi(Credentials(server=api.url), timeout_s=2) as client:
        publisher = Publisher(client, "n1", core, how, Metrics(), on_reply=replies.append)
        task = asyncio.create_task(publisher.run())
        try:
            yield publisher
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def core() -> AgentCore:
    return AgentCore(AgentSettings(), boot_id="0f1e2d3c-0000-4000-8000-000000000000")


async def test_a_finding_is_written_at_once_and_never_twice(core: AgentCore) -> None:
    async with node_api("n1") as api, publishing(api, core) as publisher:
        core.kernel_line(kernel_line(1))
        publisher.wake()
        await api.until(lambda status: len(status.findings) == 1)
        core.owe()
        publisher.wake()
        await asyncio.sleep(0.15)

    assert len(api.patches) == 1


async def test_repeats_are_not_written_before_the_coarse_refresh(core: AgentCore) -> None:
    how = msgspec.structs.replace(QUICK, refresh_s=0.4)
    async with node_api("n1") as api, publishing(api, core, how) as publisher:
        core.kernel_line(kernel_line(1))
        publisher.wake()
        await api.until(lambda status: len(status.findings) == 1)
        for _ in range(5000):
            core.kernel_line(kernel_line(1))
            publisher.wake()
        await asyncio.sleep(0.15)
        assert len(api.patches) == 1
        status = await api.until(lambda status: status.findings[0].count == 5001)

    assert len(api.patches) == 2
    assert len(status.findings) == 1


async def test_an_idle_agent_writes_nothing_and_asks_rarely(core: AgentCore) -> None:
    async with node_api("n1") as api, publishing(api, core):
        await asyncio.sleep(0.3)

    assert api.patches == []
    assert api.asks == 1


async def test_an_open_finding_makes_it_ask_often(core: AgentCore) -> None:
    core.kernel_line(msgspec.structs.replace(kernel_line(1), at=datetime.now(UTC)))
    async with node_api("n1") as api, publishing(api, core):
        await api.until(lambda status: bool(status.findings))
        await asyncio.sleep(0.3)

    assert api.asks >= 3
    assert len(api.patches) == 1


@pytest.mark.parametrize("refusals", [[500, 503], [429], [404, 404], [403]])
async def test_an_edge_survives_every_refusal(core: AgentCore, refusals: list[int]) -> None:
    async with node_api("n1") as api, publishing(api, core) as publisher:
        api.refuse = list(refusals)
        core.kernel_line(kernel_line(1))
        publisher.wake()
        await api.until(lambda status: len(status.findings) == 1)


async def test_an_edge_waits_for_an_api_that_is_away(core: AgentCore) -> None:
    async with node_api("n1") as api:
        client = KubeApi(Credentials(server="http://127.0.0.1:9"), timeout_s=1)
        async with client:
            publisher = Publisher(client, "n1", core, QUICK, Metrics(), on_reply=lambda reply: None)
            core.kernel_line(kernel_line(1))
            task = asyncio.create_task(publisher.run())
            await asyncio.sleep(0.1)
            client._credentials = Credentials(server=api.url)
            await api.until(lambda status: len(status.findings) == 1)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_an_edge_waits_for_a_token_that_is_being_renewed(core: AgentCore, tmp_path: Path) -> None:
    token = tmp_path / "token"
    async with (
        node_api("n1") as api,
        KubeApi(Credentials(server=api.url, token_file=str(token))) as client,
    ):
        publisher = Publisher(client, "n1", core, QUICK, Metrics(), on_reply=lambda reply: None)
        core.kernel_line(kernel_line(1))
        task = asyncio.create_task(publisher.run())
        await asyncio.sleep(0.05)
        token.write_text("secret")
        await api.until(lambda status: len(status.findings) == 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_until_the_controller_has_made_the_object_it_is_not_ready(core: AgentCore) -> None:
    async with node_api("n1") as api, publishing(api, core) as publisher:
        api.exists = False
        assert await publisher.first_reply() is None
        assert not publisher.ready
        api.exists = True
        core.log_line(PodRef("train", "llm-0", "uid"), "step 1", NOW)
        publisher.wake()
        await api.until(lambda status: bool(status.pods))
        assert publisher.ready


async def test_a_storm_of_edges_is_spread_over_time(core: AgentCore) -> None:
    how = msgspec.structs.replace(QUICK, burst_writes=5, burst_window_s=0.5)
    async with node_api("n1") as api, publishing(api, core, how) as publisher:
        for number in range(60):
            core.kernel_line(kernel_line(number))
            publisher.wake()
            await asyncio.sleep(0.002)
        await asyncio.sleep(0.1)
        assert len(api.patches) <= 5
        await api.until(
            lambda status: sum(entry.count for entry in status.folded) + len(status.findings) >= 60
        )

    assert len(api.patches) <= 7
