"""Tests how the ranks of a training find each other."""

import contextlib
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from chaos.training import collective
from chaos.training.collective import Peers
from chaos.training.launch import free_port


def test_a_caller_that_says_nothing_does_not_keep_the_ranks_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collective, "_HELLO_S", 0.1)
    master = ("127.0.0.1", free_port())

    def rank(number: int) -> float:
        with Peers.meet(number, 2, master, deadline_s=5.0, timeout_s=5.0) as peers:
            return float(peers.sum(np.array([float(number)]))[0])

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(rank, 0)
        with connected(master):
            second = pool.submit(rank, 1)
            assert (first.result(), second.result()) == (1.0, 1.0)


def connected(master: tuple[str, int]) -> socket.socket:
    """Connects as soon as rank 0 listens."""
    for _ in range(500):
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection(master, timeout=5.0)
        time.sleep(0.01)
    raise AssertionError("rank 0 does not listen")
