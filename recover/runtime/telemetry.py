"""Defines the controller's metrics and configures its logs. Pure decisions must use neither."""

from __future__ import annotations

import sys
from functools import partial

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from structlog.tracebacks import ExceptionDictTransformer

__all__ = ["Metrics", "configure_logs"]


class Metrics:
    """Every metric of the controller. docs/reference/metrics.md is generated from here."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self.writes = counter(
            "rekindle_writes",
            "API writes, by their purpose and outcome (done, stale, unknown, refused, unfinished).",
            ["what", "outcome"],
        )
        self.writes_in_flight = gauge(
            "rekindle_writes_in_flight", "API writes that are sent and not yet answered."
        )
        self.writes_waiting = gauge(
            "rekindle_writes_waiting",
            "API writes that wait for their turn, by urgency (act, alarm, report, upkeep).",
            ["urgency"],
        )
        self.writes_throttled = counter(
            "rekindle_writes_throttled",
            "API writes that the API server refused because the API server was overloaded.",
        )
        self.leader = gauge(
            "rekindle_leader", "1 in the controller that leads, 0 in a controller that stands by."
        )
        self.reconciles = counter("rekindle_reconciles", "Reconciles, by loop.", ["loop"])
        self.reconcile_seconds = Histogram(
            "rekindle_reconcile_seconds",
            "Duration of one reconcile in seconds, by loop.",
            ["loop"],
            buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5),
            registry=registry,
        )
        self.errors = counter(
            "rekindle_loop_errors",
            "Errors of reconciles, by loop. Each error is a defect: please report it.",
            ["loop"],
        )
        self.incidents = gauge("rekindle_incidents_open", "Open Incidents, by fault class.", ["fault"])
        self.not_done = gauge(
            "rekindle_actions_not_taken",
            "Actions that open Incidents record as refused, or as not taken because of the mode, by reason.",
            ["reason"],
        )
        self.recoveries = gauge("rekindle_recoveries", "Recoveries, by phase.", ["phase"])
        self.recoveries_waiting = gauge(
            "rekindle_recoveries_waiting", "Active recoveries that wait, by reason.", ["reason"]
        )
        self.phase_seconds = gauge(
            "rekindle_recovery_phase_seconds",
            "Sum of the seconds that ended recoveries spent in each phase. Divide by "
            "rekindle_recoveries for the mean.",
            ["phase"],
        )
        self.lost_steps = gauge(
            "rekindle_lost_steps",
            "Sum of the steps that jobs made twice, over all Recovery objects that exist.",
        )
        self.lost_gpu_seconds = gauge(
            "rekindle_lost_gpu_seconds",
            "Sum of the GPU-seconds without new steps, over all Recovery objects that exist.",
        )
        self.given_up = gauge(
            "rekindle_jobs_given_up",
            "Jobs whose last recovery needs a person, and that have not continued since then, by reason.",
            ["reason"],
        )
        self.paused = gauge("rekindle_paused", "1 while people have paused Rekindle, else 0.")
        self.accelerated = gauge("rekindle_nodes_accelerated", "Nodes with accelerators.")
        self.quarantined = gauge("rekindle_nodes_quarantined", "Nodes that Rekindle has put into quarantine.")
        self.nodes_suspected = gauge(
            "rekindle_nodes_suspected",
            "Suspected nodes in service, by code of the finding. Restarts prefer other nodes.",
            ["code"],
        )
        self.nodes_blind = gauge(
            "rekindle_nodes_blind",
            "Nodes with accelerators whose agent cannot read a source, by source. Source `agent`: "
            "no agent reports from the node.",
            ["source"],
        )
        self.nodes_for_people = gauge(
            "rekindle_nodes_waiting_for_person",
            "Nodes that are in quarantine, or NotReady, until a person repairs them, by reason.",
            ["reason"],
        )
        self.repairs = gauge("rekindle_repairs", "Repairs of nodes, by phase.", ["phase"])
        self.repair_seconds = gauge(
            "rekindle_repair_seconds",
            "Sum of the seconds from the start to the end of ended repairs, by phase. Divide by "
            "rekindle_repairs for the mean.",
            ["phase"],
        )
        self.unreadable = gauge(
            "rekindle_objects_unreadable",
            "API objects that the controller skips because it cannot read them, by kind.",
            ["kind"],
        )


def configure_logs(level: str = "info") -> None:
    """Writes JSON lines to stderr."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            # No local variables of the frames: they would contain the whole World, tenants' logs included.
            structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False)),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
