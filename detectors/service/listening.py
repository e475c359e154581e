"""The socket on which a daemon answers probes and scrapes: http_status.py and recover/runtime/web.py."""

from __future__ import annotations

import socket

__all__ = ["bound"]

_EVERYWHERE = frozenset({"", "0.0.0.0", "::"})


def bound(host: str, port: int) -> socket.socket:
    """An address of either family, in brackets or not. Each that says everywhere means both families: pods of
    some clusters have addresses of the one, of others of the other. Raises OSError."""
    address = host.strip("[]")
    if address not in _EVERYWHERE:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return socket.create_server((address, port), family=family)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))
