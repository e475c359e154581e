"""A tiny API server for one NodeHealth, which records the patches and answers as Kubernetes would."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from detectors.wire.contract import NodeHealth, NodeHealthStatus


class NodeApi:
    """The API server. `patches` are the bodies that wrote something. `refuse` makes the next answers
    errors."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.exists = True
        self.url = ""
        self.spec: dict[str, Any] = {}
        self.status: dict[str, Any] = {}
        self.patches: list[dict[str, Any]] = []
        self.asks = 0
        self.refuse: list[int] = []
        self._changed = asyncio.Event()

    @property
    def health(self) -> NodeHealthStatus:
        return msgspec.convert({"spec": self.spec, "status": self.status}, NodeHealth).status

    async def until(
        self, holds: Callable[[NodeHealthStatus], bool], timeout_s: float = 30.0
    ) -> NodeHealthStatus:
        async with asyncio.timeout(timeout_s):
            while not holds(self.health):
                self._changed.clear()
                await self._changed.wait()
        return self.health

    async def until_asked(self, times: int, timeout_s: float = 30.0) -> None:
        await self.until(lambda _: self.asks >= times, timeout_s)

    async def _patch(self, request: web.Request) -> web.Response:
        assert request.content_type == "application/merge-patch+json"
        body = await request.json()
        if self.refuse:
            return _error(self.refuse.pop(0))
        if not self.exists or request.match_info["name"] != self.node:
            return _error(404)
        if body:
            self.patches.append(body)
            merge(self.status, body["status"])
            self._changed.set()
        else:
            self.asks += 1
            self._changed.set()
        return web.json_response({"metadata": {"name": self.node}, "spec": self.spec, "status": self.status})


def merge(into: dict[str, Any], patch: dict[str, Any]) -> None:
    """Merges as RFC 7386 demands, on the top level and below."""
    for name, value in patch.items():
        if value is None:
            into.pop(name, None)
        elif isinstance(value, dict) and isinstance(into.get(name), dict):
            merge(into[name], value)
        else:
            into[name] = value


@asynccontextmanager
async def node_api(node: str) -> AsyncIterator[NodeApi]:
    api = NodeApi(node)
    app = web.Application(client_max_size=1024 * 1024)
    app.router.add_patch("/apis/rekindle.dev/v1alpha1/nodehealths/{name}/status", api._patch)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    api.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield api
    finally:
        await runner.cleanup()


def _error(status: int) -> web.Response:
    body = {"kind": "Status", "code": status, "reason": "", "message": "told to refuse"}
    return web.json_response(body, status=status)
