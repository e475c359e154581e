"""A loop rests after a long reconcile pass, and not after a short one."""

from __future__ import annotations

import pytest

from recover.runtime.rest import REST_S_MAX, rest_after


@pytest.mark.parametrize(("took_s", "rest_s"), [(0.0, 0.0), (0.002, 0.0), (0.02, 0.06), (0.2, 0.6)])
def test_a_loop_rests_in_proportion_to_a_long_look(took_s: float, rest_s: float) -> None:
    assert rest_after(took_s) == pytest.approx(rest_s)
    assert rest_after(took_s, is_unhurried=True) == pytest.approx(min(4 * rest_s, REST_S_MAX))


def test_a_machine_that_stood_still_does_not_make_a_loop_rest_for_a_minute() -> None:
    assert rest_after(5.0) == rest_after(5.0, is_unhurried=True) == REST_S_MAX
