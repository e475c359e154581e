"""Runs the agent's own small HTTP server: /healthz, /readyz, /metrics.

The server runs in the agent's event loop: if the loop stalls, no probe is answered, and the kubelet notices
that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from detectors.service.listening import started
from detectors.service.metrics import Metrics

__all__ = ["serve"]


@asynccontextmanager
async def serve(host: str, port: int, metrics: Metrics, *, ready: Callable[[], bool]) -> AsyncIterator[int]:
    """Yields the port; with port 0 any free one. Raises `OSError` if the port is taken."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        if ready():
            return web.Response(text="ok\n")
        return web.Response(status=503, text="this node's NodeHealth has not answered lately\n")

    async def scrape(_: web.Request) -> web.Response:
        return web.Response(body=metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4"})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", scrape)])
    runner = await started(app, host, port)
    try:
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
