"""Tests what the agent writes, how large it is, how often, and what happens when the API server fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from detectors.agent.publish import Publisher, content, patch_body
from detectors.client.credentials import Credentials
from detectors.client.kubeapi import KubeApi
from detectors.folds.core import AgentCore
from detectors.rules.facts import KernelLine, PodRef
from detectors.service.metrics import Metrics
from detectors.service.settings import AgentSettings, Publishing
from detectors.wire.contract import Device, NodeHealth, NodeHealthStatus
from tests.detectors.agent.statuses import NOW, finding, pod
from tests.detectors.client.node_api import NodeApi, merge, node_api

QUICK = Publishing(missing_retry_s=0.05, retry_max_s=0.05, ask_s=30, ask_busy_s=0.05)


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
    return AgentCore(AgentSettings(publishing=QUICK), boot_id="0f1e2d3c-0000-4000-8000-000000000000")


async def test_a_finding_is_written_at_once_and_never_twice(core: AgentCore) -> None:
    async with node_api("n1") as api, publishing(api, core) as publisher:
        core.kernel_line(kernel_line(1))
        publisher.wake()
        await api.until(lambda status: len(status.findings) == 1)
        core.mark_unwritten()
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


async def test_an_idle_agent_that_is_no_pod_writes_now_and_then_to_show_that_it_lives(
    core: AgentCore,
) -> None:
    how = msgspec.structs.replace(QUICK, idle_refresh_s=0.1)
    async with node_api("n1") as api, publishing(api, core, how):
        first = await api.until(lambda status: status.observed_at is not None)
        await api.until(lambda status: status.observed_at != first.observed_at)

    assert first.refresh_s == QUICK.idle_refresh_s


async def test_an_agent_that_promises_no_refresh_writes_none(core: AgentCore) -> None:
    how = msgspec.structs.replace(QUICK, idle_refresh_s=0)
    async with node_api("n1") as api, publishing(api, core, how):
        await asyncio.sleep(0.3)

    assert api.patches == []


async def test_an_open_finding_makes_it_ask_often(core: AgentCore) -> None:
    core.kernel_line(msgspec.structs.replace(kernel_line(1), at=datetime.now(UTC)))
    async with node_api("n1") as api, publishing(api, core):
        await api.until(lambda status: bool(status.findings))
        await api.until_asked(3)

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


async def test_a_publisher_that_is_cancelled_in_the_moment_of_an_edge_ends(core: AgentCore) -> None:
    """Otherwise the agent would survive its SIGTERM until it is killed."""
    how = msgspec.structs.replace(QUICK, ask_busy_s=30)
    async with node_api("n1") as api, KubeApi(Credentials(server=api.url)) as client:
        publisher = Publisher(client, "n1", core, how, Metrics(), on_reply=lambda reply: None)
        core.kernel_line(kernel_line(1))
        task = asyncio.create_task(publisher.run())
        await api.until(lambda status: len(status.findings) == 1)
        await asyncio.sleep(0.2)

        core.kernel_line(kernel_line(2))
        publisher.wake()
        task.cancel()

        done, _ = await asyncio.wait({task}, timeout=30)
        assert done == {task}


async def test_until_the_controller_has_made_the_object_it_is_not_ready(core: AgentCore) -> None:
    async with node_api("n1") as api, publishing(api, core) as publisher:
        api.exists = False
        assert await publisher.first_reply() is None
        assert not publisher.ready
        api.exists = True
        for number in range(2):
            core.log_line(PodRef("train", "llm-0", "uid"), f"step {number}", NOW + timedelta(seconds=number))
        publisher.wake()
        await api.until(lambda status: bool(status.pods))
        assert publisher.ready


async def test_an_object_that_was_made_anew_is_told_all_that_is_known(core: AgentCore) -> None:
    """A person has deleted the Node, and with it its NodeHealth. The new NodeHealth was empty until the next
    edge, and the broken node was in service."""
    core.kernel_line(msgspec.structs.replace(kernel_line(1), at=datetime.now(UTC)))
    async with node_api("n1") as api, publishing(api, core) as publisher:
        publisher.wake()
        known = await api.until(lambda status: bool(status.findings))

        api.status.clear()
        again = await api.until(lambda status: bool(status.findings))
        asked = api.asks
        await api.until_asked(asked + 3)

    assert again.findings == known.findings
    assert len(api.patches) == 2


async def test_a_storm_of_edges_is_spread_over_time(core: AgentCore) -> None:
    how = msgspec.structs.replace(QUICK, burst_writes=5, burst_window_s=2)
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
