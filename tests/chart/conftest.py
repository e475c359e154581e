"""The chart, as each supported Helm renders it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chart.helm import HELMS, Helm


@pytest.fixture(params=HELMS)
def helm(request: pytest.FixtureRequest, tmp_path: Path) -> Helm:
    return Helm(request.param, tmp_path)
