"""Checks whether Rekindle will see faults of the running job, and whether it reads the steps of the job.
Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from detectors.wire.contract import CoverageState, Source
from detectors.wire.training import PodProgress
from recover.doctor.blind_sources import UNSEEN
from recover.doctor.case import Case, Finding, Place, Severity
from recover.k8s.durations import parse_s
from recover.policy.step_words import HANG_TIMEOUT, STEP_TEMPLATE
from recover.stories.groups import largest
from recover.stories.words import SOURCES, ago, counted, some

__all__ = ["hang_limit", "seen", "steps"]

HANG_S_MIN = 60.0
"""Shortest limit that leaves a healthy training its pauses, for example for a checkpoint."""


def seen(case: Case) -> Iterator[Finding]:
    """Reports nodes of the job without a reporting agent, and sources that their agents cannot read."""
    nodes = sorted({pod.node for pod in case.pods if pod.node})
    unwatched = [node for node in nodes if node not in case.health]
    if unwatched:
        yield Finding(
            name="no-agent",
            severity=Severity.RISKS,
            what=f"no agent reports from {_of(unwatched, nodes)}",
            where=Place(f"NodeHealth {unwatched[0]}", "metadata.name"),
            means="Rekindle does not see faults of GPUs and hung ranks there; it sees only pods that end",
            fix=f"kubectl get pods -A --field-selector spec.nodeName={unwatched[0]} must list an agent",
        )
    for source in Source:
        blind = [
            (one.why, node)
            for node in nodes
            if node in case.health
            for one in case.health[node].status.coverage
            if one.source is source and one.state is CoverageState.BLIND
        ]
        for group in largest(blind):
            yield Finding(
                name="blind",
                severity=Severity.RISKS,
                what=f"agents do not read the source {SOURCES[source]} on {_of(group.names, nodes)}",
                where=Place(f"NodeHealth {group.names[0]}", f"status.coverage[{source}]", group.why),
                means=UNSEEN[source],
                fix="rekindle doctor  # names the setting by which the agents read the source",
            )


def _of(names: Sequence[str], nodes: Sequence[str]) -> str:
    return f"{counted(len(names), 'node')} of {len(nodes)}: {some(names, 4)}"


def hang_limit(case: Case) -> Iterator[Finding]:
    """Reports a limit of the job for a hang that a healthy pause may exceed."""
    value = case.gang.annotations.get(HANG_TIMEOUT, "")
    limit_s = parse_s(value)
    if limit_s and limit_s < HANG_S_MIN:
        yield Finding(
            name="hang-timeout-short",
            severity=Severity.RISKS,
            what=f"the job counts as hung when it makes no step for {limit_s:g} s",
            where=case.at(f"metadata.annotations[{HANG_TIMEOUT}]", value),
            means="Rekindle stops and restarts a healthy job whose checkpoint or evaluation takes longer",
            fix="a time longer than every pause of a healthy run, as in "
            f"{case.set_annotation(HANG_TIMEOUT, '20m')}; or no annotation, for the usual limits",
        )


def steps(case: Case) -> Iterator[Finding]:
    """Reports a job of which no agent has read a step. Steps of one rank are enough: in some jobs only rank 0
    prints."""
    uids = {pod.uid for pod in case.pods}
    if any(told.first_step is not None for told in _progress(case) if told.uid in uids):
        return
    created = min((pod.created for pod in case.pods if pod.created is not None), default=None)
    since = f", the first of which was created {ago(created, case.now)}" if created is not None else ""
    yield Finding(
        name="no-steps",
        severity=Severity.RISKS,
        what="no agent has read a step so far in the logs of the job's "
        f"{counted(len(case.pods), 'pod')}{since}",
        where=case.at(f"metadata.annotations[{STEP_TEMPLATE}]", case.gang.annotations.get(STEP_TEMPLATE, "")),
        means="Rekindle does not notice a hang and does not count lost steps, and only a newer "
        "checkpoint proves a recovery",
        fix=case.set_annotation(STEP_TEMPLATE, "step {step}/")
        + ", with the words of the job's log; {step} stands for the number",
    )


def _progress(case: Case) -> Iterator[PodProgress]:
    for health in case.health.values():
        yield from health.status.pods
