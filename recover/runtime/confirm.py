"""Reads live from the API server before an action that relies on the absence of an object. I/O only, for
execute.py.

Watches of different kinds arrive in any order, and each may lag or be silent for a while. The absence of an
object from a cache therefore proves nothing, and the controller reads from the API server. People choose some
of the names, and a crafted name could make the request address another object. `Resource.path` refuses such
a name. Besides, the controller takes from the answer only the objects that it requested.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec

from detectors.client.kubeapi import ApiError
from recover.kube.cluster import Cluster
from recover.kube.errors import Transient
from recover.model.actions import ConfirmGone, ConfirmListed
from recover.runtime.observe import Observer

__all__ = ["READ_S", "confirm_gone", "confirm_listed"]

NEWS_S = 0.02
"""Pause until the next reconcile after the cache has been brought up to date: the next decision can be made
at once."""

NO_NEWS_S = 10.0
"""Pause until the next reconcile if the object exists and the caches keep no view of it: only a change of the
object helps."""

READ_S = 5.0
"""Time limit of one request. A read that hangs keeps a place that other reads need."""

UNANSWERED_AGAIN_S = 2.0

T = TypeVar("T")


class _Meta(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _Object(msgspec.Struct, rename="camel"):
    metadata: _Meta
    api_version: str = ""
    kind: str = ""


async def confirm_gone(cluster: Cluster, observer: Observer, asked: ConfirmGone) -> None:
    """Puts the object into the cache and raises Transient if the object exists. An object of the same name
    with another uid than the requested one counts as gone. Also raises Transient if the answer has another
    kind or name, if there is no answer in time, or if the object has come into the cache meanwhile. Raises
    ApiError if the API server answers with another error than "not found"."""
    observer.asks_for(asked)
    try:
        raw = await _in_time(cluster.get(asked.resource, asked.name, asked.namespace))
    except ApiError as error:
        if not error.not_found:
            raise
        if not observer.confirmed(asked):
            raise Transient(
                f"{asked.name} arrived while the controller searched for the object", retry_in_s=NEWS_S
            ) from error
        return
    found = _read(raw)
    if not _is_asked_for(found, asked):
        words = f"the answer is not {asked.resource.kind} {asked.name}, and proves nothing"
        raise Transient(words, retry_in_s=NO_NEWS_S)
    is_news = observer.learned(asked.resource, raw)
    if asked.uid and found.metadata.uid != asked.uid:
        return
    words = f"{asked.resource.kind} {asked.name} exists, though it was not in the cache"
    raise Transient(words, retry_in_s=NEWS_S if is_news else NO_NEWS_S)


async def confirm_listed(cluster: Cluster, observer: Observer, asked: ConfirmListed) -> None:
    """Puts the listed objects into the cache, and raises Transient if the cache did not show them as they
    are. Also raises Transient if the list contains an object that was not requested, or if there is no answer
    in time."""
    page, news = "", 0
    while True:
        listing = cluster.list(asked.resource, namespace=asked.namespace, labels=asked.labels, page=page)
        answer = await _in_time(listing)
        for item in answer.items:
            raw = bytes(item)
            if not _is_listed_for(_read(raw), asked):
                words = f"the answer lists more than {asked.resource.plural} of {asked.namespace}"
                raise Transient(f"{words}, and proves nothing", retry_in_s=NO_NEWS_S)
            news += observer.learned(asked.resource, raw)
        page = answer.next_page
        if not page:
            break
    if news:
        words = f"{news} {asked.resource.plural} ({asked.labels}) were not in the cache as they are"
        raise Transient(words, retry_in_s=NEWS_S)


async def _in_time(read: Coroutine[Any, Any, T]) -> T:
    try:
        async with asyncio.timeout(READ_S):
            return await read
    except TimeoutError as error:
        raise Transient(f"no answer within {READ_S:g} s", retry_in_s=UNANSWERED_AGAIN_S) from error


def _read(raw: bytes) -> _Object:
    """Returns an object without a name if the answer cannot be decoded."""
    try:
        return msgspec.json.decode(raw, type=_Object)
    except (msgspec.MsgspecError, RecursionError):
        return _Object(_Meta())


def _is_asked_for(found: _Object, asked: ConfirmGone) -> bool:
    resource, meta = asked.resource, found.metadata
    is_of_kind = (found.api_version, found.kind) == (resource.api_version, resource.kind)
    return is_of_kind and (meta.namespace, meta.name) == (asked.namespace, asked.name)


def _is_listed_for(found: _Object, asked: ConfirmListed) -> bool:
    """Whether the item belongs to the requested list. The API server leaves out the kind of the items in a
    list of its built-in kinds."""
    return found.kind in ("", asked.resource.kind) and found.metadata.namespace == asked.namespace
