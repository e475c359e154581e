"""The communication of the ranks: every rank has one TCP connection to rank 0, which adds up in the order of
ranks.

The fixed order of additions makes two runs equal bit for bit, at any timing. A peer that dies closes its
connection: every other rank then fails too, as with NCCL, only sooner.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["Peers"]

_T = TypeVar("_T")

_LENGTH = struct.Struct(">Q")
_HELLO = struct.Struct(">8sII")
_MAGIC = b"rekindle"
_RETRY_S = 0.05
_HELLO_S = 2.0
"""Seconds for which rank 0 waits until a caller says which rank it is. A rank says so at once; others that
connect to the port, such as a probe, may say nothing."""
_MESSAGE_BYTES_MAX = 2**30


class Peers:
    """The connections of one rank: rank 0 has one to each other rank, the others have one to rank 0."""

    def __init__(
        self, rank: int, world_size: int, links: Mapping[int, socket.socket], timeout_s: float
    ) -> None:
        self.rank = rank
        self.world_size = world_size
        self._links = dict(sorted(links.items()))
        for link in self._links.values():
            link.settimeout(timeout_s)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @classmethod
    def meet(
        cls, rank: int, world_size: int, master: tuple[str, int], *, deadline_s: float, timeout_s: float
    ) -> Peers:
        """Waits until all ranks are connected. Raises RuntimeError at the deadline."""
        meet = _await_ranks if rank == 0 else _call_first
        links = meet(rank, world_size, master, time.monotonic() + deadline_s)
        return cls(rank, world_size, links, timeout_s)

    def __enter__(self) -> Peers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for link in self._links.values():
            link.close()

    def sum(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the sum of all ranks' vectors, with the same bits on each rank."""
        parts = self.to_first(vector.tobytes())
        if self.rank == 0:
            total = np.frombuffer(parts[0]).copy()
            for part in parts[1:]:
                total += np.frombuffer(part)
            return np.frombuffer(self.from_first(total.tobytes()))
        return np.frombuffer(self.from_first(b""))

    def barrier(self) -> None:
        """Returns once every rank has called it."""
        self.to_first(b"")
        self.from_first(b"")

    def to_first(self, message: bytes) -> list[bytes]:
        """Sends the message to rank 0. Returns on rank 0 the messages of all ranks, in their order, and an
        empty list on the other ranks."""
        if self.rank == 0:
            return [message, *(self._receive(peer) for peer in self._links)]
        self._send(0, message)
        return []

    def from_first(self, message: bytes) -> bytes:
        """Returns rank 0's message, on every rank."""
        if self.rank != 0:
            return self._receive(0)
        for peer in self._links:
            self._send(peer, message)
        return message

    def _send(self, peer: int, message: bytes) -> None:
        self._guarded(peer, lambda link: link.sendall(_LENGTH.pack(len(message)) + message))

    def _receive(self, peer: int) -> bytes:
        (length,) = _LENGTH.unpack(self._guarded(peer, lambda link: _read(link, _LENGTH.size)))
        if length > _MESSAGE_BYTES_MAX:
            raise RuntimeError(f"rank {peer} announced a message of {length} bytes")
        return self._guarded(peer, lambda link: _read(link, length))

    def _guarded(self, peer: int, talk: Callable[[socket.socket], _T]) -> _T:
        try:
            return talk(self._links[peer])
        except TimeoutError as error:
            raise RuntimeError(
                f"no answer from rank {peer} within {self._links[peer].gettimeout():g} s"
            ) from error
        except OSError as error:
            raise RuntimeError(f"connection reset by peer: lost rank {peer}") from error


def _await_ranks(
    rank: int, world_size: int, master: tuple[str, int], deadline: float
) -> dict[int, socket.socket]:
    """Listens on rank 0 until every other rank has called."""
    links: dict[int, socket.socket] = {}
    if world_size == 1:
        return links
    with _listen(master, deadline) as listener:
        while len(links) < world_size - 1:
            missing = sorted(set(range(1, world_size)) - set(links))
            listener.settimeout(_left_s(deadline, f"ranks {missing} did not come to {master[0]}:{master[1]}"))
            try:
                link, _ = listener.accept()
            except OSError:
                continue
            try:
                link.settimeout(_HELLO_S)
                magic, peer, peer_world = _HELLO.unpack(_read(link, _HELLO.size))
            except OSError:  # the caller was ended at once, or says nothing; a rank calls again
                link.close()
                continue
            if magic != _MAGIC or not 0 < peer < world_size or peer_world != world_size:
                link.close()
                continue
            if peer in links:  # the peer was ended after its call and is back
                links[peer].close()
            links[peer] = link
    for link in links.values():
        link.sendall(_HELLO.pack(_MAGIC, rank, world_size))
    return links


def _call_first(
    rank: int, world_size: int, master: tuple[str, int], deadline: float
) -> dict[int, socket.socket]:
    """Calls, on every other rank, until rank 0 answers that all ranks are connected."""
    problem = "no answer"
    while True:
        left_s = _left_s(deadline, f"rank 0 at {master[0]}:{master[1]}: {problem}")
        try:
            link = socket.create_connection(master, timeout=left_s)
        except OSError as error:
            problem = str(error)
            time.sleep(_RETRY_S)
            continue
        try:
            link.sendall(_HELLO.pack(_MAGIC, rank, world_size))
            magic, first, its_world = _HELLO.unpack(_read(link, _HELLO.size))
        except OSError as error:
            problem = str(error)
            link.close()
            time.sleep(_RETRY_S)
            continue
        if (magic, first, its_world) == (_MAGIC, 0, world_size):
            return {0: link}
        raise RuntimeError(f"{master[0]}:{master[1]} is not rank 0 of {world_size} ranks")


def _listen(master: tuple[str, int], deadline: float) -> socket.socket:
    """Listens at the address. The address may still be in use by a process of the last attempt, or its name
    may not be known yet."""
    while True:
        try:
            return socket.create_server(master, backlog=128)
        except OSError as error:
            _left_s(deadline, f"cannot listen on {master[0]}:{master[1]}: {error}")
            time.sleep(_RETRY_S)


def _left_s(deadline: float, problem: str) -> float:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise RuntimeError(f"rendezvous timed out: {problem}")
    return left_s


def _read(link: socket.socket, length: int) -> bytes:
    chunks: list[bytes] = []
    while length > 0:
        chunk = link.recv(min(length, 2**20))
        if not chunk:
            raise ConnectionResetError("connection closed")
        chunks.append(chunk)
        length -= len(chunk)
    return b"".join(chunks)
