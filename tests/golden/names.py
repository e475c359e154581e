"""Renders everything that has a name for people: metrics, reasons, the values of fields, labels and
annotations, checks."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import generate_latest
from prometheus_client.metrics import MetricWrapperBase

from tests.golden import rooms

__all__ = ["keys", "metrics", "values"]


def metrics() -> Iterator[str]:
    for title, held in (("agent", rooms.AgentMetrics()), ("controller", rooms.ControllerMetrics())):
        yield f"==== {title}"
        yield from sorted(_metric(one) for one in vars(held).values() if isinstance(one, MetricWrapperBase))
        # The names of samples, which people use in queries.
        scraped = generate_latest(held.registry).decode().splitlines()
        yield from ("", f"==== {title}, as it is scraped before anything has happened")
        yield from (
            *sorted(line for line in scraped if not line.startswith("#") and "_created" not in line),
            "",
        )
    yield from _of_gpus()


def _of_gpus() -> Iterator[str]:
    yield "==== agent, of GPUs"
    yield from (f"{row.name} [{row.kind}] {{{', '.join(row.labels)}}}: {row.help}" for row in rooms.GPU_TABLE)


def _metric(metric: MetricWrapperBase) -> str:
    (family,) = metric.describe()
    bounds = getattr(metric, "_upper_bounds", ())
    buckets = f" buckets {', '.join(f'{bound:g}' for bound in bounds)}" if bounds else ""
    return (
        f"{family.name} [{family.type}] {{{', '.join(metric._labelnames)}}}{buckets}: {family.documentation}"
    )


def values() -> Iterator[str]:
    for title, enum in sorted(rooms.ENUMS.items(), key=lambda item: item[0].lower()):
        yield from (f"==== {title}", *sorted(str(member.value) for member in enum), "")
    yield "==== what a reason means | what to do"
    yield from sorted(f"{r.value}: {t.meaning} | {t.next_step}" for r, t in rooms.EXPLANATIONS.items())
    yield from ("", "==== what an Event tells")
    yield from sorted(f"{reason.value}: {told}" for reason, told in rooms.EVENT_EXPLANATIONS.items())
    for title, checks in rooms.CHECKS.items():
        yield from ("", f"==== checks of {title}: what is so when nothing is found")
        yield from sorted(f"{one.name}: {one.passed}" for one in checks)
    yield from ("", "==== checks of a repaired node | what each needs")
    yield from sorted(f"{one.name}: {one.proves} | {one.needs}" for one in rooms.NODE_CHECKS)
    yield from ("", "==== what an exit status means")
    for command, row in sorted(rooms.MEANINGS.items()):
        yield f"{command}: " + ", ".join(f"{int(status)} {said}" for status, said in sorted(row.items()))


def keys() -> Iterator[str]:
    for one in sorted(rooms.KEYS, key=lambda key: key.name):
        yield f"{one.name}: {', '.join(sorted(one.forms))} on {', '.join(sorted(one.on))}"
        yield f"  may hold {one.expected}; otherwise: {one.instead or 'nothing is told'}"
        yield f"  pattern {one.pattern or 'none'}"
    yield from ("", "==== written by Rekindle", *sorted(rooms.WRITTEN_BY_US))
