"""Tests which variables the executor removes from the ConfigMap that resumed ranks read, and reports."""

from __future__ import annotations

import re

import msgspec
import pytest

from detectors.client.kubeapi import ApiError
from recover.k8s.kinds import CONFIGMAPS
from recover.model.actions import Emit, Ensure
from recover.model.modes import Mode, Modes, begun
from tests.recover.runtime.executing import START, execute, patch
from tests.recover.scripted import MISSING, Scripted

FOREIGN = Emit(reason="R", message="somebody else had put these there", regarding={"name": "llm", "uid": "u"})


def ensured(cluster: Scripted, data: dict[str, str | None]) -> None:
    environment = Ensure(
        what="e",
        resource=CONFIGMAPS,
        name="env",
        namespace="ml",
        body={"metadata": {"name": "env"}, "data": data},
        foreign=FOREIGN,
    )
    execute(cluster, (environment,))


def test_what_is_not_ours_is_removed_from_our_own_object_and_told() -> None:
    """A variable that runs code in the ranks used to survive each of Rekindle's writes, which merged
    Rekindle's variables into the ConfigMap."""
    there = b'{"metadata": {"name": "env"}, "data": {"LD_PRELOAD": "/ckpt/x.so", "BASH_ENV": "y", "A": "0"}}'
    cluster = Scripted(get=[there])

    ensured(cluster, {"A": "1", "B": None})

    change, event = cluster.bodies
    assert change["data"] == {"LD_PRELOAD": None, "BASH_ENV": None, "A": "1", "B": None}
    assert event["note"].startswith("BASH_ENV, LD_PRELOAD: ")


def test_of_many_foreign_keys_a_few_are_named() -> None:
    there = {"metadata": {"name": "env"}, "data": {f"K{number:03}": "v" for number in range(500)}}
    cluster = Scripted(get=[msgspec.json.encode(there)])

    ensured(cluster, {})

    change, event = cluster.bodies
    assert change["data"] == dict.fromkeys(there["data"])
    assert re.findall(r"\d+", event["note"]) == [*(f"{number:03}" for number in range(8)), "492"]


@pytest.mark.parametrize("there", [b'{"metadata": {"name": "env"}}', b'{"metadata": {}, "data": {"A": "0"}}'])
def test_where_nothing_is_foreign_nothing_is_told(there: bytes) -> None:
    cluster = Scripted(get=[there])

    ensured(cluster, {"A": "1"})

    assert cluster.calls == [("get", "env"), ("patch", "env")]


def test_an_environment_that_is_missing_is_created_and_nothing_told() -> None:
    cluster = Scripted(get=[MISSING])

    ensured(cluster, {"A": "1"})

    assert [method for method, _ in cluster.calls] == ["get", "create"]


def test_the_gang_is_not_started_where_foreign_variables_cannot_be_removed() -> None:
    """For example, somebody has made the ConfigMap immutable."""
    there = b'{"metadata": {"name": "env"}, "data": {"LD_PRELOAD": "/ckpt/x.so"}}'
    words = "data: Forbidden: field is immutable when `immutable` is set"
    cluster = Scripted(get=[there, there], patch=[ApiError(422, "Invalid", words)])
    environment = Ensure(
        what="e", resource=CONFIGMAPS, name="env", namespace="ml", body={"data": {}}, foreign=FOREIGN
    )

    _, observer = execute(cluster, (environment, patch()))

    assert ("patch", "r1") not in cluster.calls
    assert words in observer.world(Modes(begun(Mode.RECOVER, START))).refused["configmaps/ml/env"].words
