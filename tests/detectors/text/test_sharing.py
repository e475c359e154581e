"""Groups that share too few places."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from detectors.text.sharing import in_turn


def test_each_group_comes_in_its_turn() -> None:
    assert in_turn(["a1", "a2", "a3", "b1", "c1", "c2"], lambda name: name[0]) == [
        "a1",
        "b1",
        "c1",
        "a2",
        "c2",
        "a3",
    ]


@given(st.lists(st.sampled_from("aabc")), st.integers(0, 20))
def test_who_leaves_something_out_has_as_much_as_any_other_but_one(groups: list[str], places: int) -> None:
    kept, all_of = Counter(in_turn(groups, str)[:places]), Counter(groups)

    assert sum(kept.values()) == min(places, len(groups))
    for group in all_of:
        if kept[group] < all_of[group]:
            assert all(kept[group] >= kept[other] - 1 for other in all_of)
