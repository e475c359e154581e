"""Runs the server on which a daemon answers probes and scrapes; used by http_status.py and
recover/runtime/web.py."""

from __future__ import annotations

import asyncio
import socket

from aiohttp import web

__all__ = ["CONNECTIONS_MAX", "bound", "started"]

CONNECTIONS_MAX = 32
"""Number of open connections. A kubelet and some scrapers need one each, for a moment."""
_HEADERS_MAX = 32
_EVERYWHERE = frozenset({"", "0.0.0.0", "::"})


def bound(host: str, port: int) -> socket.socket:
    """Returns a socket bound to an address of either family, in brackets or not. An address that means all
    interfaces binds both families: pods of some clusters have IPv4 addresses, and pods of others IPv6
    addresses. Raises OSError."""
    address = host.strip("[]")
    if address not in _EVERYWHERE:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return socket.create_server((address, port), family=family)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


async def started(app: web.Application, host: str, port: int) -> web.AppRunner:
    """Starts the app. The caller cleans the runner up. Raises OSError if the address cannot be bound."""
    listening = bound(host, port)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2, max_headers=_HEADERS_MAX)
    await runner.setup()
    await _Site(runner, listening).start()
    return runner


class _Site(web.SockSite):
    """Limits the number of connections. Without a NetworkPolicy any pod reaches this port. A client that
    opens connections and sends no request can neither fill the daemon's memory nor block its probes: the
    server closes the oldest connection before it accepts the next one."""

    async def start(self) -> None:
        await web.BaseSite.start(self)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._next, sock=self._sock, backlog=self._backlog)

    def _next(self) -> asyncio.Protocol:
        server = self._runner.server
        assert server is not None, "start() comes first"
        if len(server.connections) >= CONNECTIONS_MAX:
            server.connections[0].force_close()
        return server()
