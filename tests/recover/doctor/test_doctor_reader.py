"""Tests recover/doctor/installation/reader.py: the reader records requests that the API server refuses,
and raises nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from detectors.client.credentials import Credentials
from detectors.client.kubeapi import ApiError, KubeApi, ReplyLost
from recover.doctor.installation.installed import Part
from recover.doctor.installation.reader import Reader
from recover.k8s.kinds import NODES
from recover.snapshot.read import CannotTell
from tests.facts import names


class Answers(KubeApi):
    """Gives the next answer to each request, and raises the answer if it is an exception."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(Credentials("http://none"))
        self._answers = list(answers)

    async def request(self, method: str, path: str, **asked: Any) -> bytes:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return msgspec.json.encode(answer)


def page(*names: str, rest: str = "") -> dict[str, Any]:
    return {"metadata": {"continue": rest}, "items": [{"metadata": {"name": name}} for name in names]}


def name_of(raw: bytes) -> str:
    return str(msgspec.json.decode(raw)["metadata"]["name"])


async def listed(*answers: Any) -> tuple[list[str] | None, dict[Part, str]]:
    reader = Reader(Answers(*answers))
    return await reader.every(Part.NODES, NODES, name_of), reader.unread


async def test_all_pages_are_read_and_an_expired_list_begins_anew() -> None:
    expired = ApiError(410, "Expired", "too old")

    found, unread = await listed(page("a", rest="2"), expired, page("a", rest="2"), page("b"))

    assert found == ["a", "b"]
    assert unread == {}


async def test_a_kind_that_is_not_served_has_no_objects() -> None:
    assert await listed(ApiError(404, "NotFound", "no such kind")) == ([], {})


async def test_what_is_not_read_has_its_reason() -> None:
    said = "so it says"
    answers = [await listed(ApiError(status, "Because", said)) for status in (403, 500)]

    assert [found for found, _ in answers] == [None, None]
    assert [unread.keys() for _, unread in answers] == [{Part.NODES}, {Part.NODES}]
    forbidden, failed = (unread[Part.NODES] for _, unread in answers)
    assert names(forbidden, "nodes", said)
    assert names(failed, "nodes", said)
    assert forbidden != failed


@pytest.mark.parametrize("error", [ReplyLost("it broke"), ApiError(401, "Unauthorized", "who are you?")])
async def test_without_an_answer_or_without_a_name_nothing_can_be_told(error: Exception) -> None:
    with pytest.raises(CannotTell, match=r"it broke|who are you"):
        await listed(error)


@pytest.mark.parametrize("status", [429, 503])
async def test_a_path_that_an_overloaded_server_does_not_answer_is_not_taken_for_one_that_is_not_there(
    status: int,
) -> None:
    reader = Reader(Answers(ApiError(status, "Because", "later")))

    with pytest.raises(CannotTell, match=rf"/apis/rekindle\.dev\b.*{status} Because: later"):
        await reader.answer("/apis/rekindle.dev", dict)


async def test_an_object_of_another_shape_is_not_taken_for_one_that_is_not_there() -> None:
    class Wanted(msgspec.Struct):
        spec: int

    reader = Reader(Answers({"spec": "no number"}))

    assert await reader.one(Part.LEASE, NODES, "n1", Wanted) is None
    assert names(reader.unread[Part.LEASE], "Node n1", "int")


def test_the_time_is_the_api_servers_where_it_tells_one() -> None:
    api = Answers()
    api.date = "Sat, 21 Nov 2026 12:00:00 GMT"

    assert Reader(api).now() == datetime(2026, 11, 21, 12, tzinfo=UTC)

    api.date = "today"
    assert abs((Reader(api).now() - datetime.now(UTC)).total_seconds()) < 60
