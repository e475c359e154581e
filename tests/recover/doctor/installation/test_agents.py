"""What the checks of an installation say of the agents: where none is, which are not ready or blind."""

from __future__ import annotations

from typing import Any

import msgspec

from detectors.wire.contract import NodeHealth, Source
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
    assert finding.what.startswith("1 node with accelerators has no agent")


def test_a_cluster_that_offers_no_accelerators_is_told() -> None:
    nodes = {name: node(name, accelerated=False) for name in ("n1", "n2")}

    assert only(changed(nodes=nodes)).what == "none of 2 nodes offers what counts as an accelerator"


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

    names = [f"n{number}" for number in range(1, 1001)]
    pods = [crashed(name) for name in names[:-1]] + [agent(names[-1], phase="Running")]
    seen = msgspec.structs.replace(healthy(1000), pods=(controller("c1"), *pods), health={})

    many, one = found(seen)

    assert many.what == (
        "999 agents are not ready, on n1, n10, n100, n101 and 995 more: "
        "CrashLoopBackOff: back-off 40s restarting agent-n1; before, it ended with 2 (Error)"
    )
    assert one.what.endswith("on n1000: its NodeHealth has not been made, which the controller does")


def test_an_agent_that_finds_no_place_is_told_once_and_by_its_node() -> None:
    unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no cpu"}
    waiting = agent("", phase="Pending", conditions=[unplaced])
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spec = msgspec.convert({"affinity": {"nodeAffinity": required}}, type(waiting.spec))
    pods = (controller("c1"), agent("n1"), msgspec.structs.replace(waiting, spec=spec))

    assert only(changed(pods=pods)).what == "1 agent is not ready, on n2: Unschedulable: no cpu"


def test_an_agent_whose_node_is_not_ready_is_not_sent_for_its_log() -> None:
    seen = changed(pods=(controller("c1"), agent("n1"), agent("n2", phase="Running")))
    nodes = {**seen.nodes, "n2": msgspec.structs.replace(node("n2"), ready=False)}

    finding = only(msgspec.structs.replace(seen, nodes=nodes))

    assert finding.what == "1 agent is not ready, on n2: the node is NotReady"


def test_a_source_that_was_switched_off_is_switched_on_again_by_its_setting() -> None:
    seen = blind(2, nvml="switched off by the setting nvml.enabled")

    (nvml,) = found(seen)

    assert nvml.fix.endswith(" --reuse-values --set settings.agent.nvml.enabled=true")


def test_a_thousand_blind_nodes_are_a_few_lines() -> None:
    seen = blind(1000, kmsg="/dev/kmsg: Operation not permitted", nvml="libnvidia-ml.so.1 on n@, pid @: none")

    kmsg, nvml = found(seen)

    assert (kmsg.name, kmsg.severity) == ("kmsg-blind", "fails")
    assert kmsg.what == "kernel log: not read on 1000 nodes of 1000: n1, n10, n100, n1000 and 996 more"
    assert (nvml.name, nvml.severity) == ("nvml-blind", "risks")
    assert nvml.where.value == "libnvidia-ml.so.1 on n1, pid 1: none"


def test_of_many_reasons_the_rest_is_counted() -> None:
    reasons = {f"n{number}": chr(ord("a") + number) * 3 for number in range(1, 9)}
    told = {name: health(name, pods=why) for name, why in reasons.items()}

    findings = found(msgspec.structs.replace(healthy(8), health=told))

    assert len(findings) == 6
    assert findings[-1].where.value == "3 further reasons"


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
    assert finding.what == "not all logs of pods are read on 1 node: n1"


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
    assert finding.what == f"2 agents do not use a row of your catalogue: {why}"


def test_agents_of_another_version_than_the_release() -> None:
    seen = healthy()
    old = {name: health(name, version="0.0.9") for name in seen.nodes}

    assert only(msgspec.structs.replace(seen, health=old)).what == (
        "2 agents are of version 0.0.9, and the release of 0.1.0: n1, n2"
    )
