"""Tests that a merge patch becomes a JSON Patch with its test operations."""

from __future__ import annotations

from typing import Any

import pytest

from chaos.apiserver.patching import json_patch, merge_patch
from recover.k8s.json_patch import changes, expecting, path_of

HERE: dict[str, Any] = {
    "metadata": {"annotations": {"a": "1"}},
    "spec": {"policy": {"suspend": False, "ttl": 9}},
}


def test_a_key_with_a_stroke_or_a_tilde_is_one_step() -> None:
    assert (
        path_of("metadata", "annotations", "rekindle.dev/a~b") == "/metadata/annotations/rekindle.dev~1a~0b"
    )


def test_what_is_there_keeps_all_that_the_change_does_not_name() -> None:
    body = {
        "metadata": {"annotations": {"rekindle.dev/recovery": "{}"}},
        "spec": {"policy": {"suspend": True}, "affinity": {"x": {"y": None, "z": [1]}}},
    }
    there = {("metadata",), ("metadata", "annotations"), ("spec",), ("spec", "policy")}

    assert json_patch(HERE, changes(body, there)) == merge_patch(HERE, body)


def test_what_is_not_there_is_made() -> None:
    bare: dict[str, Any] = {"metadata": {}, "spec": {}}
    body = {"metadata": {"annotations": {"a/b": "1"}}, "spec": {"policy": {"suspend": True}}}

    assert json_patch(bare, changes(body, {("metadata",), ("spec",)})) == merge_patch(bare, body)


def test_a_removal_is_refused_since_it_fails_where_there_is_nothing() -> None:
    with pytest.raises(ValueError, match="/metadata/annotations/a"):
        changes({"metadata": {"annotations": {"a": None}}}, {("metadata",), ("metadata", "annotations")})


def test_what_was_missing_is_tested_as_null() -> None:
    assert expecting({"/a": 1, "/b": None}) == [
        {"op": "test", "path": "/a", "value": 1},
        {"op": "test", "path": "/b", "value": None},
    ]
