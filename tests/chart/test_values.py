"""The chart checks its values: the defaults fit its schema, wrong values are refused by name, and all are
explained."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
import yaml

from tests.chart.wrong_values import WRONG
from tools.docs.chart import CHART, values
from tools.docs.generate import pages


def test_the_charts_default_values_fit_its_schema() -> None:
    jsonschema.validate(_defaults(), _schema())


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_value_is_refused_by_its_name(what: str) -> None:
    wrong, key = WRONG[what]

    errors = list(jsonschema.Draft7Validator(_schema()).iter_errors(_merged(_defaults(), wrong)))

    assert errors
    for error in errors:
        assert key in f"{error.json_path} {error.message}"


def test_every_value_has_a_meaning_or_a_name_that_every_chart_knows() -> None:
    unexplained = {value.name for value in values() if not value.meaning}

    assert unexplained == {
        "image.repository",
        "image.pullPolicy",
        "podMonitor.interval",
    }


def test_every_setting_has_a_meaning() -> None:
    (page,) = [text for path, text in pages().items() if path.name == "settings.md"]

    assert [line for line in page.splitlines() if line.startswith("| `") and line.endswith("|  |")] == []


def test_no_value_is_left_out_of_the_table() -> None:
    told = {value.name for value in values()}

    for name in _leaves(_defaults(), ()):
        assert any(name == one or name.startswith(f"{one}.") for one in told), name


def _leaves(value: Any, path: tuple[str, ...]) -> list[str]:
    if not isinstance(value, dict) or not value:
        return [".".join(path)]
    return [leaf for key, inner in value.items() for leaf in _leaves(inner, (*path, key))]


def _merged(base: Any, over: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    return base | {key: _merged(base.get(key), value) for key, value in over.items()}


def _defaults() -> dict[str, Any]:
    return dict(yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8")))


def _schema() -> dict[str, Any]:
    return dict(json.loads((CHART / "values.schema.json").read_text(encoding="utf-8")))
