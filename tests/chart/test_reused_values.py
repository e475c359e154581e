"""`helm upgrade --reuse-values` gives this chart the values of the previous release, including its
defaults."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.earlier import laid
from tests.chart.helm import CHART, HELMS, KUBERNETES, NAMESPACE, Helm

pytestmark = pytest.mark.control_plane


@pytest.mark.parametrize("program", HELMS)
def test_a_value_that_an_earlier_release_lacks_means_its_default(tmp_path: Path, program: str) -> None:
    helm = Helm(program, tmp_path)
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    shutil.copy(laid(tmp_path / "earlier").chart / "values.yaml", chart / "values.yaml")

    reused = rendered(helm, chart)

    assert sorted(map(yaml.safe_dump, reused)) == sorted(map(yaml.safe_dump, rendered(helm, CHART)))


def rendered(helm: Helm, chart: Path) -> list[dict[str, Any]]:
    changed = {"networkPolicy": {"egressPorts": [443]}}  # changed defaults stay as they were
    values = helm.values({"mode": "repair", **changed})
    flags = [f"--kube-version={KUBERNETES}", f"--namespace={NAMESPACE}", *values]
    return [body for body in yaml.safe_load_all(helm.run("template", "rekindle", str(chart), *flags)) if body]
