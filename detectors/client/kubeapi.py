"""A small Kubernetes REST and watch client: all that the agent uses, and the base of recover/kube.

The client returns bytes: callers decode them with narrow msgspec structs. Every request has a timeout, and
every non-2xx answer raises `ApiError`. If no reply came, the client raises `ReplyLost`: it is then unknown
whether the write happened, and the caller must re-read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import msgspec
from aiohttp.abc import AbstractStreamWriter

from detectors.client.credentials import Credentials, TokenSource
from detectors.client.failures import why_no_answer
from detectors.wire.resource import JsonPatch, MergePatch, PatchType, Resource

__all__ = [
    "CONNECTIONS_MAX",
    "AnswerTooLarge",
    "ApiError",
    "Credentials",
    "JsonPatch",
    "KubeApi",
    "MergePatch",
    "PatchType",
    "ReplyLost",
    "Resource",
    "TokenSource",
    "WatchEvent",
]

CONNECTIONS_MAX = 128
"""Number of connections: more than the controller's watches, writes and reads need together, including slow
writes. Requests that wait for a connection are not ordered by urgency."""
WATCH_LINE_BYTES_MAX = 8 * 1024 * 1024
SHOWN_BYTES_MAX = 200
"""Number of bytes that an error shows of an answer that is not the API server's."""


