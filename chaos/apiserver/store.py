"""The simulated API server's store: objects, versions, preconditions, deletion. It simulates Kubernetes in
memory; client.py adds the `Cluster` protocol, rest.py serves it over HTTP.

The store is faithful in the points that can harm a controller: versions grow, stale writes are refused,
history ends. It has no threads, reads no clock of its own and draws from one seeded source, so the same calls
give the same bytes.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import msgspec

from chaos.apiserver import metadata, refusals
from chaos.apiserver.deletion import Deletion, check_preconditions, finalizers_of, grace_s_of, may_go
from chaos.apiserver.history import Change, History, Stored
from chaos.apiserver.kinds import KINDS, Kind, Object
from chaos.apiserver.patching import PatchError, json_patch, merge_patch, strategic_patch
from chaos.apiserver.schema import prune_and_default, violations
from chaos.apiserver.selectors import Matcher
from detectors.client.kubeapi import ApiError
from detectors.wire.resource import JsonPatch, MergePatch, Resource, StrategicPatch
from recover.k8s.kinds import NAMESPACES
from recover.kube.cluster import ListPage

__all__ = ["Audit", "MemoryCluster", "stamp"]

OBJECT_BYTES_MAX = 1_500_000
HISTORY_CHANGES_MAX = 10_000
_INITIAL_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


class Audit(msgspec.Struct, frozen=True):
    """One mutating request and its answer. `changed` is False for a write that changed nothing. `versioned`
    is True if the request named the resourceVersion for which it was made. `tested` has the fields that it
    tested as a JSON patch."""

    at: datetime
    user: str
    verb: str
    resource: Resource
    namespace: str
    name: str
    subresource: str
    status: int
    changed: bool
    versioned: bool = False
    tested: tuple[str, ...] = ()


def stamp(at: datetime) -> str:
    """Returns the time as Kubernetes writes it, in whole seconds."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


