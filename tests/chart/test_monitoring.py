"""The objects that Helm 3 and Helm 4 render from the values for Prometheus and Grafana."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.helm import HELMS, Helm, notes, of_kind
from tests.chart.promtool import RULES
from tools.docs.chart import CHART, alerts

pytestmark = pytest.mark.control_plane

GROUP = "monitoring.coreos.com/v1"
THERE = (f"{GROUP}/PodMonitor", f"{GROUP}/PrometheusRule")
ON: dict[str, Any] = {"alerts": {"enabled": True}, "podMonitor": {"enabled": True}}


@pytest.fixture(params=HELMS)
def helm(request: pytest.FixtureRequest, tmp_path: Path) -> Helm:
    return Helm(request.param, tmp_path)


def kinds(objects: list[dict[str, Any]]) -> list[str]:
    return sorted(body["kind"] for body in objects if body["apiVersion"] == GROUP)


def rules(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    groups = of_kind(objects, "PrometheusRule")["spec"]["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def alerting(helm: Helm, **values: Any) -> dict[str, dict[str, Any]]:
    return rules(helm.render({"alerts": {"enabled": True, **values}}, apis=THERE))


def test_objects_for_prometheus_are_made_where_they_are_known_or_always(helm: Helm) -> None:
    every = ["PodMonitor", "PodMonitor", "PrometheusRule"]
    always = {"alerts": {"enabled": "always"}, "podMonitor": {"enabled": "always"}}

    assert kinds(helm.render({}, apis=THERE)) == []
    assert kinds(helm.render(ON)) == []
    assert kinds(helm.render(ON, apis=THERE)) == every
    assert kinds(helm.render(always)) == every


def test_the_alerts_are_the_rule_file_as_it_is(helm: Helm) -> None:
    made = of_kind(helm.render(ON, apis=THERE), "PrometheusRule")

    assert made["spec"] == yaml.safe_load(RULES.read_text(encoding="utf-8"))


def test_an_alert_may_be_switched_off_or_be_slower_and_of_another_severity(helm: Helm) -> None:
    changes = {
        "RekindleWouldHaveActed": {"enabled": False},
        "RekindleNoLeader": {"for": "15m", "severity": "page"},
        "RekindleLoopFails": {"for": "0"},
        "RekindleNoCapacity": None,
    }

    made = alerting(helm, rules=changes)

    as_it_is = {alert["alert"]: alert for alert in alerts()}
    assert made.keys() == as_it_is.keys() - {"RekindleWouldHaveActed"}
    assert (made["RekindleNoLeader"]["for"], made["RekindleNoLeader"]["labels"]) == (
        "15m",
        {"severity": "page"},
    )
    assert made["RekindleLoopFails"]["for"] == "0"
    assert made["RekindleNoCapacity"] == as_it_is["RekindleNoCapacity"]


def test_a_group_of_which_nothing_is_left_is_left_out(helm: Helm) -> None:
    group = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"][0]
    off = {rule["alert"]: {"enabled": False} for rule in group["rules"]}

    made = of_kind(helm.render({"alerts": {"enabled": True, "rules": off}}, apis=THERE), "PrometheusRule")

    assert group["name"] not in {left["name"] for left in made["spec"]["groups"]}


@pytest.mark.parametrize("prefix", ["https://wiki.example.com/r", "https://wiki.example.com/r/"])
def test_every_alert_names_its_runbook_where_runbooks_can_be_read(helm: Helm, prefix: str) -> None:
    for name, rule in alerting(helm, runbookPrefix=prefix).items():
        assert rule["annotations"]["runbook_url"] == f"https://wiki.example.com/r/{name}.md"


@pytest.mark.parametrize(
    ("agent", "sources"),
    [
        ({}, "fabric|host|kmsg|logs|nvml|pods|volumes"),
        ({"nvml": {"enabled": False}}, "fabric|host|kmsg|logs|pods|volumes"),
        ({"nvml": {"enabled": False}, "pod_resources": {"enabled": False}}, "fabric|host|kmsg|logs|volumes"),
        ({"fabric": {"enabled": False}}, "host|kmsg|logs|nvml|pods|volumes"),
        ({"host": {"enabled": False}}, "fabric|kmsg|logs|nvml|pods|volumes"),
        ({"volumes": {"enabled": False}}, "fabric|host|kmsg|logs|nvml|pods"),
    ],
)
def test_a_source_that_is_switched_off_alerts_nobody(helm: Helm, agent: dict[str, Any], sources: str) -> None:
    made = rules(helm.render({**ON, "settings": {"agent": agent}}, apis=THERE))

    assert f'source=~"{sources}"' in made["RekindleAgentsBlind"]["expr"]


def test_the_dashboard_is_a_configmap_that_a_sidecar_finds(helm: Helm) -> None:
    asked = {"dashboards": {"enabled": True, "annotations": {"grafana_folder": "Rekindle"}}}

    made = of_kind(helm.render(asked), "ConfigMap", "rekindle-dashboard")

    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert made["metadata"]["annotations"] == {"grafana_folder": "Rekindle"}
    file = CHART / "files" / "dashboards" / "rekindle.json"
    assert json.loads(made["data"]["rekindle.json"]) == json.loads(file.read_text(encoding="utf-8"))
    assert not [b for b in helm.render({}) if b["metadata"]["name"] == "rekindle-dashboard"]


def test_the_notes_say_what_the_alerts_lack(helm: Helm, tmp_path: Path) -> None:
    nowhere = notes(helm, tmp_path, "1.36.0", {"alerts": {"enabled": True}})
    blind = notes(helm, tmp_path / "other", "1.36.0", {"alerts": {"enabled": "always"}})
    told = {"enabled": "always", "runbookPrefix": "https://wiki.example.com/r"}
    whole = notes(helm, tmp_path / "third", "1.36.0", {"alerts": told, "podMonitor": {"enabled": "always"}})

    lacks = ("PrometheusRules", "RekindleNoLeader", "alerts.runbookPrefix")
    assert [name in nowhere for name in lacks] == [True, False, False]
    assert [name in blind for name in lacks] == [False, True, True]
    assert [name in whole for name in lacks] == [False, False, False]
