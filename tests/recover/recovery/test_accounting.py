"""Tests the costs of a failure, as numbers that the API server accepts whatever the agents report."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from recover.api import Recovery, Totals
from recover.recovery.accounting import lost_gpu_s, lost_steps, totals
from tests.acting import only_recovery
from tests.recover.recovery.phase_cases import faulted

NOW = datetime(2026, 11, 23, tzinfo=UTC)
INT64_MAX = 2**63 - 1


def recovery(number: int, before: Totals | None = None) -> Recovery:
    made = only_recovery(faulted())
    spec = msgspec.structs.replace(made.spec, number=number)
    status = msgspec.structs.replace(made.status, totals=before)
    return msgspec.structs.replace(made, spec=spec, status=status)


@pytest.mark.parametrize(
    ("last", "first", "lost"), [(None, 7, None), (9, 5, 5), (5, 9, 0), (2**53, -(2**53), 2**53)]
)
def test_steps_that_are_made_a_second_time(last: int | None, first: int, lost: int | None) -> None:
    assert lost_steps(last, first) == lost


@pytest.mark.parametrize("carried", [2**53, INT64_MAX])
def test_totals_that_are_at_an_end_stay_there_and_are_written(carried: int) -> None:
    """An agent may once have reported such a number, and each later Recovery of the job takes it over."""
    earlier = recovery(1, Totals(recoveries=1, lost_steps=carried, lost_gpu_s=1e300))

    found = totals([earlier], recovery(2), 2**53, 1e15)

    assert (found.recoveries, found.lost_steps, found.lost_gpu_s) == (2, 2**53, 1e15)


def test_gpu_seconds_have_an_end_as_well() -> None:
    spec = recovery(1).spec

    assert lost_gpu_s(spec, NOW, NOW + timedelta(seconds=5), 2**53, 1e9) == 1e15
    assert lost_gpu_s(spec, NOW, NOW + timedelta(seconds=5), 2, 1.5) == 8.0 * spec.gpus
    assert lost_gpu_s(spec, NOW, NOW + timedelta(seconds=5), 2**53, -1e9) == 5.0 * spec.gpus


def test_totals_that_were_forged_below_zero_begin_anew() -> None:
    earlier = recovery(1, Totals(recoveries=1, lost_steps=-(2**53), lost_gpu_s=-3.6e25))

    found = totals([earlier], recovery(2), 10, 80.0)

    assert (found.lost_steps, found.lost_gpu_s) == (10, 80.0)
