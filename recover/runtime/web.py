"""Serves /healthz, /readyz and /metrics of the controller."""

from __future__ import annotations

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from detectors.service.listening import started
from recover.runtime.controller import Controller

__all__ = ["serve"]


async def serve(controller: Controller, host: str, port: int) -> web.AppRunner:
    """Starts the server; the caller cleans the runner up."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        """Returns 200 also for a controller that stands by: otherwise no Deployment of two replicas could
        ever be rolled out."""
        if controller.ready.is_set():
            return web.Response(text="ok, leading\n" if controller.leading.is_set() else "ok, standing by\n")
        return web.Response(status=503, text="the cache is not complete yet\n")

    async def metrics(_: web.Request) -> web.Response:
        controller.refresh_gauges()
        return web.Response(
            body=generate_latest(controller.metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    return await started(app, host, port)
