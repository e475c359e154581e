"""Defines the actions of a plan: a closed union of writes, each with its precondition and its reason, and of
the live reads that must come before some of the writes.

Pure: building an action writes nothing; runtime/execute.py writes. `what` names the action in logs, metrics
and tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from detectors.wire.fitting import UTF8
from detectors.wire.resource import MergePatch, PatchType, Resource
from recover.k8s.limits import NOTE_BYTES_MAX

__all__ = [
    "Action",
    "Ask",
    "ConfirmGone",
    "ConfirmListed",
    "Create",
    "Delete",
    "Emit",
    "Ensure",
    "Failure",
    "Patch",
    "Plan",
]


class Create(msgspec.Struct, frozen=True, tag="create", kw_only=True):
    """Creates an object. A duplicate (409 AlreadyExists) is success: names are deterministic, so a create can
    be repeated.

    `status` follows as a patch of the status subresource, since a create drops it.
    """

    what: str
    resource: Resource
    name: str
    body: dict[str, Any]
    namespace: str = ""
    status: dict[str, Any] | None = None
    strict: bool = False
    """Set for content that people wrote: the API server then refuses a field that it does not know, and does
    not drop the field."""


class Ensure(msgspec.Struct, frozen=True, tag="ensure", kw_only=True):
    """Makes sure that the object, which is ours alone, exists with this content: merges the content into it,
    or creates the object unless `creates` is False."""

    what: str
    resource: Resource
    name: str
    body: dict[str, Any]
    namespace: str = ""
    creates: bool = True
    foreign: Emit | None = None
    """If given, keys of `data` that the body does not name are removed, and this Event names them at the
    beginning of its message."""


class Patch(msgspec.Struct, frozen=True, tag="patch", kw_only=True):
    """Applies only to the object that was seen: its uid and its version are preconditions, unless they are
    empty."""

    what: str
    resource: Resource
    name: str
    body: dict[str, Any]
    namespace: str = ""
    uid: str = ""
    version: str = ""
    subresource: str = ""
    patch_type: PatchType = MergePatch
    operations: tuple[Mapping[str, Any], ...] = ()
    """The same change as a JSON Patch. Its tests replace the version: each names a field that was read. It is
    sent first if given, so that writes of others to other fields cause no conflict."""


class Delete(msgspec.Struct, frozen=True, tag="delete", kw_only=True):
    """Deletes only the object with this uid and, unless empty, this version. An object that is already gone
    is success."""

    what: str
    resource: Resource
    name: str
    uid: str
    namespace: str = ""
    version: str = ""
    grace_s: int | None = None
    foreground: bool = False
    """Whether the object stays, marked as being deleted, until everything that it owns has gone."""


class Emit(msgspec.Struct, frozen=True, tag="emit", kw_only=True):
    """Writes a Kubernetes Event on an object, after all other actions of its chain have succeeded. A failure
    to write the Event has no effect."""

    reason: str
    message: Annotated[str, Meta(max_length=NOTE_BYTES_MAX, extra=UTF8)]
    """The text is cut when it is sent."""
    regarding: dict[str, str]
    """apiVersion, kind, namespace, name, uid."""
    warning: bool = False
    key: str = ""
    """Part of the Event's name: the same key on the same object is the same Event."""


class Ask(msgspec.Struct, frozen=True, tag="ask", kw_only=True):
    """Sends a request to a system outside the cluster, which acts on the same `id` once, however often it
    arrives."""

    what: str
    id: str
    body: dict[str, Any]


class ConfirmGone(msgspec.Struct, frozen=True, tag="confirm-gone", kw_only=True):
    """Reads an object live that is not in the cache. Its chain continues only if the API server has no object
    of that name, or, if `uid` is given, no object of that uid. An object that exists is put into the cache.
    """

    what: str
    resource: Resource
    name: str
    namespace: str = ""
    uid: str = ""


class ConfirmListed(msgspec.Struct, frozen=True, tag="confirm-listed", kw_only=True):
    """Lists objects live. Its chain continues only if the cache shows each listed object as it is. Otherwise
    the cache is brought up to date, and the decision is made again."""

    what: str
    resource: Resource
    namespace: str
    labels: str
    """A selector, as in an API request."""


Action = Create | Ensure | Patch | Delete | Emit | Ask | ConfirmGone | ConfirmListed


class Failure(msgspec.Struct, frozen=True):
    """An object about which a decision failed because of a defect in Rekindle."""

    about: Mapping[str, str]
    """The object as in an Event: apiVersion, kind, namespace, name, uid."""
    error: Exception


class Plan(msgspec.Struct, frozen=True):
    """The writes to make now, and when to reconcile again if nothing changes before.

    Each chain is written in its order and ends at its first failure. Chains do not wait for each other, so
    one object that cannot be written never stops the rest.
    """

    chains: tuple[tuple[Action, ...], ...] = ()
    requeue_after_s: float | None = None
    failures: tuple[Failure, ...] = ()

    @property
    def actions(self) -> tuple[Action, ...]:
        return tuple(action for chain in self.chains for action in chain)
