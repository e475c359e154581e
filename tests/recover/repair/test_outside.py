"""Tests the webhook that reboots a node in place of a Job, against a server on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from recover.k8s.kinds import INCIDENTS
from recover.kube.clock import WallClock
from recover.kube.errors import NotLeaderError, Transient
from recover.model.actions import Ask, Patch, Plan
from recover.model.modes import Mode, Modes, begun
from recover.policy.settings import Settings, Webhook
from recover.runtime.execute import Executor
from recover.runtime.observe import Observer
from recover.runtime.telemetry import Metrics
from recover.runtime.webhook import Outside
from tests.recover.scripted import Scripted

BODY = {"action": "reboot", "id": "repair-1-reboot-1", "node": "n1"}


@asynccontextmanager
async def machine(status: int, seen: list[web.Request]) -> AsyncIterator[str]:
    async def answer(request: web.Request) -> web.Response:
        seen.append(request)
        assert await request.json() == BODY
        return web.Response(status=status, text="not now", headers={"Location": "http://elsewhere.example"})

    app = web.Application()
    app.router.add_post("/reboot", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/reboot"
    finally:
        await runner.cleanup()


async def test_a_request_carries_its_id_and_the_token_of_the_file(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    seen: list[web.Request] = []
    async with machine(202, seen) as url:
        await Outside(Webhook(url=url, token_file=str(token))).ask("repair-1-reboot-1", BODY)

    (request,) = seen
    assert request.headers["Idempotency-Key"] == "repair-1-reboot-1"
    assert request.headers["Authorization"] == "Bearer secret"


@pytest.mark.parametrize("status", [307, 403, 500])
async def test_an_answer_that_is_no_yes_is_asked_again_later_and_no_redirect_is_followed(status: int) -> None:
    async with machine(status, []) as url:
        with pytest.raises(Transient, match=f"answered {status}: not now") as raised:
            await Outside(Webhook(url=url)).ask("repair-1-reboot-1", BODY)

    assert raised.value.retry_in_s == 10


@pytest.mark.parametrize(
    "webhook", [Webhook(url="http://127.0.0.1:1/"), Webhook(url="http://127.0.0.1:1/", token_file="/none")]
)
async def test_a_machine_that_does_not_answer_or_a_token_that_is_not_there_is_no_defect(
    webhook: Webhook,
) -> None:
    with pytest.raises(Transient):
        await Outside(webhook).ask("repair-1-reboot-1", BODY)


@pytest.mark.parametrize("token", [b"two\nlines", b"\xff"])
async def test_a_token_that_no_header_takes_is_told_and_no_defect(token: bytes, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_bytes(token)

    async with machine(202, []) as url:
        with pytest.raises(Transient, match=f"{url}: ") as raised:
            await Outside(Webhook(url=url, token_file=str(file))).ask("repair-1-reboot-1", BODY)

    assert "lines" not in str(raised.value)


async def test_nothing_is_asked_by_a_controller_whose_lease_may_end() -> None:
    def may_send() -> None:
        raise NotLeaderError("this controller does not hold the lease")

    seen: list[web.Request] = []
    async with machine(202, seen) as url:
        with pytest.raises(NotLeaderError):
            await Outside(Webhook(url=url), may_send).ask("repair-1-reboot-1", BODY)

    assert seen == []


async def test_what_follows_a_request_is_written_only_once_it_was_taken() -> None:
    """Otherwise the Incident would say that the node is being rebooted, and nobody would request the
    reboot again."""
    seen: list[web.Request] = []
    ask = Ask(what="ask-for-reboot", id=BODY["id"], body=BODY)
    note = Patch(
        what="note", resource=INCIDENTS, name="i", body={"status": {"phase": "Open"}}, subresource="status"
    )

    async def writes(status: int) -> tuple[float | None, list[str]]:
        cluster = Scripted()
        async with machine(status, seen) as url:
            observer = Observer(cluster, Settings(), lambda: None)
            executor = Executor(cluster, observer, Metrics(), WallClock(), Outside(Webhook(url=url)))
            again_s = await executor.run(Plan(chains=((ask, note),)))
        return again_s, [method for method, _ in cluster.calls]

    assert await writes(500) == (10.0, [])
    assert await writes(200) == (None, ["patch"])
    assert len(seen) == 2


async def test_why_a_machine_outside_did_not_take_a_request_is_known_to_the_next_look() -> None:
    cluster = Scripted()
    observer = Observer(cluster, Settings(), lambda: None)
    ask = Ask(what="ask-for-reboot", id=BODY["id"], body=BODY)
    async with machine(503, []) as url:
        executor = Executor(cluster, observer, Metrics(), WallClock(), Outside(Webhook(url=url)))
        await executor.run(Plan(chains=((ask,),)))

    (refusal,) = observer.world(Modes(begun(Mode.REPAIR, WallClock().now()))).refused.values()

    assert "503" in refusal.words
    assert "not now" in refusal.words
