"""The addresses on which the daemons listen: a kubelet probes a pod at the pod's address, which may be of
either family."""

from __future__ import annotations

import asyncio
import re
import socket

import pytest
from aiohttp import ClientSession, ClientTimeout, web

from detectors.service.listening import CONNECTIONS_MAX, bound, started

needs_ipv6 = pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")


@needs_ipv6
@pytest.mark.parametrize("everywhere", ["", "0.0.0.0", "::", "[::]"])
def test_everywhere_is_an_address_of_either_family(everywhere: str) -> None:
    with bound(everywhere, 0) as listening:
        port = listening.getsockname()[1]
        for address in ("127.0.0.1", "::1"):
            socket.create_connection((address, port), timeout=10).close()


@needs_ipv6
@pytest.mark.parametrize("address", ["::1", "[::1]"])
def test_an_address_of_the_newer_family_may_stand_in_brackets(address: str) -> None:
    with bound(address, 0) as listening:
        assert listening.getsockname()[0] == "::1"


def test_without_the_newer_family_everywhere_is_the_older_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with bound("0.0.0.0", 0) as listening:
        assert listening.family is socket.AF_INET


def test_a_port_that_is_taken_and_an_address_that_is_none_are_errors() -> None:
    with bound("127.0.0.1", 0) as listening, pytest.raises(OSError, match="in use"):
        bound("127.0.0.1", listening.getsockname()[1])
    with pytest.raises(OSError, match=re.escape("300.0.0.1")):
        bound("300.0.0.1", 0)


async def test_connections_that_ask_for_nothing_keep_no_probe_from_its_answer() -> None:
    """Without a NetworkPolicy any pod may open such connections, and 28 KB of headers in each exhausted the
    agent's memory."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz)])
    runner = await started(app, "127.0.0.1", 0)
    port = runner.addresses[0][1]
    idle = []
    try:
        for _ in range(3 * CONNECTIONS_MAX):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /healthz HTTP/1.1\r\n" + b"X-A: aaaaaaaa\r\n" * 20)
            idle.append(writer)
        url = f"http://127.0.0.1:{port}/healthz"
        async with ClientSession(timeout=ClientTimeout(total=10)) as session, session.get(url) as answer:
            assert await answer.text() == "ok"
        assert runner.server is not None
        assert len(runner.server.connections) <= CONNECTIONS_MAX
    finally:
        for writer in idle:
            writer.close()
        await runner.cleanup()
