"""Time, logs and metrics: the edges that decisions must not reach for themselves."""

from __future__ import annotations

import sys

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from structlog.tracebacks import ExceptionDictTransformer

__all__ = ["Metrics", "configure_logs"]


class Metrics:
    """Every metric of the controller. docs/reference/metrics.md is generated from here."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.writes = Counter(
            "rekindle_writes",
            "API writes by what they do and how they ended (done, stale, unknown, refused, unfinished).",
            ["what", "outcome"],
            registry=self.registry,
        )
        self.writes_in_flight = Gauge(
            "rekindle_writes_in_flight", "API writes sent and not yet answered.", registry=self.registry
        )
        self.writes_waiting = Gauge(
            "rekindle_writes_waiting",
            "API writes that wait for their turn, by urgency (act, report, upkeep).",
            ["urgency"],
            registry=self.registry,
        )
        self.writes_throttled = Counter(
            "rekindle_writes_throttled",
            "API writes that the API server refused because it was overloaded.",
            registry=self.registry,
        )
        self.leader = Gauge(
            "rekindle_leader",
            "1 in the controller that holds the lease and writes, 0 in one that stands by.",
            registry=self.registry,
        )
        self.looks = Counter(
            "rekindle_looks", "Looks at the world, by loop.", ["loop"], registry=self.registry
        )
        self.look_seconds = Histogram(
            "rekindle_look_seconds",
            "Seconds that one decision took, by loop.",
            ["loop"],
            buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5),
            registry=self.registry,
        )
        self.errors = Counter(
            "rekindle_loop_errors",
            "Errors that a loop survived; each is a defect worth a report.",
            ["loop"],
            registry=self.registry,
        )
        self.incidents = Gauge(
            "rekindle_incidents_open", "Open incidents by fault class.", ["fault"], registry=self.registry
        )
        self.not_done = Gauge(
            "rekindle_acts_not_done",
            "What open incidents tell of as refused, or as what would have been done, by reason.",
            ["reason"],
            registry=self.registry,
        )
        self.recoveries = Gauge(
            "rekindle_recoveries", "Recoveries by phase.", ["phase"], registry=self.registry
        )
        self.recoveries_waiting = Gauge(
            "rekindle_recoveries_waiting",
            "Active recoveries that wait for something, by reason.",
            ["reason"],
            registry=self.registry,
        )
        self.phase_seconds = Gauge(
            "rekindle_recovery_phase_seconds",
            "Seconds that recoveries which are over spent in each phase, summed; with rekindle_recoveries it "
            "gives their mean.",
            ["phase"],
            registry=self.registry,
        )
        self.lost_steps = Gauge(
            "rekindle_lost_steps",
            "Steps that were made twice, summed over the recoveries that are kept.",
            registry=self.registry,
        )
        self.lost_gpu_seconds = Gauge(
            "rekindle_lost_gpu_seconds",
            "GPU-seconds without new progress, summed over the recoveries that are kept.",
            registry=self.registry,
        )
        self.given_up = Gauge(
            "rekindle_jobs_given_up",
            "Jobs whose last recovery was escalated to a person, and that have not gone on since, by reason.",
            ["reason"],
            registry=self.registry,
        )
        self.paused = Gauge(
            "rekindle_paused", "1 while people have paused Rekindle, else 0.", registry=self.registry
        )
        self.accelerated = Gauge(
            "rekindle_nodes_accelerated", "Nodes with accelerators.", registry=self.registry
        )
        self.quarantined = Gauge(
            "rekindle_nodes_quarantined", "Nodes taken out by Rekindle.", registry=self.registry
        )
        self.nodes_suspected = Gauge(
            "rekindle_nodes_suspected",
            "Nodes in service to which restarts prefer others, because their agent suspects them, by code of "
            "the finding.",
            ["code"],
            registry=self.registry,
        )
        self.nodes_blind = Gauge(
            "rekindle_nodes_blind",
            "Nodes with accelerators of which a source is not read; source `agent`: no agent reports at all.",
            ["source"],
            registry=self.registry,
        )
        self.nodes_for_people = Gauge(
            "rekindle_nodes_waiting_for_person",
            "Nodes that are out, or silent, until a person mends and releases them, by reason.",
            ["reason"],
            registry=self.registry,
        )
        self.repairs = Gauge(
            "rekindle_repairs", "Repairs of nodes by their phase.", ["phase"], registry=self.registry
        )
        self.repair_seconds = Gauge(
            "rekindle_repair_seconds",
            "Seconds from the begin of a repair to its end, summed over those that are over, by their phase; "
            "with rekindle_repairs it gives their mean.",
            ["phase"],
            registry=self.registry,
        )
        self.unreadable = Gauge(
            "rekindle_objects_unreadable",
            "API objects skipped because they cannot be read, by kind.",
            ["kind"],
            registry=self.registry,
        )


def configure_logs(level: str = "info") -> None:
    """JSON lines on stderr."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            # Without the frames' local variables: they would be the whole world, tenants' logs included.
            structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False)),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
