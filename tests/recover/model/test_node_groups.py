"""Tests the groups of nodes that the controller keeps between its reconciles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recover.model import Node, node_groups
from recover.model.node_groups import GroupedNodes, NodeGroups

NAMES = ["n0", "n1", "n2", "n3"]


def node(name: str, accelerators: int) -> Node:
    return Node(name=name, uid=name, version="1", accelerators=accelerators)


def accelerators(node: Node) -> int:
    return node.accelerators


def grouped(groups: NodeGroups) -> dict[object, set[str]]:
    return {group.key: set(group.names) for group in groups.groups}


@given(
    changes=st.lists(st.tuples(st.sampled_from(NAMES), st.none() | st.integers(0, 2), st.booleans())),
)
def test_the_kept_groups_are_those_of_the_present_nodes(changes: list[tuple[str, int | None, bool]]) -> None:
    nodes = {name: node(name, 0) for name in NAMES}
    kept = GroupedNodes()
    kept.of("accelerators", nodes, accelerators)
    for name, count, asks in changes:
        if count is None:
            nodes.pop(name, None)
        else:
            nodes[name] = node(name, count)
        kept.touch(name)
        if asks:
            kept.of("accelerators", nodes, accelerators)

    groups = kept.of("accelerators", nodes, accelerators)

    assert grouped(groups) == grouped(GroupedNodes().of("accelerators", nodes, accelerators))
    assert [groups.key(name) for name in NAMES] == [
        nodes[name].accelerators if name in nodes else None for name in NAMES
    ]


def test_only_changed_nodes_are_read_again() -> None:
    nodes = {name: node(name, 0) for name in NAMES}
    kept, read = GroupedNodes(), []

    def key_of(node: Node) -> int:
        read.append(node.name)
        return node.accelerators

    kept.of("accelerators", nodes, key_of)
    kept.touch("n2")
    kept.of("accelerators", nodes, key_of)

    assert read == [*NAMES, "n2"]


def test_the_questions_that_were_asked_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_groups, "NAMES_MAX", 10)
    nodes = {name: node(name, 0) for name in NAMES[:2]}
    kept, read = GroupedNodes(), []

    def key_of(node: Node) -> int:
        read.append(node.name)
        return node.accelerators

    for question in (*range(5), 0, 5):
        kept.of(question, nodes, key_of)
    assert len(read) == 12
    kept.of(0, nodes, key_of)
    assert len(read) == 12
    kept.of(1, nodes, key_of)
    assert len(read) == 14


def test_a_node_with_the_key_none_or_false_is_in_no_group() -> None:
    nodes = {"n0": node("n0", 0), "n1": node("n1", 8)}
    for key_of in (lambda node: node.accelerators or None, lambda node: node.accelerators > 0):
        groups = GroupedNodes().of("some", nodes, key_of)
        assert (len(groups), groups.key("n0")) == (1, None)
