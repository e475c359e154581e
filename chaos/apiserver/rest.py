"""The simulated API server over HTTP, on loopback: the subset of the Kubernetes REST API that agents, the
controller, kubectl and the `kubernetes` client use. There is no authorization: every user may do anything,
even without a token.

Each request becomes one call of client.py in the name of the token's user.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml
from aiohttp import web

from chaos.apiserver.client import Client
from chaos.apiserver.discovery import DOCUMENTS
from chaos.apiserver.kinds import KINDS
from chaos.apiserver.requests import DRY_RUN, decoded, deletion, flag, number, patch_type
from chaos.apiserver.store import MemoryCluster
from detectors.client.kubeapi import ApiError, ReplyLost
from detectors.wire.resource import Resource
from recover.kube.cluster import ListPage

__all__ = ["Server", "serve", "write_kubeconfig"]

ANONYMOUS = "system:anonymous"
WATCH_S = 300
BODY_BYTES_MAX = 3 * 1024 * 1024


class Server:
    """The handlers. `users` maps bearer tokens to user names; an unknown token's user is the token itself."""

    def __init__(self, store: MemoryCluster, users: Mapping[str, str]) -> None:
        self.url = ""
        self._store = store
        self._users = users
        self._clients: dict[str, Client] = {}

    def client(self, user: str) -> Client:
        """Returns the client that makes the requests of that user, except dry runs; tests disturb it."""
        return self._clients.setdefault(user, Client(self._store, user))

    def application(self) -> web.Application:
        app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[_answer_errors])
        app.router.add_get("/readyz", _ready)
        for path, document in DOCUMENTS.items():
            for asked in (path, path + "/"):
                app.router.add_get(asked, _constant(document))
        for resource in KINDS:
            self._route(app, resource)
        return app

    def _route(self, app: web.Application, resource: Resource) -> None:
        async def collection(request: web.Request) -> web.StreamResponse:
            return await self._collection(request, resource)

        async def single(request: web.Request) -> web.StreamResponse:
            return await self._single(request, resource)

        plain, spaced = resource.path(), resource.path(namespace="{namespace}")
        for path in dict.fromkeys((plain, spaced)):
            app.router.add_route("*", path, collection)
        app.router.add_route("*", spaced + "/{name}", single)
        app.router.add_route("*", spaced + "/{name}/{subresource:status}", single)

    async def _collection(self, request: web.Request, resource: Resource) -> web.StreamResponse:
        namespace, client = request.match_info.get("namespace", ""), self._client_of(request)
        if request.method == "POST":
            body = decoded(await request.read())
            return _json(await client.create(resource, body, namespace), status=201)
        if request.method != "GET":
            raise ApiError(405, "MethodNotAllowed", f"{request.method} is not modelled for {request.path}")
        if flag(request.query, "watch"):
            return await _stream_watch(request, client, resource, namespace)
        page = await client.list(
            resource,
            namespace=namespace,
            labels=request.query.get("labelSelector", ""),
            fields=request.query.get("fieldSelector", ""),
            limit=number(request.query, "limit", 0),
            page=request.query.get("continue", ""),
        )
        return _json(_list_document(resource, page))

    async def _single(self, request: web.Request, resource: Resource) -> web.StreamResponse:
        where, client = request.match_info, self._client_of(request)
        namespace, name, sub = where.get("namespace", ""), where["name"], where.get("subresource", "")
        if request.method == "GET" and sub in ("", "status"):
            return _json(await client.get(resource, name, namespace))
        if request.method == "PATCH":
            body = decoded(await request.read())
            kind = patch_type(request.content_type, body)
            return _json(
                await client.patch(
                    resource, name, body, namespace=namespace, subresource=sub, patch_type=kind
                )
            )
        if request.method == "DELETE" and not sub:
            options, is_dry = deletion(resource, await request.read(), request.query)
            client = self._client_of(request, is_dry=is_dry)
            return _json(await client.remove(resource, name, options, namespace))
        raise ApiError(405, "MethodNotAllowed", f"{request.method} is not modelled for {request.path}")

    def _client_of(self, request: web.Request, *, is_dry: bool = False) -> Client:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        user = self._users.get(token, token) or ANONYMOUS
        if is_dry or request.query.get("dryRun") == DRY_RUN:
            return Client(self._store, user, dry_run=True)
        return self.client(user)


