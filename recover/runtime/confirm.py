"""Live reads before something is done because an object is absent. I/O only, for execute.py.

Watches of different kinds arrive in any order, and each may lag or be silent for a while. So the absence of
an object from a cache proves nothing, and the API server is asked.
"""

from __future__ import annotations

import msgspec

from detectors.client.kubeapi import ApiError
from detectors.wire.contract import ObjectMeta
from recover.kube.cluster import Cluster
from recover.kube.errors import Transient
from recover.model.actions import ConfirmGone, ConfirmListed
from recover.runtime.observe import Observer

__all__ = ["confirm_gone", "confirm_listed"]

NEWS_S = 0.02
"""The cache has been brought up to date, so the next decision can be made at once."""

NO_NEWS_S = 10.0
"""The object exists, and no view of it is kept: only a change of it helps."""


class _Object(msgspec.Struct):
    metadata: ObjectMeta


async def confirm_gone(cluster: Cluster, observer: Observer, asked: ConfirmGone) -> None:
    """Raises Transient if the object exists, after putting it into the cache; ApiError if the API server does
    not answer."""
    observer.asks_for(asked)
    try:
        raw = await cluster.get(asked.resource, asked.name, asked.namespace)
    except ApiError as error:
        if not error.not_found:
            raise
        if not observer.confirmed(asked):
            raise Transient(f"{asked.name} came while it was looked for", retry_in_s=NEWS_S) from error
        return
    is_news = observer.learned(asked.resource, raw)
    if asked.uid and msgspec.json.decode(raw, type=_Object).metadata.uid != asked.uid:
        return
    words = f"{asked.resource.kind} {asked.name} exists, though it was not in the cache"
    raise Transient(words, retry_in_s=NEWS_S if is_news else NO_NEWS_S)


async def confirm_listed(cluster: Cluster, observer: Observer, asked: ConfirmListed) -> None:
    """Raises Transient if the list shows what the cache did not show, after putting that into the cache."""
    page, news = "", 0
    while True:
        answer = await cluster.list(asked.resource, namespace=asked.namespace, labels=asked.labels, page=page)
        news += sum(observer.learned(asked.resource, bytes(item)) for item in answer.items)
        page = answer.next_page
        if not page:
            break
    if news:
        words = f"{news} {asked.resource.plural} ({asked.labels}) were not in the cache as they are"
        raise Transient(words, retry_in_s=NEWS_S)
