"""Tests how the REST client handles answers that no API server gives: proxies, broken connections,
garbage."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from detectors.client import kubeapi
from detectors.client.credentials import Credentials
from detectors.client.failures import why_no_answer
from detectors.client.kubeapi import AnswerTooLarge, ApiError, KubeApi, ReplyLost
from tests.detectors.client.serving import client_of

EVENT = b'{"type":"ADDED","object":{"metadata":{"name":"a"}}}'
JSON = "application/json"


@asynccontextmanager
async def answering(
    *chunks: bytes, status: int = 200, kind: str = JSON, retry_after: str = ""
) -> AsyncIterator[KubeApi]:
    """Yields a client of a server that answers everything with these chunks."""

    async def answer(request: web.Request) -> web.StreamResponse:
        headers = {"Content-Type": kind, **({"Retry-After": retry_after} if retry_after else {})}
        response = web.StreamResponse(status=status, headers=headers)
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        await response.write_eof()
        return response

    async with client_of(answer) as api:
        yield api


async def watched(api: KubeApi) -> list[str]:
    return [event.type async for event in api.watch("/w", params={}, timeout_s=5, silence_s=5)]


async def test_lines_may_come_in_any_pieces() -> None:
    whole = EVENT + b"\n" + EVENT + b"\n\n" + EVENT + b"\n"
    async with answering(*(whole[at : at + 7] for at in range(0, len(whole), 7))) as api:
        assert await watched(api) == ["ADDED"] * 3


async def test_a_last_line_without_its_newline_counts() -> None:
    async with answering(EVENT + b"\n" + EVENT) as api:
        assert await watched(api) == ["ADDED", "ADDED"]


async def test_a_line_of_many_chunks_is_one_event() -> None:
    long = b'{"type":"ADDED","object":{"data":"' + b"x" * 3_000_000 + b'"}}\n'
    async with answering(long, long) as api:
        assert await watched(api) == ["ADDED", "ADDED"]


@pytest.mark.parametrize(
    ("chunks", "kind", "told"),
    [
        ([b"<html>Sign in</html>"], "text/html", "text/html.*<html>Sign"),
        ([EVENT + b"\n", EVENT[:20]], JSON, "truncated"),
        ([b"<html>\n"], JSON, "malformed"),
        ([b'{"type":"ADDED"}\n'], JSON, "missing required field `object`"),
    ],
    ids=["a login page", "half a line", "a page that says it is JSON", "an event without its object"],
)
async def test_a_watch_that_is_none_is_a_lost_reply_that_says_what_came(
    chunks: list[bytes], kind: str, told: str
) -> None:
    async with answering(*chunks, kind=kind) as api:
        with pytest.raises(ReplyLost, match=told):
            await watched(api)


async def test_a_line_without_an_end_is_not_collected_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubeapi, "WATCH_LINE_BYTES_MAX", 100_000)
    async with answering(*([b"x" * 50_000] * 4)) as api:
        with pytest.raises(ReplyLost, match="100000"):
            await watched(api)


async def test_a_watch_that_tells_nothing_just_ends() -> None:
    async with answering() as api:
        assert await watched(api) == []


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (
            b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n',
            410,
        ),
        (b'{"type":"ERROR","object":{}}\n', 500),
    ],
)
async def test_an_error_event_is_an_error(line: bytes, status: int) -> None:
    async with answering(EVENT + b"\n" + line) as api:
        with pytest.raises(ApiError) as told:
            await watched(api)
    assert told.value.status == status


@pytest.mark.parametrize(
    ("chunks", "kind", "shown"), [([], JSON, "200"), ([b"<html>Sign in"], "text/html", "200.*<html>Sign")]
)
async def test_a_success_without_an_object_is_a_lost_reply(
    chunks: list[bytes], kind: str, shown: str
) -> None:
    """After a write nobody knows what the proxy has done with it."""
    async with answering(*chunks, kind=kind) as api:
        with pytest.raises(ReplyLost, match=shown):
            await api.request("PATCH", "/x", body={})


async def test_an_error_page_is_told_with_its_beginning_and_its_wait() -> None:
    async with answering(
        b"<html>back soon" + b"!" * 900, status=503, kind="text/html", retry_after="7"
    ) as api:
        with pytest.raises(ApiError) as told:
            await api.request("GET", "/x")
    assert (told.value.status, told.value.retry_after_s) == (503, 7.0)
    assert told.value.message.startswith("<html>back soon")
    assert len(told.value.message) == 200


@pytest.mark.parametrize("wait", ["²", "-5", "soon", "Fri, 20 Nov 2026 12:00:00 GMT"])
async def test_a_wait_that_is_no_number_is_none(wait: str) -> None:
    async with answering(b"{}", status=429, retry_after=wait) as api:
        with pytest.raises(ApiError) as told:
            await api.request("GET", "/x")
    assert told.value.retry_after_s is None


async def test_what_is_nested_deeper_than_a_stack_is_as_good_as_no_answer() -> None:
    deep = b'{"x":' + b"[" * 1_000_000
    async with answering(b'{"type":"ADDED","object":' + deep) as api:
        with pytest.raises(ReplyLost):
            await watched(api)
    async with answering(deep, status=500) as api:
        with pytest.raises(ApiError, match="500"):
            await api.request("GET", "/x")


async def test_an_answer_that_is_too_large_is_not_read_to_its_end() -> None:
    async with answering(b'{"a":"', b"x" * 1000, b'"}') as api:
        assert len(await api.request("GET", "/o", bytes_max=1008)) == 1008
        with pytest.raises(AnswerTooLarge):
            await api.request("GET", "/o", bytes_max=1007)


@pytest.mark.parametrize("error", [aiohttp.ClientError(), ConnectionResetError()])
def test_an_error_without_words_is_told_by_its_name(error: Exception) -> None:
    assert why_no_answer(error, 10.0) == f"the connection failed: {type(error).__name__}"


async def test_a_watch_that_gets_no_connection_names_the_time_that_it_waited_for_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it never answers the TLS handshake
        host, port = silent.getsockname()
        async with KubeApi(Credentials(f"https://{host}:{port}"), timeout_s=0.05) as api:
            with pytest.raises(ReplyLost, match=r"within 0\.05 s$"):
                await watched(api)
