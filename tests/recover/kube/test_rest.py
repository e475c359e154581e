"""Tests lists of large objects over REST: no answer fills the memory, and every object arrives."""

from __future__ import annotations

import msgspec
import pytest
from aiohttp import web

from detectors.client.kubeapi import ReplyLost
from recover.k8s.kinds import JOBS
from recover.kube import rest
from recover.kube.cluster import every
from tests.detectors.client.serving import client_of

COUNT = 20


class Server:
    """Serves jobs of this size in bytes, as many in one answer as the request allows."""

    def __init__(self, size: int) -> None:
        self.limits: list[int] = []
        self._size = size

    async def answer(self, request: web.Request) -> web.Response:
        limit, begin = int(request.query["limit"]), int(request.query.get("continue", "0"))
        self.limits.append(limit)
        end = min(COUNT, begin + limit)
        jobs = [{"metadata": {"name": f"j{n}", "x": "x" * self._size}} for n in range(begin, end)]
        metadata = {"resourceVersion": "5", "continue": str(end) if end < COUNT else ""}
        body = msgspec.json.encode({"metadata": metadata, "items": jobs})
        return web.Response(body=body, content_type="application/json")


@pytest.mark.parametrize(
    ("size", "limits"),
    [(10, [500]), (3_000, [500, 62, 7, 500, 62, 7, 500]), (25_000, [500, 62, 7, 1] * (COUNT - 1) + [500])],
    ids=["small", "large", "largest"],
)
async def test_a_list_of_large_objects_comes_in_smaller_pages(
    size: int, limits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "ANSWER_BYTES_MAX", 30_000)
    server = Server(size)

    async with client_of(server.answer) as api:
        found = await every(rest.RestCluster(api), JOBS)

    assert len(found) == COUNT
    assert server.limits == limits


async def test_a_server_that_heeds_no_limit_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "ANSWER_BYTES_MAX", 30_000)
    async with client_of(Server(40_000).answer) as api:
        with pytest.raises(ReplyLost, match=r"with limit 1: .* more than 30000 bytes"):
            await rest.RestCluster(api).list(JOBS)
