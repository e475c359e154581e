"""Tests the checks of an installation that concern the agents: which nodes have none, and which agents are
not ready or blind."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from detectors.wire.contract import NodeHealth, Source
from recover.policy.settings import DeviceReports, Signals
from recover.stories.words import SOURCES
from tests.facts import names
from tests.recover.doctor.installation.cases import (
    LABEL,
    agent,
    blind,
    changed,
    controller,
    found,
    health,
    healthy,
    node,
    only,
)


def test_a_node_whose_labels_no_agent_asks_for_is_told_with_its_own() -> None:
    bare = msgspec.structs.replace(node("n3"), labels={"os": "linux", "example.com/gpu": "h100"})
    seen = healthy()

    finding = only(msgspec.structs.replace(seen, nodes={**seen.nodes, "n3": bare}))

    assert finding.name == "nodes-without-agent-label"
    assert finding.fix.endswith(f"'agent.nodeLabels={{{LABEL},example.com/gpu}}'")


def test_a_node_that_an_agent_should_be_on_and_is_not() -> None:
    finding = only(changed(pods=(controller("c1"), agent("n1"))))

    assert finding.name == "nodes-without-agent"
    assert names(finding.what, 1, "n2")


def test_a_cluster_that_offers_no_accelerators_is_told() -> None:
    nodes = {name: node(name, accelerated=False) for name in ("n1", "n2")}

    finding = only(changed(nodes=nodes))

    assert finding.name == "no-accelerators"
    assert names(finding.what, 2)


def test_no_agent_is_wanted_on_a_node_without_accelerators() -> None:
    seen = healthy()

    assert (
        found(msgspec.structs.replace(seen, nodes={**seen.nodes, "cpu": node("cpu", accelerated=False)}))
        == []
    )


def test_agents_that_are_not_ready_are_told_by_their_reason() -> None:
    def crashed(on: str) -> Any:
        waiting = {"reason": "CrashLoopBackOff", "message": f"back-off 40s restarting agent-{on}"}
        ended = {"exitCode": 2, "reason": "Error"}
        return agent(
            on, containerStatuses=[{"state": {"waiting": waiting}, "lastState": {"terminated": ended}}]
        )

    on = [f"n{number}" for number in range(1, 1001)]
    pods = [crashed(name) for name in on[:-1]] + [agent(on[-1], phase="Running")]
    seen = msgspec.structs.replace(healthy(1000), pods=(controller("c1"), *pods), health={})

    many, one = found(seen)

    assert (many.name, one.name) == ("agents-not-ready", "agents-not-ready")
    assert names(many.what, 999, "n1", "n10", "n100", "n101", 995)
    assert names(many.what, "CrashLoopBackOff", "40s", "agent-n1", 2, "Error")
    assert names(one.what, "n1000", "NodeHealth")


def test_an_agent_that_finds_no_place_is_told_once_and_by_its_node() -> None:
    unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no cpu"}
    waiting = agent("", phase="Pending", conditions=[unplaced])
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spec = msgspec.convert({"affinity": {"nodeAffinity": required}}, type(waiting.spec))
    pods = (controller("c1"), agent("n1"), msgspec.structs.replace(waiting, spec=spec))

    finding = only(changed(pods=pods))
    assert finding.name == "agents-not-ready"
    assert names(finding.what, 1, "n2", "Unschedulable", "no cpu")


def test_an_agent_that_is_ready_and_has_written_nothing_is_told() -> None:
    seen = changed()
    (first, *_) = seen.health

    silent = only(msgspec.structs.replace(seen, health={k: v for k, v in seen.health.items() if k != first}))

    assert silent.name == "agents-not-reporting"
    assert names(silent.what, 1, first)


def test_an_agent_whose_node_is_not_ready_is_not_sent_for_its_log() -> None:
    seen = changed(pods=(controller("c1"), agent("n1"), agent("n2", phase="Running")))
    nodes = {**seen.nodes, "n2": msgspec.structs.replace(node("n2"), ready=False)}

    finding = only(msgspec.structs.replace(seen, nodes=nodes))

    assert finding.name == "agents-not-ready"
    assert names(finding.what, 1, "n2", "NotReady")


def test_a_source_that_was_switched_off_is_switched_on_again_by_its_setting() -> None:
    seen = blind(2, nvml="switched off by the setting nvml.enabled")

    (nvml,) = found(seen)

    assert names(nvml.fix, "helm upgrade", "--reuse-values", "settings.agent.nvml.enabled=true")


@pytest.mark.parametrize("source", [Source.FABRIC, Source.HOST])
def test_a_source_that_no_setting_can_mend_is_not_answered_with_its_switch(source: Source) -> None:
    """The switch would make the source blind for another reason, and then the answer would be to switch it on
    again."""
    (finding,) = found(blind(2, **{source: "no answer within 5 s: the firmware of an adapter may hang"}))

    assert finding.name == f"{source}-blind"
    assert "enabled=" not in finding.fix
    assert names(finding.fix, "kubectl", "logs agent-n1", "docs/runbooks/RekindleAgentsBlind.md")


def test_a_thousand_blind_nodes_are_a_few_lines() -> None:
    why = "libnvidia-ml.so.1 on n@, pid @: none"
    seen = blind(1000, kmsg="/dev/kmsg: Operation not permitted", nvml=why)

    kmsg, nvml = found(seen)

    assert (kmsg.name, kmsg.severity) == ("kmsg-blind", "fails")
    assert names(kmsg.what, SOURCES[Source.KMSG], 1000, "n1", "n10", "n100", "n1000", 996)
    assert (nvml.name, nvml.severity) == ("nvml-blind", "risks")
    assert nvml.where.value == why.replace("@", "1")


def test_of_many_reasons_the_rest_is_counted() -> None:
    reasons = {f"n{number}": chr(ord("a") + number) * 3 for number in range(1, 9)}
    told = {name: health(name, pods=why) for name, why in reasons.items()}

    findings = found(msgspec.structs.replace(healthy(8), health=told))

    assert len(findings) == 6
    assert names(findings[-1].where.value, 3)


def test_a_node_where_too_many_containers_run_is_told() -> None:
    told = health("n1")
    why = "more than 256 containers run: the logs of some pods without devices are not read"
    coverage = [
        msgspec.structs.replace(one, why=why if one.source is Source.LOGS else "")
        for one in told.status.coverage
    ]
    status = msgspec.structs.replace(told.status, coverage=coverage)
    crowded = msgspec.structs.replace(told, status=status)

    finding = only(changed(health={"n1": crowded, "n2": health("n2")}))

    assert (finding.name, finding.where.value) == ("logs-left-out", why)
    assert names(finding.what, 1, "n1")


def test_nvml_that_was_let_go_for_a_repair_is_no_finding() -> None:
    told = health("n1", nvml="let go for repair repair-1-reset-1")
    spec = msgspec.structs.replace(told.spec, hands_off="repair-1-reset-1")
    seen = healthy()

    assert (
        found(
            msgspec.structs.replace(
                seen, health={**seen.health, "n1": msgspec.structs.replace(told, spec=spec)}
            )
        )
        == []
    )


def test_a_row_of_the_users_catalogue_that_no_agent_uses_is_told_once() -> None:
    why = "/etc/rekindle/catalogue.toml: [[xid]] row 2 (code 31): field meaning: value (none): this field ..."

    def bad(name: str) -> NodeHealth:
        told = health(name)
        return msgspec.structs.replace(
            told, status=msgspec.structs.replace(told.status, catalogue_problems=[why])
        )

    finding = only(changed(health={name: bad(name) for name in ("n1", "n2")}))

    assert (finding.name, finding.severity) == ("catalogue-row-unused", "risks")
    assert names(finding.what, 2, why)


def test_agents_of_another_version_than_the_release() -> None:
    seen = healthy()
    old = {name: health(name, version="0.0.9") for name in seen.nodes}

    finding = only(msgspec.structs.replace(seen, health=old))

    assert finding.name == "agents-of-another-version"
    assert names(finding.what, 2, "0.0.9", "0.1.0", "n1", "n2")


@pytest.mark.parametrize(
    ("resource", "read", "told"),
    [
        ("huawei.com/Ascend910", DeviceReports(), "ascend"),
        ("huawei.com/Ascend910", DeviceReports(iluvatar=True), "ascend"),
        ("huawei.com/Ascend910", DeviceReports(ascend=True), ""),
        ("iluvatar.com/gpu", DeviceReports(), "iluvatar"),
        ("iluvatar.com/gpu", DeviceReports(iluvatar=True), ""),
        ("nvidia.com/gpu", DeviceReports(), ""),
    ],
)
def test_nodes_of_other_vendors_whose_plugins_reports_are_not_read_are_told(
    resource: str, read: DeviceReports, told: str
) -> None:
    seen = healthy()
    assert seen.settings is not None
    settings = msgspec.structs.replace(seen.settings, signals=Signals(reports=read))
    nodes = {name: msgspec.structs.replace(one, capacity={resource: 8}) for name, one in seen.nodes.items()}

    advice = found(msgspec.structs.replace(seen, nodes=nodes, settings=settings))

    assert [finding.name for finding in advice] == (["device-reports-not-read"] if told else [])
    for finding in advice:
        assert names(finding.what, 2, "n1", "n2")
        assert finding.fix.endswith(f"--set settings.controller.signals.reports.{told}=true")