class MemoryCluster:
    """All objects of one simulated cluster. Every method is synchronous and atomic.

    `before_reply` is the hook of kill tests: it is awaited after a write was applied, before it is answered.
    """

    def __init__(
        self,
        now: Callable[[], datetime],
        *,
        seed: int = 0,
        schemas: Mapping[Resource, Object] | None = None,
        history_changes_max: int = HISTORY_CHANGES_MAX,
    ) -> None:
        self.now = now
        self.audit: list[Audit] = []
        self.before_reply: Callable[[Audit], Awaitable[None]] | None = None
        self.version = 0
        self._keeps = True
        self._random = random.Random(seed)
        self._schemas = dict(schemas or {})
        self._objects: dict[Resource, dict[tuple[str, str], Stored]] = {r: {} for r in KINDS}
        self._history = {resource: History(history_changes_max) for resource in KINDS}
        for name in _INITIAL_NAMESPACES:
            self.create(NAMESPACES, {"metadata": {"name": name}})

    def add_crd(self, crd: Object) -> None:
        """Validates objects of that kind from now on. The kind's watch history begins now, too: a reader with
        an older version gets 410 Expired."""
        spec = crd["spec"]
        for resource in KINDS:
            if (resource.group, resource.plural) == (spec["group"], spec["names"]["plural"]):
                served = next(v for v in spec["versions"] if v["name"] == resource.version)
                self._schemas[resource] = served["schema"]["openAPIV3Schema"]
                self._history[resource].dropped_until = self.version

    # --- reading ------------------------------------------------------------------------------------------

    def kind(self, resource: Resource) -> Kind:
        try:
            return KINDS[resource]
        except KeyError:
            raise ApiError(404, "NotFound", "the server could not find the requested resource") from None

    def history(self, resource: Resource) -> History:
        self.kind(resource)
        return self._history[resource]

    def read(self, resource: Resource, name: str, namespace: str = "") -> Stored:
        """Returns the object. Raises ApiError 404 if it does not exist."""
        self.kind(resource)
        found = self._objects[resource].get((namespace if resource.namespaced else "", name))
        if found is None:
            raise refusals.not_found(resource, name)
        return found

    def objects(self, resource: Resource, namespace: str = "") -> list[Object]:
        """Returns all objects, by namespace and name, as documents. Callers must not change them."""
        return [
            stored.body
            for key, stored in sorted(self._objects[resource].items(), key=lambda item: item[0])
            if not namespace or key[0] == namespace
        ]

    def page(
        self, resource: Resource, *, namespace: str, matches: Matcher, limit: int, page: str
    ) -> ListPage:
        """Returns one page of the list as it was when the first page was read. Raises ApiError 410 if the
        history no longer goes back to that moment."""
        self.kind(resource)
        version, after = _unpack_page(page) if page else (self.version, ("", ""))
        objects = self._as_of(resource, version)
        found = [
            (key, stored)
            for key, stored in sorted(objects.items(), key=lambda item: item[0])
            if key > after and (not namespace or key[0] == namespace) and matches(stored.body)
        ]
        shown = found[:limit] if limit else found
        more = "" if len(shown) == len(found) else _pack_page(version, shown[-1][0])
        return ListPage([msgspec.Raw(stored.raw) for _, stored in shown], str(version), more)

    def _as_of(self, resource: Resource, version: int) -> dict[tuple[str, str], Stored]:
        if version == self.version:
            return self._objects[resource]
        objects = dict(self._objects[resource])
        for change in reversed(self._history[resource].since(version)):
            if change.old is None:
                objects.pop(change.key, None)
            else:
                objects[change.key] = change.old
        return objects

    # --- writing ------------------------------------------------------------------------------------------

    def create(self, resource: Resource, body: Object, namespace: str = "") -> Stored:
        kind = self.kind(resource)
        new: Object = msgspec.json.decode(msgspec.json.encode(body))
        meta = new.setdefault("metadata", {})
        if kind.custom:
            metadata.check_kind(resource, new)
        new["apiVersion"], new["kind"] = resource.api_version, resource.kind
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"] + self._suffix()
        namespace = namespace or meta.get("namespace", "")
        if resource.namespaced:
            if not namespace:
                raise refusals.bad_request("an empty namespace may not be set during creation")
            self.read(NAMESPACES, namespace)
            meta["namespace"] = namespace
        else:
            namespace = ""
            meta.pop("namespace", None)
        if (namespace, meta.get("name", "")) in self._objects[resource]:
            raise refusals.already_exists(resource, meta["name"])
        for field in (*metadata.SERVER_OWNED, "managedFields"):
            meta.pop(field, None)
        meta["uid"] = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        meta["creationTimestamp"] = stamp(self.now())
        if kind.has_status:
            meta["generation"] = 1
            if not kind.keeps_status:
                new.pop("status", None)
        metadata.validate(resource, meta)
        kind.fill_in(new)
        new["metadata"] = metadata.without_empty(meta)
        new = self._pruned(resource, new)
        self._validate(resource, None, new)
        return self._put(resource, None, new)

    def patch(
        self,
        resource: Resource,
        name: str,
        body: Any,
        *,
        namespace: str = "",
        subresource: str = "",
        patch_type: str = MergePatch,
    ) -> Stored:
        kind, old = self.kind(resource), self.read(resource, name, namespace)
        if patch_type == MergePatch and body == {}:  # an agent reads its spec by an empty patch
            return old
        if subresource not in ("", "status") or (subresource == "status" and not kind.has_status):
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        new = self._patched(resource, old.body, body, patch_type)
        if kind.custom and subresource == "status":
            # For a custom resource, an API server restores the metadata in a write to the status before any
            # check reads the uid, so a uid in such a patch is no precondition.
            new["metadata"].pop("uid", None)
        metadata.check_identity(resource, old.body, new)
        new = self._pruned(resource, _isolated(kind, old.body, new, subresource))
        if kind.has_status and _spec_of(new) != _spec_of(old.body):
            new["metadata"]["generation"] = old.body["metadata"].get("generation", 1) + 1
        new["metadata"] = metadata.without_empty(new["metadata"])
        if new == old.body:
            return old
        metadata.validate(resource, new["metadata"])
        self._validate(resource, old.body, new)
        return self._remove(resource, old, new) if may_go(kind, new) else self._put(resource, old, new)

    def _patched(self, resource: Resource, old: Object, body: Any, patch_type: str) -> Object:
        name = old["metadata"]["name"]
        try:
            body = msgspec.json.decode(msgspec.json.encode(body))
            if patch_type == MergePatch:
                new = merge_patch(old, body)
            elif patch_type == JsonPatch:
                new = json_patch(old, body)
            elif patch_type == StrategicPatch:
                new = strategic_patch(old, body)
            else:
                raise ApiError(415, "UnsupportedMediaType", f"patch type {patch_type} is not modelled")
        except PatchError as error:
            raise refusals.invalid(resource, name, str(error)) from error
        if not isinstance(new, dict) or not isinstance(new.get("metadata"), dict):
            raise refusals.bad_request("the patch leaves no object")
        return {**new, "metadata": dict(new["metadata"])}

    def delete(self, resource: Resource, name: str, options: Deletion, namespace: str = "") -> Stored:
        """Removes the object, or marks it as being deleted if finalizers or a kubelet must agree first."""
        kind, old = self.kind(resource), self.read(resource, name, namespace)
        if resource == NAMESPACES:
            raise ApiError(405, "MethodNotAllowed", "the end of a namespace is not modelled")
        meta = old.body["metadata"]
        check_preconditions(resource, meta, options)
        finalizers = finalizers_of(kind, meta, options)
        grace_s = grace_s_of(kind, old.body, options)
        if not finalizers and grace_s == 0:
            return self._remove(resource, old, old.body)
        known_s = meta.get("deletionGracePeriodSeconds")
        if known_s is not None and grace_s >= known_s and finalizers == meta.get("finalizers", []):
            return old
        marks = {
            "deletionTimestamp": stamp(self.now() + timedelta(seconds=grace_s)),
            "deletionGracePeriodSeconds": grace_s,
        }
        if known_s is not None and grace_s >= known_s:
            marks = {}
        marked = metadata.without_empty({**meta, **marks, "finalizers": finalizers})
        return self._put(resource, old, {**old.body, "metadata": marked})

    @contextmanager
    def dry_run(self) -> Iterator[None]:
        """Checks and answers writes as usual, but keeps none of them."""
        self._keeps = False
        try:
            yield
        finally:
            self._keeps = True

    # --- inside -------------------------------------------------------------------------------------------

    def _pruned(self, resource: Resource, new: Object) -> Object:
        schema = self._schemas.get(resource)
        return new if schema is None else prune_and_default(new, schema)

    def _validate(self, resource: Resource, old: Object | None, new: Object) -> None:
        schema = self._schemas.get(resource)
        found = [] if schema is None else violations(new, schema)
        why = "; ".join(found) or KINDS[resource].refuse(old, new)
        if why:
            raise refusals.invalid(resource, new["metadata"]["name"], why)

    def _put(self, resource: Resource, old: Stored | None, new: Object) -> Stored:
        if not self._keeps:
            return Stored(new, msgspec.json.encode(new))
        stored = self._at_next_version(new)
        if len(stored.raw) > OBJECT_BYTES_MAX:
            self.version -= 1
            raise ApiError(413, "RequestEntityTooLarge", f"limit is {OBJECT_BYTES_MAX} bytes")
        key = _key(new)
        self._objects[resource][key] = stored
        self._history[resource].append(Change(self.version, key, old, stored, stored))
        return stored

    def _remove(self, resource: Resource, old: Stored, last_body: Object) -> Stored:
        if not self._keeps:
            return old
        key = _key(old.body)
        del self._objects[resource][key]
        last = self._at_next_version(last_body)
        self._history[resource].append(Change(self.version, key, old, None, last))
        return last

    def _at_next_version(self, body: Object) -> Stored:
        self.version += 1
        body = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        return Stored(body, msgspec.json.encode(body))

    def _suffix(self) -> str:
        return "".join(self._random.choice(_SUFFIX_ALPHABET) for _ in range(5))


def _key(body: Object) -> tuple[str, str]:
    return body["metadata"].get("namespace", ""), body["metadata"]["name"]


def _spec_of(body: Object) -> Object:
    return {key: value for key, value in body.items() if key not in ("metadata", "status")}


def _isolated(kind: Kind, old: Object, new: Object, subresource: str) -> Object:
    """Returns the object after the write: a write to the object does not change the status, and a write to
    the status changes nothing else."""
    if subresource == "status":
        source, target = new, {**old, "metadata": dict(old["metadata"])}
    elif kind.has_status:
        source, target = old, dict(new)
    else:
        return new
    target.pop("status", None)
    return {**target, "status": source["status"]} if "status" in source else target


def _pack_page(version: int, after: tuple[str, str]) -> str:
    return f"{version}:{after[0]}:{after[1]}"


def _unpack_page(page: str) -> tuple[int, tuple[str, str]]:
    version, _, rest = page.partition(":")
    namespace, _, name = rest.partition(":")
    if not version.isdigit():
        raise refusals.bad_request(f'continue key is not valid: "{page}"')
    return int(version), (namespace, name)
