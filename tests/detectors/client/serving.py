"""A client of a server on loopback that answers every request by one handler."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from detectors.client.credentials import Credentials
from detectors.client.kubeapi import KubeApi

__all__ = ["client_of"]


@asynccontextmanager
async def client_of(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> AsyncIterator[KubeApi]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        async with KubeApi(Credentials(f"http://{host}:{port}"), timeout_s=5.0) as api:
            yield api
    finally:
        await runner.cleanup()
