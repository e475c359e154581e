"""Tests `rekindle doctor JOB` when the API server refuses requests: which checks the doctor leaves out,
and what it prints about them."""

from __future__ import annotations

from typing import Any

import pytest

from chaos.apiserver.client import Client
from chaos.apiserver.deletion import Deletion, Propagation
from chaos.apiserver.store import MemoryCluster
from detectors.client.kubeapi import ApiError, ReplyLost
from detectors.wire.resource import Resource
from recover.doctor.case import Case, Part
from recover.doctor.look import look
from recover.k8s.kinds import CONFIGMAPS, JOBS
from recover.kube.cluster import ListPage
from recover.model.modes import Mode
from recover.snapshot.find import NotFound
from recover.snapshot.read import CannotTell
from tests.facts import names
from tests.recover.stories.why_cases import NOW


class Refusing(Client):
    """The store, except that one kind of request on one resource is answered with an error."""

    def __init__(self, store: MemoryCluster, verb: str, plural: str, error: Exception) -> None:
        super().__init__(store, "tester")
        self._on, self._error = (verb, plural), error

    async def get(self, resource: Resource, name: str, namespace: str = "") -> bytes:
        if self._on == ("get", resource.plural):
            raise self._error
        return await super().get(resource, name, namespace)

    async def list(self, resource: Resource, **asked: Any) -> ListPage:
        if self._on == ("list", resource.plural):
            raise self._error
        return await super().list(resource, **asked)


FORBIDDEN = ApiError(403, "Forbidden", "you may not")


async def looked(store: MemoryCluster, verb: str, plural: str, error: Exception) -> tuple[Case, list[str]]:
    return await look(Refusing(store, verb, plural, error), "llm", "team", NOW)


@pytest.mark.parametrize(
    ("verb", "plural", "part"),
    [
        ("get", "configmaps", Part.MODE),
        ("list", "nodes", Part.NODES),
        ("list", "nodehealths", Part.HEALTH),
        ("list", "pods", Part.RUNNING),
        ("get", "persistentvolumeclaims", Part.CLAIM),
    ],
)
async def test_what_one_may_not_read_leaves_only_its_own_checks_unmade(
    verb: str, plural: str, part: Part, store: MemoryCluster
) -> None:
    case, _ = await looked(store, verb, plural, FORBIDDEN)

    assert set(case.unread) == {part}
    assert case.unread[part]


async def test_who_may_not_list_namespaces_may_read_the_one_of_the_job(store: MemoryCluster) -> None:
    case, _ = await looked(store, "list", "namespaces", FORBIDDEN)

    assert case.namespace is not None
    assert case.unread == {}


async def test_a_failing_api_server_and_a_missing_object_are_no_missing_right(store: MemoryCluster) -> None:
    failure = ApiError(500, "InternalError", "etcd is away")
    failing, _ = await looked(store, "get", "configmaps", failure)
    missing, _ = await looked(store, "get", "configmaps", ApiError(404, "NotFound", "none"))
    forbidden, _ = await looked(store, "get", "configmaps", FORBIDDEN)

    assert names(failing.unread[Part.MODE], "rekindle-system/rekindle-state", 500, failure.message)
    assert names(missing.unread[Part.MODE], "rekindle-system/rekindle-state")
    assert not names(missing.unread[Part.MODE], 404)
    assert names(forbidden.unread[Part.MODE], FORBIDDEN.message)
    assert not names(missing.unread[Part.MODE], FORBIDDEN.message)


async def test_who_may_not_read_policies_does_not_know_of_them_and_who_may_does(store: MemoryCluster) -> None:
    refused, _ = await looked(store, "get", "mutatingadmissionpolicies", FORBIDDEN)
    missing, _ = await looked(store, "get", "mutatingadmissionpolicies", ApiError(404, "NotFound", "none"))

    assert (refused.adds_environment, missing.adds_environment) == (None, False)


async def test_recipes_of_ones_own_that_cannot_be_read_are_left_out_and_said(store: MemoryCluster) -> None:
    case, notes = await looked(store, "list", "recipes", FORBIDDEN)

    assert "paddle-autogrow-crash" in case.recipes
    (note,) = notes
    assert names(note, "recipes.rekindle.dev", FORBIDDEN.message)


async def test_a_mode_that_is_no_mode_is_not_taken_for_one(store: MemoryCluster) -> None:
    store.patch(CONFIGMAPS, "rekindle-state", {"data": {"mode": "sleep"}}, namespace="rekindle-system")

    case, _ = await looked(store, "", "", FORBIDDEN)

    assert "rekindle-system/rekindle-state" in case.unread[Part.MODE]
    assert case.mode is Mode.OBSERVE


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ApiError(404, "NotFound", "gone"), NotFound),
        (ApiError(500, "InternalError", "etcd"), CannotTell),
        (ReplyLost("GET: timeout"), CannotTell),
    ],
)
async def test_there_is_no_answer_without_the_job_itself(
    error: Exception, kind: type[Exception], store: MemoryCluster
) -> None:
    with pytest.raises(kind):
        await looked(store, "get", "jobs", error)


async def test_a_job_that_is_gone_has_nothing_to_look_at(store: MemoryCluster) -> None:
    store.delete(JOBS, "llm", Deletion(propagation=Propagation.BACKGROUND), namespace="team")

    with pytest.raises(NotFound):
        await looked(store, "", "", FORBIDDEN)
