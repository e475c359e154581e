"""Tests which addresses the chart's pods reach, and who reaches the pods."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.helm import Helm, of_kind
from tests.chart.rendered import CLEANS_UP, EVERYTHING

pytestmark = pytest.mark.control_plane


def test_agent_and_controller_reach_the_api_server_and_a_webhook_and_nothing_else(helm: Helm) -> None:
    def reached(url: str) -> dict[str, list[tuple[str, int]]]:
        webhook = {"settings": {"controller": {"repair": {"webhook": {"url": url}}}}} if url else {}
        policies = [body for body in helm.render({**webhook, **CLEANS_UP}) if body["kind"] == "NetworkPolicy"]
        return {body["metadata"]["name"]: open_ports(body["spec"]["egress"]) for body in policies}

    server, names = [("TCP", 443), ("TCP", 6443)], [("TCP", 53), ("UDP", 53)]
    ours = {f"rekindle-{name}": server for name in ("agent", "controller", "cleanup", "test")}

    assert reached("") == ours
    for url, port in (
        ("https://machines.example:8443/reboot", 8443),
        ("https://machines.example/reboot?of=1:2", 443),
        ("http://[fd00::1]/reboot", 80),
    ):
        asking = sorted({*server, ("TCP", port), *names})
        assert reached(url) == {**ours, "rekindle-controller": asking}, url


def test_whoever_knows_the_api_servers_addresses_closes_all_others(helm: Helm) -> None:
    policies = [body["spec"] for body in helm.render(EVERYTHING) if body["kind"] == "NetworkPolicy"]

    assert len(policies) == 4
    for policy in policies:
        server, *_webhook = policy["egress"]
        assert [one["ipBlock"]["cidr"] for one in server["to"]] == ["10.0.0.0/28", "fd00::1/128"]
        assert {port["port"] for port in server["ports"]} == {443, 6443}


def test_where_no_port_is_told_nothing_limits_what_is_reached(helm: Helm) -> None:
    objects = helm.render({"networkPolicy": {"egressPorts": []}})

    assert {tuple(b["spec"]["policyTypes"]) for b in objects if b["kind"] == "NetworkPolicy"} == {
        ("Ingress",)
    }


@pytest.mark.parametrize(
    ("values", "expected"), [({}, ["monitoring"]), ({"scrapeNamespaces": ["a", "b"]}, ["a", "b"])], ids=str
)
def test_metrics_are_told_to_pods_of_these_namespaces_alone(
    helm: Helm, values: dict[str, Any], expected: list[str]
) -> None:
    objects = helm.render({"networkPolicy": values, **CLEANS_UP})

    within = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": expected}
    for name, port in (("agent", 9101), ("controller", 9100)):
        assert of_kind(objects, "NetworkPolicy", f"rekindle-{name}")["spec"]["ingress"] == [
            {
                "from": [{"namespaceSelector": {"matchExpressions": [within]}}],
                "ports": [{"port": port, "protocol": "TCP"}],
            }
        ]
    for name in ("cleanup", "test"):
        assert of_kind(objects, "NetworkPolicy", f"rekindle-{name}")["spec"]["ingress"] == []


def test_metrics_are_told_to_nobody_where_no_namespace_is_named(helm: Helm) -> None:
    objects = helm.render({"networkPolicy": {"scrapeNamespaces": []}, **CLEANS_UP})

    assert [b["spec"]["ingress"] for b in objects if b["kind"] == "NetworkPolicy"] == [[]] * 4


def open_ports(rules: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return sorted({(port["protocol"], port["port"]) for rule in rules for port in rule["ports"]})
