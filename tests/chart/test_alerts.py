"""Alerts and dashboard query only metrics that agent and controller have; each alert says what is to be
done."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from detectors.wire.contract import Fault, Source
from recover.api import Phase
from recover.api.reasons import Reason
from tests.chart.promql import RUNBOOKS, matched, panel_queries, runbook_queries, wrong
from tests.chart.promtool import CASES, RULES
from tools.docs.chart import CHART, alerts

ALERTS = {alert["alert"]: alert for alert in alerts()}
VALUES = {"reason": set(Reason), "phase": set(Phase), "source": {*Source, "agent"}, "fault": set(Fault)}
SECTIONS = ["What it means", "What Rekindle did", "What to look at", "What to do", "How to silence it"]


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_asks_for_metrics_labels_and_values_that_there_are(name: str) -> None:
    expression = ALERTS[name]["expr"]

    assert list(wrong(expression)) == []
    for label, known in VALUES.items():
        assert matched(expression, label) <= known


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        ("max(rekindle_nodes_lost) > 0", "no metric: rekindle_nodes_lost"),
        ("max by (node_name) (rekindle_recoveries) > 0", "node_name"),
        ('max(rekindle_recoveries{reason="x"}) > 0', "rekindle_recoveries has no label reason"),
        ("sum(rate(rekindle_writes[5m]))", "no metric: rekindle_writes"),
        ("maximum(rekindle_leader) > 0", "maximum"),
        ("max(rekindle_leader > 0", "( is not closed"),
        ("rekindle_leader) > 0", ") closes nothing"),
        ("rekindle_leader & 1", "cannot be read: &"),
        ("vector(1)", "no metric of ours"),
    ],
)
def test_an_expression_that_is_wrong_is_noticed(expression: str, what: str) -> None:
    assert what in " ".join(wrong(expression))


def test_every_source_of_the_agents_is_watched_but_what_is_switched_off() -> None:
    expression = ALERTS["RekindleAgentsBlind"]["expr"]

    assert matched(expression, "source") == set(Source)
    assert "|nvml" in expression, "so the chart takes it out"
    assert "fabric|" in expression, "so the chart takes it out"
    assert "|pods" in expression, "so the chart takes it out"


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_how_bad_it_is_and_what_it_is_in_words(name: str) -> None:
    alert = ALERTS[name]

    assert re.fullmatch(r"Rekindle([A-Z][a-z]+)+", name)
    assert alert["labels"] in [{"severity": severity} for severity in ("critical", "warning", "info")]
    assert alert["annotations"].keys() == {"summary", "description"}
    assert all(text.endswith(".") or text.endswith('"') for text in alert["annotations"].values())
    used = set(re.findall(r"\$labels\.(\w+)", alert["annotations"]["description"]))
    assert used <= set(re.findall(r"by \((\w+)\)", alert["expr"])), "a label that the expression drops"


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_its_runbook(name: str) -> None:
    page = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")

    assert page.startswith(f"# {name}\n")
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == SECTIONS
    assert "```\n" in page, "commands to copy"


def test_no_runbook_is_of_an_alert_that_is_gone() -> None:
    assert {page.stem for page in RUNBOOKS.iterdir()} == ALERTS.keys()


def test_the_dashboard_and_runbooks_ask_for_metrics_that_there_are() -> None:
    asked = [*panel_queries(), *runbook_queries()]

    assert panel_queries()
    assert "RekindleAgentsBlind" in {name for name, _ in runbook_queries()}
    assert [(name, *wrong(query)) for name, query in asked if list(wrong(query))] == []
    for _, query in asked:
        for label, known in VALUES.items():
            assert matched(query, label) <= known


def test_the_page_on_monitoring_tells_of_every_alert() -> None:
    page = (RUNBOOKS.parent / "monitoring.md").read_text(encoding="utf-8")

    for name, alert in ALERTS.items():
        severity, after = alert["labels"]["severity"], alert.get("for", "at once")
        assert f"| [{name}](runbooks/{name}.md) | {severity} | {after} | " in page, name


def test_every_alert_has_cases_in_series_that_there_are() -> None:
    cases = yaml.safe_load(CASES.read_text(encoding="utf-8"))

    assert [(CASES.parent / file).resolve() for file in cases["rule_files"]] == [RULES]
    played = {alert["alertname"] for test in cases["tests"] for alert in test.get("alert_rule_test", ())}
    for test in cases["tests"]:
        for asked in test.get("promql_expr_test", ()):
            played |= matched(asked["expr"], "alertname")
        for series in test["input_series"]:
            assert list(wrong(series["series"])) == []
    assert played == ALERTS.keys()


def test_the_dashboard_names_no_data_source_and_no_address() -> None:
    text = (CHART / "files" / "dashboards" / "rekindle.json").read_text(encoding="utf-8")

    assert {source["uid"] for source in _under("datasource", json.loads(text))} == {"${datasource}"}
    assert "://" not in text
    assert len(text) < 100_000, "a ConfigMap, and Helm's own copy of it, have their limits"


def _under(key: str, value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _under(key, item)
    elif isinstance(value, dict):
        if key in value:
            yield value[key]
        for item in value.values():
            yield from _under(key, item)
