"""The part of a kubelet that `kubectl logs` needs: it serves the logs of the playground's pods."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from chaos.cluster.host import Host
from chaos.training.launch import free_port
from tests.control_plane.plane import ControlPlane
from tests.control_plane.rights import SYSTEM

__all__ = ["kubelet_port"]

LOOK_S = 0.3
CHUNK_BYTES = 64 * 1024
_CRI_FIELDS = 3
"""Number of fields before the text of a line in a CRI log: time, stream and tag."""


@asynccontextmanager
async def kubelet_port(
    plane: ControlPlane, hosts: Mapping[str, Host], logs: Path, is_there: Callable[[str, str], bool]
) -> AsyncIterator[int]:
    """Yields the port on which all nodes answer while the block runs. `is_there` returns whether a pod still
    exists: `--follow` ends with the pod."""

    async def answer(request: web.Request) -> web.StreamResponse:
        namespace, pod = request.match_info["namespace"], request.match_info["pod"]
        file = _file(namespace, pod, hosts, logs)
        if file is None:
            return web.Response(status=404, text=f"pod {namespace}/{pod} has written no log\n")
        tail = request.query.get("tailLines", "")
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        with file.open("rb") as log:
            lines = log.read().splitlines(keepends=True)
            await response.write(_plain(lines[-int(tail) :] if tail else lines, namespace))
            while request.query.get("follow") == "true" and is_there(namespace, pod):
                await asyncio.sleep(LOOK_S)
                await response.write(_plain(log.read(CHUNK_BYTES).splitlines(keepends=True), namespace))
        await response.write_eof()
        return response

    application = web.Application()
    application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", answer)
    trust = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trust.load_cert_chain(plane.ca_file, plane.folder / "tls.key")
    runner, port = web.AppRunner(application), free_port()
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=trust, shutdown_timeout=0.1).start()
        yield port
    finally:
        await runner.cleanup()


def _file(namespace: str, pod: str, hosts: Mapping[str, Host], logs: Path) -> Path | None:
    """Returns the newest log of the pod."""
    if namespace == SYSTEM:
        found = [logs / f"{pod}.log"]
    else:
        found = [
            file
            for host in hosts.values()
            for file in host.root.glob(f"var/log/pods/{namespace}_{pod}_*/*/*.log")
        ]
    there = [file for file in found if file.exists()]
    return max(there, key=lambda file: file.stat().st_mtime, default=None)


def _plain(lines: list[bytes], namespace: str) -> bytes:
    if namespace == SYSTEM:
        return b"".join(lines)
    return b"".join(line.split(b" ", _CRI_FIELDS)[-1] for line in lines)
