"""Defines the agent's metrics, in a separate registry. Each is one row of `TABLE`; docs are generated from
it."""

from __future__ import annotations

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

__all__ = ["TABLE", "Metric", "Metrics"]


class Metric(msgspec.Struct, frozen=True):
    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


TABLE = (
    Metric(
        "rekindle_agent_kernel_records_total",
        "counter",
        "Records of the kernel log that the agent has read, of any facility.",
    ),
    Metric(
        "rekindle_agent_kernel_records_lost_total",
        "counter",
        "Records of the kernel log that were lost by an overrun, or cut.",
    ),
    Metric(
        "rekindle_agent_kernel_records_bad_total",
        "counter",
        "Records of the kernel log that the agent could not parse.",
    ),
    Metric("rekindle_agent_findings", "gauge", "Findings that are open."),
    Metric("rekindle_agent_log_bytes_total", "counter", "Bytes of pod logs that the agent has read."),
    Metric(
        "rekindle_agent_log_bytes_skipped_total",
        "counter",
        "Bytes of pod logs that the agent has skipped because more than logs.backlog_bytes_max were unread.",
    ),
    Metric(
        "rekindle_log_signature_total",
        "counter",
        "Lines of pod logs since the start of the agent that match a log template of this recipe. A match is "
        "a sign of the known issue, and no proof. The number does not include lines with values that "
        "contradict the issue, for example an out-of-memory error while the memory is really full.",
        ("signature",),
    ),
    Metric("rekindle_agent_containers_followed", "gauge", "Containers whose log the agent reads."),
    Metric(
        "rekindle_agent_containers_left_out",
        "gauge",
        "Running containers whose log the agent does not read, because more than logs.containers_max run.",
    ),
    Metric(
        "rekindle_agent_source_covered",
        "gauge",
        "1 while the agent reads a source, 0 while the source is blind.",
        ("source",),
    ),
    Metric(
        "rekindle_agent_api_calls_total",
        "counter",
        "Calls to the API server: kind write or ask (a read of the spec); result ok, lost, or the "
        "HTTP status.",
        ("kind", "result"),
    ),
    Metric(
        "rekindle_agent_loop_stall_seconds_max",
        "gauge",
        "Longest delay of the agent's loop.",
    ),
)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        made = {row.name: _make(row, self.registry) for row in TABLE}
        counter = {name: metric for name, metric in made.items() if isinstance(metric, Counter)}
        gauge = {name: metric for name, metric in made.items() if isinstance(metric, Gauge)}
        self.kernel_records = counter["rekindle_agent_kernel_records_total"]
        self.kernel_records_lost = counter["rekindle_agent_kernel_records_lost_total"]
        self.kernel_records_bad = counter["rekindle_agent_kernel_records_bad_total"]
        self.findings = gauge["rekindle_agent_findings"]
        self.log_bytes = counter["rekindle_agent_log_bytes_total"]
        self.log_bytes_skipped = counter["rekindle_agent_log_bytes_skipped_total"]
        self.log_signatures = counter["rekindle_log_signature_total"]
        self.containers_followed = gauge["rekindle_agent_containers_followed"]
        self.containers_left_out = gauge["rekindle_agent_containers_left_out"]
        self.source_covered = gauge["rekindle_agent_source_covered"]
        self.api_calls = counter["rekindle_agent_api_calls_total"]
        self.loop_stall_s_max = gauge["rekindle_agent_loop_stall_seconds_max"]

    def text(self) -> bytes:
        """Returns the metrics in the exposition format of a scrape."""
        return generate_latest(self.registry)


def _make(row: Metric, registry: CollectorRegistry) -> Counter | Gauge:
    type_ = Counter if row.kind == "counter" else Gauge
    return type_(row.name, row.help, row.labels, registry=registry)
