"""The chart ships exactly the CRDs that the structs define, and refuses values that it does not know."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from recover.crds import files

CHART = Path(__file__).parents[2] / "charts" / "rekindle"


def test_the_charts_crd_files_equal_the_generated_ones() -> None:
    shipped = {path.name: path.read_text() for path in (CHART / "files" / "crds").iterdir()}

    assert shipped == files(), "stale: run `make crds`"


def test_the_charts_default_values_fit_its_schema() -> None:
    jsonschema.validate(_default_values(), _schema())


@pytest.mark.parametrize(
    "values",
    [
        {"crd": {"enabled": True}},
        {"crds": {"enabled": True, "keep": True, "kep": True}},
        {"crds": {"enabled": "yes"}},
    ],
    ids=["unknown group", "unknown value", "wrong type"],
)
def test_a_value_that_the_chart_does_not_know_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(_default_values() | values, _schema())


def test_every_value_is_explained_in_the_charts_readme() -> None:
    readme = (CHART / "README.md").read_text()

    for group, values in _default_values().items():
        for name in values:
            assert f"`{group}.{name}`" in readme


def _default_values() -> dict[str, dict[str, object]]:
    return dict(yaml.safe_load((CHART / "values.yaml").read_text()))


def _schema() -> dict[str, object]:
    return dict(json.loads((CHART / "values.schema.json").read_text()))
