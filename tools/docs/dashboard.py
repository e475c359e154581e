"""Generates the Grafana dashboard of the chart, from one row for each panel. For generate.py.

Every controller reports the same figures about the cluster, including a controller that stands by. So the
queries take the maximum, and never a sum.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

__all__ = ["PANELS", "dashboard"]

_COLUMNS = 24
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_OVER = 'sum(max by (phase) (rekindle_recoveries{phase=~"Succeeded|Escalated|Failed"}))'


class Panel(msgspec.Struct, frozen=True):
    title: str
    queries: tuple[tuple[str, str], ...]
    """Expression and legend of each query."""
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 8
    height: int = 7


class Row(msgspec.Struct, frozen=True):
    title: str


PANELS: tuple[Row | Panel, ...] = (
    Row("Now"),
    Panel(
        "Jobs given up",
        (("sum(max by (reason) (rekindle_jobs_given_up)) or vector(0)", ""),),
        "stat",
        width=4,
        height=4,
    ),
    Panel(
        "Recoveries that wait",
        (("sum(max by (reason) (rekindle_recoveries_waiting)) or vector(0)", ""),),
        "stat",
        width=4,
        height=4,
    ),
    Panel("Nodes quarantined", (("max(rekindle_nodes_quarantined)", ""),), "stat", width=4, height=4),
    Panel(
        "Nodes that wait for a person",
        (("sum(max by (reason) (rekindle_nodes_waiting_for_person)) or vector(0)", ""),),
        "stat",
        width=4,
        height=4,
    ),
    Panel("Nodes with accelerators", (("max(rekindle_nodes_accelerated)", ""),), "stat", width=4, height=4),
    Panel("Controllers that lead", (("sum(rekindle_leader)", ""),), "stat", width=4, height=4),
    Row("Faults and recoveries"),
    Panel("Open incidents by fault", (("max by (fault) (rekindle_incidents_open)", "{{fault}}"),)),
    Panel("Recoveries, by phase", (("max by (phase) (rekindle_recoveries)", "{{phase}}"),)),
    Panel(
        "Recoveries that wait, by reason", (("max by (reason) (rekindle_recoveries_waiting)", "{{reason}}"),)
    ),
    Panel(
        "Mean time of a recovery in each phase",
        ((f"max by (phase) (rekindle_recovery_phase_seconds) / scalar({_OVER})", "{{phase}}"),),
        unit="s",
    ),
    Panel("Steps made twice", (("max(rekindle_lost_steps)", "all recoveries"),)),
    Panel(
        "GPU time without progress",
        (("max(rekindle_lost_gpu_seconds)", "all recoveries"),),
        unit="s",
    ),
    Row("Nodes and limits"),
    Panel(
        "Nodes out of service",
        (
            ("max(rekindle_nodes_quarantined)", "quarantined"),
            ("max by (reason) (rekindle_nodes_waiting_for_person)", "for a person: {{reason}}"),
        ),
    ),
    Panel("Repairs, by phase", (("max by (phase) (rekindle_repairs)", "{{phase}}"),)),
    Panel(
        "Actions that were not taken, by reason",
        (("max by (reason) (rekindle_actions_not_taken)", "{{reason}}"),),
    ),
    Row("Agents"),
    Panel(
        "Agents that reach the API server, and nodes that need an agent",
        (
            (
                'count(sum by (instance) (increase(rekindle_agent_api_calls_total{result="ok"}[15m])) > 0)',
                "agents",
            ),
            ("max(rekindle_nodes_accelerated)", "nodes with accelerators"),
        ),
    ),
    Panel(
        "Nodes that are not watched, by source", (("max by (source) (rekindle_nodes_blind)", "{{source}}"),)
    ),
    Panel("Open findings", (("sum(rekindle_agent_findings)", "findings"),)),
    Panel("Suspected nodes, by finding", (("max by (code) (rekindle_nodes_suspected)", "{{code}}"),)),
    Panel(
        "Kernel records that no agent could read",
        (
            ("sum by (node) (increase(rekindle_agent_kernel_records_lost_total[1h])) > 0", "{{node}} lost"),
            ("sum by (node) (increase(rekindle_agent_kernel_records_bad_total[1h])) > 0", "{{node}} bad"),
        ),
    ),
    Panel(
        "Logs that are not read",
        (
            ("sum by (node) (rekindle_agent_containers_left_out) > 0", "{{node}} containers"),
            ("sum by (node) (rate(rekindle_agent_log_bytes_skipped_total[5m])) > 0", "{{node}} bytes/s"),
        ),
    ),
    Row("GPUs (settings.agent.gpu_metrics.export)"),
    Panel(
        "Utilization of the GPUs of each node",
        (("avg by (node) (rekindle_gpu_utilization_ratio)", "{{node}}"),),
        unit="percentunit",
    ),
    Panel(
        "Pods with the idlest GPUs",
        (
            (
                "bottomk(10, avg by (namespace, pod) (rekindle_gpu_pod_utilization_ratio))",
                "{{namespace}}/{{pod}}",
            ),
        ),
        unit="percentunit",
    ),
    Panel(
        "GPU memory of pods",
        (
            (
                "topk(10, sum by (namespace, pod) (rekindle_gpu_pod_memory_used_bytes))",
                "{{namespace}}/{{pod}}",
            ),
        ),
        unit="bytes",
    ),
    Panel(
        "Hottest GPU of each node",
        (("max by (node) (rekindle_gpu_temperature_celsius)", "{{node}}"),),
        unit="celsius",
    ),
    Panel(
        "Power of each node's GPUs, of their limit",
        (
            (
                "sum by (node) (rekindle_gpu_power_watts) / sum by (node) (rekindle_gpu_power_limit_watts)",
                "{{node}}",
            ),
        ),
        unit="percentunit",
    ),
    Panel(
        "ECC errors in an hour, by kind",
        (("sum by (node, kind) (increase(rekindle_gpu_ecc_errors_total[1h])) > 0", "{{node}} {{kind}}"),),
    ),
    Row("Controller"),
    Panel(
        "Writes by outcome",
        (("sum by (outcome) (rate(rekindle_writes_total[5m]))", "{{outcome}}"),),
        unit="ops",
    ),
    Panel(
        "Slowest look in a hundred",
        (
            (
                "histogram_quantile(0.99, sum by (loop, le) (rate(rekindle_reconcile_seconds_bucket[5m])))",
                "{{loop}}",
            ),
        ),
        unit="s",
    ),
    Panel(
        "Trouble",
        (
            ("sum by (loop) (increase(rekindle_loop_errors_total[5m]))", "errors of {{loop}}"),
            ("sum(increase(rekindle_writes_throttled_total[5m]))", "writes throttled"),
            ("max by (kind) (rekindle_objects_unreadable) > 0", "{{kind}} unreadable"),
        ),
    ),
)


def dashboard() -> str:
    """Returns the JSON that Grafana imports."""
    whole = {
        "uid": "rekindle",
        "title": "Rekindle",
        "tags": ["rekindle", "gpu"],
        "editable": True,
        "schemaVersion": 39,
        "time": {"from": "now-24h", "to": "now"},
        "refresh": "1m",
        "templating": {
            "list": [
                {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
            ]
        },
        "panels": _laid_out(),
    }
    return json.dumps(whole, indent=1) + "\n"


def _laid_out() -> list[dict[str, Any]]:
    """Places the panels from left to right, in a new line if one is full, and below each row's title."""
    laid: list[dict[str, Any]] = []
    x = y = line = 0
    for number, panel in enumerate(PANELS, start=1):
        if isinstance(panel, Row) or x + panel.width > _COLUMNS:
            x, y, line = 0, y + line, 0
        if isinstance(panel, Row):
            place = {"x": 0, "y": y, "w": _COLUMNS, "h": 1}
            laid.append({"id": number, "type": "row", "title": panel.title, "gridPos": place, "panels": []})
            y += 1
            continue
        place = {"x": x, "y": y, "w": panel.width, "h": panel.height}
        laid.append({"id": number, **_panel(panel), "gridPos": place})
        x, line = x + panel.width, max(line, panel.height)
    return laid


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "type": panel.kind,
        "title": panel.title,
        "datasource": _DATASOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": "ABCDE"[number], "datasource": _DATASOURCE, "expr": expression, "legendFormat": legend}
            for number, (expression, legend) in enumerate(panel.queries)
        ],
    }
