"""A loop rests after a long look, and after no short one."""

from __future__ import annotations

import pytest

from recover.runtime.rest import rest_after


@pytest.mark.parametrize(("took_s", "rest_s"), [(0.0, 0.0), (0.002, 0.0), (0.02, 0.06), (0.2, 0.6)])
def test_a_loop_rests_in_proportion_to_a_long_look(took_s: float, rest_s: float) -> None:
    assert rest_after(took_s) == pytest.approx(rest_s)
    assert rest_after(took_s, is_unhurried=True) == pytest.approx(4 * rest_s)
