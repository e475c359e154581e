"""Disturbances between the controller and the API server: a wire that can be cut, and a kubelet that starts
the controller again when the controller ends. test_outages.py and test_mixed_faults.py use them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from chaos.processes.children import Child, spawn
from tests.control_plane.plane import ControlPlane

__all__ = ["Container", "Wire", "beside", "kept_running", "pss_bytes", "wired"]

RESTART_PAUSE_S = 10.0
"""A kubelet's pause before the second restart, in seconds. The first restart has no pause."""
_APPLICATION_DATA = 23
_HEADER_BYTES = 5


class Wire:
    """A TCP proxy that passes each byte on to the API server, so TLS stays end to end.

    `asked` counts the requests by their TLS records with data from the client, and never counts too few. A
    short request is one record, and a request with a body is two. A connection counts as its first request,
    because the API server may refuse the connection before it brings a request.
    """

    def __init__(self, target_port: int) -> None:
        self.asked = 0
        self._target_port = target_port
        self._open: set[asyncio.StreamWriter] = set()
        self._carrying: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """Breaks all connections now, as when a cable is pulled. New connections are accepted."""
        for writer in tuple(self._open):
            writer.transport.abort()

    async def end(self) -> None:
        """Cuts all connections, and returns when no connection is left."""
        while self._carrying:
            self.cut()
            await asyncio.wait(self._carrying, timeout=0.1)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked += 1
        carrying = asyncio.create_task(self._carry(reader, writer))
        self._carrying.add(carrying)
        carrying.add_done_callback(self._carrying.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:  # the API server is down, and so is the wire
            writer.transport.abort()
            return
        ends = {writer, far_writer}
        self._open |= ends
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(reader, far_writer, counting=True))
                both.create_task(self._pump(far_reader, writer, counting=False))
        finally:
            self._open -= ends
            for end in ends:
                end.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counting: bool
    ) -> None:
        records = _Records()
        with contextlib.suppress(OSError):
            while chunk := await reader.read(65536):
                if counting:
                    self.asked += records.seen(chunk)
                writer.write(chunk)
                await writer.drain()
        writer.close()


class _Records:
    """Counts the TLS records with application data in a stream, except the first two: the end of the
    handshake, and the first request."""

    def __init__(self) -> None:
        self._uncounted = 2
        self._rest = b""
        self._skip_bytes = 0

    def seen(self, chunk: bytes) -> int:
        data, count = self._rest + chunk[self._skip_bytes :], 0
        self._skip_bytes = max(0, self._skip_bytes - len(chunk))
        while len(data) >= _HEADER_BYTES:
            length = _HEADER_BYTES + int.from_bytes(data[3:5], "big")
            if data[0] == _APPLICATION_DATA:
                count += self._uncounted == 0
                self._uncounted = max(0, self._uncounted - 1)
            self._skip_bytes = max(0, length - len(data))
            data = data[length:]
        self._rest = data
        return count


@asynccontextmanager
async def wired(plane: ControlPlane) -> AsyncIterator[tuple[Wire, ControlPlane]]:
    """Yields a wire to the API server, and the control plane as a client of the wire reaches it."""
    wire = Wire(int(plane.url.rpartition(":")[2]))
    server = await asyncio.start_server(wire.accept, "127.0.0.1", 0)
    try:
        seen = ControlPlane(plane.folder, server.sockets[0].getsockname()[1])
        seen.programs = plane.programs
        yield wire, seen
    finally:
        server.close()
        await wire.end()


class Container:
    """A process that is restarted when it ends, as a kubelet restarts a container."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.restarts = 0


@asynccontextmanager
async def kept_running(command: Sequence[str], log: Path) -> AsyncIterator[Container]:
    container = Container(await spawn("controller", list(command), log))
    keeping = asyncio.create_task(_keep(container, command, log))
    try:
        yield container
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping
        await container.child.stop()


async def _keep(container: Container, command: Sequence[str], log: Path) -> None:
    while True:
        await container.child.process.wait()
        if container.restarts:
            await asyncio.sleep(RESTART_PAUSE_S)
        container.restarts += 1
        container.child = await spawn("controller", list(command), log)


def beside(child: Child, plane: ControlPlane, seen: ControlPlane) -> list[str]:
    """Returns the command of that process, with the address of the control plane replaced by the address of a
    wire."""
    words = Path(f"/proc/{child.pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0")
    return [seen.url if word == plane.url else word for word in words]


def pss_bytes(child: Child) -> int:
    """Returns the memory of the process in bytes, including its share of the memory that it shares with
    others."""
    for line in Path(f"/proc/{child.pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no Pss of {child.name}")
