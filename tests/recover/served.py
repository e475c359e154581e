"""Serves a store from a separate thread, for commands that run their own event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chaos.apiserver.rest import serve, write_kubeconfig
from chaos.apiserver.store import MemoryCluster


@contextmanager
def served(store: MemoryCluster, folder: Path) -> Iterator[str]:
    """Yields the path of a kubeconfig for the store's server."""
    path, ready, done = folder / "kubeconfig", threading.Event(), threading.Event()

    async def serving() -> None:
        async with serve(store, users={"secret": "tester"}) as server:
            write_kubeconfig(path, server.url, "secret")
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=asyncio.run, args=(serving(),))
    thread.start()
    assert ready.wait(30)
    try:
        yield str(path)
    finally:
        done.set()
        thread.join(30)