class ApiError(Exception):
    """The API server answered with an error status.

    `status` is the HTTP status, `reason` the machine-readable one (Conflict, NotFound, Expired, ...).
    """

    def __init__(self, status: int, reason: str, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_s = retry_after_s

    @property
    def not_found(self) -> bool:
        return self.status == 404

    @property
    def exists(self) -> bool:
        return self.status == 409 and self.reason == "AlreadyExists"

    @property
    def stale(self) -> bool:
        """Whether a precondition failed: a stale resourceVersion is 409, a wrong uid in a patch body 422."""
        return (self.status == 409 and self.reason != "AlreadyExists") or self.status == 422

    @property
    def of_permissions(self) -> bool:
        """Whether the API server does not know us, or does not permit the request. An API server that has
        just started answers this way, too. A refusal by admission is another kind of 403."""
        return self.status == 401 or (self.status == 403 and 'is forbidden: User "' in self.message)

    @property
    def expired(self) -> bool:
        """Whether the watch history no longer reaches back to that version: list again."""
        return self.status == 410


class ReplyLost(Exception):
    """No answer of the API server came; at most something between us and the API server has answered. For a
    write this means that the result is unknown, not that the write failed: re-read before deciding
    anything."""


class AnswerTooLarge(Exception):
    """The answer has more bytes than the caller accepts. Only reads have such a limit."""


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch. `object` stays undecoded until its reader knows the type."""

    type: str
    object: msgspec.Raw


class _Status(msgspec.Struct):
    reason: str = ""
    message: str = ""


class KubeApi:
    """One HTTP session to one API server.

    Raises `ApiError` for an error answer, and `ReplyLost` if no answer came within `timeout_s`, or if a
    successful answer is not JSON.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        timeout_s: float = 10.0,
        user_agent: str = "rekindle",
        may_send: Callable[[], None] | None = None,
    ) -> None:
        """Takes the credentials. `user_agent` is our name in the API server's audit log and in an object's
        managedFields.

        `may_send` is called when a body is sent, after all waiting for a connection. If it raises, nothing is
        sent, and the request ends as ReplyLost.
        """
        self._credentials = credentials
        self._may_send = may_send
        self._user_agent = user_agent
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None
        self.date = ""
        """The server's clock at its last answer, from the header `Date`, in whole seconds."""
        self.asked_s = self.answered_s = self.took_s = 0.0
        """Times of the request and of that answer, in seconds since 1970, and the time between them by a
        clock that is never set."""

    async def __aenter__(self) -> KubeApi:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._credentials.ssl_context(), limit=CONNECTIONS_MAX),
            proxy=self._credentials.proxy or None,
            read_bufsize=1024 * 1024,
            headers={"User-Agent": self._user_agent},
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: dict[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        bytes_max: int | None = None,
    ) -> bytes:
        """Makes one call; the body is encoded with msgspec. Returns the answer's bytes. Raises
        `AnswerTooLarge` if there are more than `bytes_max`, without reading the rest."""
        assert self._session is not None, "use `async with KubeApi(...)`"
        data = None
        asked_s, began_s = time.time(), time.monotonic()
        try:
            headers = await self._headers()
            if body is not None:
                data = _Body(msgspec.json.encode(body), self._may_send)
                headers["Content-Type"] = content_type
            async with self._session.request(
                method,
                self._credentials.server + path,
                params=params,
                data=data,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=self._timeout_s),
                server_hostname=self._credentials.server_name or None,
            ) as response:
                payload = await _read(response, bytes_max)
                self.date = response.headers.get("Date", "")
                self.asked_s, self.answered_s = asked_s, time.time()
                self.took_s = time.monotonic() - began_s
                if response.status >= 300:
                    raise self._refusal(response, payload)
                if not payload or not _is_json(response):
                    raise ReplyLost(f"{method} {path}: {_what_came(response, payload)}")
                return payload
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ReplyLost(f"{method} {path}: {why_no_answer(error, self._timeout_s)}") from error

    async def watch(
        self, path: str, *, params: dict[str, str], timeout_s: float, silence_s: float
    ) -> AsyncIterator[WatchEvent]:
        """Yields events until the server ends the stream.

        The server is asked to end the stream after `timeout_s`. More than `silence_s` without a byte
        (bookmarks come each minute where etcd reports progress) raises `ReplyLost`. ERROR events raise
        `ApiError`: 410 means list again.
        """
        assert self._session is not None, "use `async with KubeApi(...)`"
        params = {**params, "watch": "true", "timeoutSeconds": str(max(1, int(timeout_s)))}
        decoder = msgspec.json.Decoder(WatchEvent)
        try:
            async with self._session.get(
                self._credentials.server + path,
                params=params,
                headers=await self._headers(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._timeout_s, sock_read=silence_s),
                server_hostname=self._credentials.server_name or None,
            ) as response:
                if response.status >= 300:
                    raise self._refusal(response, await response.read())
                if not _is_json(response):
                    payload = await response.content.read(SHOWN_BYTES_MAX)
                    raise ReplyLost(f"WATCH {path}: {_what_came(response, payload)}")
                async for line in _lines(response.content):
                    event = decoder.decode(line)
                    if event.type == "ERROR":
                        raise _watch_error(event)
                    yield event
        except (msgspec.DecodeError, RecursionError) as error:
            raise ReplyLost(f"WATCH {path}: a line cannot be read: {error}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            is_connected = not isinstance(error, aiohttp.ConnectionTimeoutError)
            limit_s = silence_s if is_connected else self._timeout_s
            raise ReplyLost(f"WATCH {path}: {why_no_answer(error, limit_s)}") from error

    async def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", **self._credentials.headers()}
        if self._credentials.tokens is not None:
            headers["Authorization"] = f"Bearer {await self._credentials.tokens.token()}"
        return headers

    def _refusal(self, response: aiohttp.ClientResponse, payload: bytes) -> ApiError:
        if response.status == 401 and self._credentials.tokens is not None:
            self._credentials.tokens.refused()
        return _api_error(response, payload)


class _Body(aiohttp.BytesPayload):
    def __init__(self, body: bytes, may_send: Callable[[], None] | None) -> None:
        super().__init__(body, content_type="application/json")
        self._may_send = may_send

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        if self._may_send is not None:
            self._may_send()
        await super().write_with_length(writer, content_length)


async def _read(response: aiohttp.ClientResponse, bytes_max: int | None) -> bytes:
    if bytes_max is None:
        return await response.read()
    found = bytearray()
    async for chunk in response.content.iter_any():
        found += chunk
        if len(found) > bytes_max:
            raise AnswerTooLarge(f"{response.url.path}: more than {bytes_max} bytes")
    return bytes(found)


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yields lines without aiohttp's limit on the length of a line. A half line at the end is yielded too,
    and then cannot be decoded."""
    rest = bytearray()
    async for chunk in stream.iter_any():
        whole, newline, tail = chunk.rpartition(b"\n")
        if newline:
            for line in (bytes(rest) + whole).split(b"\n"):
                if line.strip():
                    yield line
            rest = bytearray(tail)
        else:
            rest += tail
        if len(rest) > WATCH_LINE_BYTES_MAX:
            raise aiohttp.ClientPayloadError(f"a watch line is longer than {WATCH_LINE_BYTES_MAX} bytes")
        await asyncio.sleep(0)
    if rest.strip():
        yield bytes(rest)


def _is_json(response: aiohttp.ClientResponse) -> bool:
    return response.content_type == "application/json"


def _what_came(response: aiohttp.ClientResponse, payload: bytes) -> str:
    """Describes an answer that no API server gives, but something between us and it."""
    if not payload:
        return f"{response.status} with an empty body"
    shown = payload[:SHOWN_BYTES_MAX].decode("utf-8", "replace")
    return f"the answer {response.status} has the type {response.content_type}, and is not JSON: {shown}"


def _api_error(response: aiohttp.ClientResponse, payload: bytes) -> ApiError:
    try:
        status = msgspec.json.decode(payload, type=_Status)
    except (msgspec.MsgspecError, RecursionError):  # for example a proxy's HTML page
        shown = payload[:SHOWN_BYTES_MAX].decode("utf-8", "replace")
        status = _Status(reason=response.reason or "", message=shown)
    retry_after = response.headers.get("Retry-After", "")
    retry_after_s = float(retry_after) if retry_after.isdecimal() else None
    return ApiError(response.status, status.reason, status.message, retry_after_s)


class _WatchStatus(msgspec.Struct):
    code: int = 500
    reason: str = ""
    message: str = ""


def _watch_error(event: WatchEvent) -> ApiError:
    status = msgspec.json.decode(event.object, type=_WatchStatus)
    return ApiError(status.code, status.reason, status.message)