@asynccontextmanager
async def serve(
    store: MemoryCluster, *, users: Mapping[str, str] | None = None, port: int = 0
) -> AsyncIterator[Server]:
    """Serves on 127.0.0.1 until the block ends. With port 0 the server takes a free port."""
    server = Server(store, users or {})
    runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        host, bound = runner.addresses[0][:2]
        server.url = f"http://{host}:{bound}"
        yield server
    finally:
        await runner.cleanup()


def write_kubeconfig(path: Path, url: str, token: str) -> None:
    """Writes a kubeconfig for one user of the server, which kubectl and all clients can read."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "local", "cluster": {"server": url}}],
        "users": [{"name": "local", "user": {"token": token}}],
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": "local"}}],
        "current-context": "local",
    }
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    path.chmod(0o600)


async def _stream_watch(
    request: web.Request, client: Client, resource: Resource, namespace: str
) -> web.StreamResponse:
    """Sends one JSON line for each event. An error after the first byte is sent as an ERROR event."""
    bookmarks = flag(request.query, "allowWatchBookmarks")
    events = client.watch(
        resource,
        namespace=namespace,
        labels=request.query.get("labelSelector", ""),
        fields=request.query.get("fieldSelector", ""),
        resource_version=str(number(request.query, "resourceVersion", 0)),
        timeout_s=number(request.query, "timeoutSeconds", WATCH_S),
    )
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    try:
        async for event in events:
            if event.type != "BOOKMARK" or bookmarks:
                await response.write(msgspec.json.encode(event) + b"\n")
    except ApiError as error:
        line = {"type": "ERROR", "object": _status_document(error)}
        await response.write(msgspec.json.encode(line) + b"\n")
    except ReplyLost:
        _cut(request)
    except ConnectionResetError:  # the reader has closed the connection, as readers do
        return response
    await response.write_eof()
    return response


@web.middleware
async def _answer_errors(request: web.Request, handler: Any) -> web.StreamResponse:
    try:
        answer: web.StreamResponse = await handler(request)
    except ApiError as error:
        headers = {} if error.retry_after_s is None else {"Retry-After": str(int(error.retry_after_s))}
        return _json(msgspec.json.encode(_status_document(error)), status=error.status, headers=headers)
    except web.HTTPNotFound:
        unknown = ApiError(404, "NotFound", "the server could not find the requested resource")
        return _json(msgspec.json.encode(_status_document(unknown)), status=404)
    except ReplyLost:
        _cut(request)
        return web.Response(status=500)
    return answer


def _cut(request: web.Request) -> None:
    """Ends the connection without an answer, as a crash or a broken network does."""
    if request.transport is not None:
        request.transport.abort()


def _status_document(error: ApiError) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": error.message,
        "reason": error.reason,
        "code": error.status,
    }


def _list_document(resource: Resource, page: ListPage) -> bytes:
    meta = {"resourceVersion": page.resource_version}
    if page.next_page:
        meta["continue"] = page.next_page
    return msgspec.json.encode(
        {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.api_version,
            "metadata": meta,
            "items": page.items,
        }
    )


def _json(body: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")


async def _ready(_: web.Request) -> web.Response:
    await asyncio.sleep(0)
    return web.Response(text="ok")


def _constant(document: dict[str, Any]) -> Any:
    body = msgspec.json.encode(document)

    async def answer(_: web.Request) -> web.Response:
        return _json(body)

    return answer
