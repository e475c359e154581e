"""Reads from the API server, and remembers what could not be read. I/O only; inspect.py uses it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import msgspec

from detectors.client.kubeapi import ApiError, KubeApi, ReplyLost
from detectors.wire.resource import Resource
from recover.doctor.case import NOT_ALLOWED, NOT_ANSWERED
from recover.doctor.installation.installed import Part
from recover.kube.rest import RestCluster
from recover.snapshot.read import CannotTell, unanswered

__all__ = ["Reader"]

T = TypeVar("T")


class Reader:
    """Reads parts of an installation. `unread` has the reason for each part that could not be read. Raises
    CannotTell if the API server does not answer, or does not accept the credentials."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._cluster = RestCluster(api)
        self.unread: dict[Part, str] = {}

    def now(self) -> datetime:
        """Returns the time by the API server's clock, from its last answer."""
        with suppress(ValueError, TypeError):
            return parsedate_to_datetime(self._api.date).astimezone(UTC)
        return datetime.now(UTC)

    async def answer(self, path: str, type_: type[T], *, params: dict[str, str] | None = None) -> T | None:
        """Returns the decoded answer; None if the API server has nothing at this path, refuses the read, or
        answers in another form."""
        return await self._asked(None, path, lambda: self._fetched(path, type_, params))

    async def one(
        self, part: Part, resource: Resource, name: str, type_: type[T], namespace: str = ""
    ) -> T | None:
        """Returns the object; None if it does not exist or cannot be read. In the second case `unread` has
        the reason."""
        path = resource.path(name, namespace)
        return await self._asked(part, f"{resource.kind} {name}", lambda: self._fetched(path, type_, None))

    async def every(
        self,
        part: Part | None,
        resource: Resource,
        parse: Callable[[bytes], T],
        *,
        namespace: str = "",
        labels: str = "",
    ) -> list[T] | None:
        """Returns all objects that can be decoded; empty if the API server does not know the kind, None if
        the kind cannot be listed."""

        async def pages() -> list[T]:
            found: list[T] = []
            page = ""
            while True:
                try:
                    answer = await self._cluster.list(resource, namespace=namespace, labels=labels, page=page)
                except ApiError as error:
                    if error.not_found:
                        return []
                    if not (error.expired and page):
                        raise
                    found, page = [], ""  # the list took longer than the API server keeps its snapshot
                    continue
                for raw in answer.items:
                    with suppress(msgspec.MsgspecError):
                        found.append(parse(bytes(raw)))
                page = answer.next_page
                if not page:
                    return found

        return await self._asked(part, resource.plural, pages)

    async def ask(self, part: Part, what: str, path: str, body: Any, type_: type[T]) -> T | None:
        """Sends a question by POST; the API server stores nothing. Returns None if there is no answer."""

        async def posted() -> T:
            return msgspec.json.decode(await self._api.request("POST", path, body=body), type=type_)

        return await self._asked(part, what, posted)

    async def _fetched(self, path: str, type_: type[T], params: dict[str, str] | None) -> T:
        return msgspec.json.decode(await self._api.request("GET", path, params=params), type=type_)

    async def _asked(self, part: Part | None, what: str, request: Callable[[], Awaitable[T]]) -> T | None:
        try:
            return await request()
        except ApiError as error:
            if error.status == 401:
                why = f"the API server does not accept these credentials: {error.message}"
                raise CannotTell(why) from error
            if part is None and (error.status == 429 or error.status >= 500):
                raise CannotTell(f"the API server cannot answer {what}: {error}") from error
            if part is not None and not error.not_found:
                failed = f"{NOT_ALLOWED} read" if error.status == 403 else NOT_ANSWERED
                self.unread.setdefault(part, f"{failed} {what} ({error.message or error.reason})")
        except ReplyLost as error:
            raise unanswered(error) from error
        except msgspec.MsgspecError as error:
            if part is not None:
                self.unread.setdefault(part, f"{what} cannot be read: {error}")
        return None
