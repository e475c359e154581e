"""Whether faults of the running job will be seen, and its steps are read. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from detectors.wire.contract import CoverageState, Source
from detectors.wire.training import PodProgress
from recover.doctor.case import Case, Finding, Place, Severity
from recover.policy.step_words import STEP_TEMPLATE
from recover.stories.groups import largest
from recover.stories.words import SOURCES, ago, counted, some

__all__ = ["seen", "steps"]


def seen(case: Case) -> Iterator[Finding]:
    """Of the nodes on which it runs: an agent reports, and is blind nowhere."""
    nodes = sorted({pod.node for pod in case.pods if pod.node})
    unwatched = [node for node in nodes if node not in case.health]
    if unwatched:
        yield Finding(
            name="no-agent",
            severity=Severity.RISKS,
            what=f"no agent reports for {_of(unwatched, nodes)}",
            where=Place(f"NodeHealth {unwatched[0]}", "metadata.name"),
            means="faults of its GPUs and hung ranks are not seen there; only that pods end is",
            fix=f"kubectl get pods -A --field-selector spec.nodeName={unwatched[0]}: an agent must be there",
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
                what=f"{SOURCES[source]} is not read on {_of(group.names, nodes)}",
                where=Place(f"NodeHealth {group.names[0]}", f"status.coverage[{source}]", group.why),
                means="what only that source tells is not seen, and nothing is blamed for lack of it",
                fix=f"kubectl describe nodehealth {group.names[0]}",
            )


def _of(names: Sequence[str], nodes: Sequence[str]) -> str:
    return f"{counted(len(names), 'node')} of {len(nodes)}: {some(names, 4)}"


def steps(case: Case) -> Iterator[Finding]:
    """At least one rank's. One is enough: some print by rank 0 only."""
    uids = {pod.uid for pod in case.pods}
    if any(told.first_step is not None for told in _progress(case) if told.uid in uids):
        return
    created = min((pod.created for pod in case.pods if pod.created is not None), default=None)
    since = f", the first of which came {ago(created, case.now)}" if created is not None else ""
    yield Finding(
        name="no-steps",
        severity=Severity.RISKS,
        what=f"no step was read so far in the logs of its {counted(len(case.pods), 'pod')}{since}",
        where=case.at(f"metadata.annotations[{STEP_TEMPLATE}]", case.gang.annotations.get(STEP_TEMPLATE, "")),
        means="a hang is not noticed, lost steps not counted, and only a newer checkpoint proves a resume",
        fix=case.set_annotation(STEP_TEMPLATE, "step {step}/")
        + ", as its log words it; {step} stands for the number",
    )


def _progress(case: Case) -> Iterator[PodProgress]:
    for health in case.health.values():
        yield from health.status.pods
