"""Finds known issues of workloads that Rekindle does not change, so that their owners learn what to change.
Pure.

Such workloads are Deployments and other owners outside the gang kinds, and gangs that Rekindle may not touch.
plan.py uses this module beside diagnose/. The result is an Incident and an Event with the exact change, and
never a write to the workload.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from detectors.text.log_template import Line, line_of
from detectors.text.sizes import parse_size
from detectors.wire.contract import NodeHealth
from detectors.wire.training import PodProgress
from recover.api import GangRef
from recover.api.reasons import Reason
from recover.api.recipe_spec import Recipe
from recover.diagnose.caught import each
from recover.diagnose.diagnosis import fingerprint
from recover.k8s.bodies import regarding, shortened
from recover.model import Node, Pod, World
from recover.model.actions import Failure
from recover.model.containers import training
from recover.recipes.gang_evidence import lines_of, of_container
from recover.recipes.match import Evidence, Matched, match, templates_of
from recover.recipes.templates import fill
from recover.recipes.values import parse_version
from recover.triage.guard import Allowed, Denied, may_touch

__all__ = ["Advice", "advise"]

_ALIKE_MAX = 4
"""Number of pods of one owner with the same issues that are examined. A thousand replicas show the same
issue."""


class Advice(msgspec.Struct, frozen=True):
    """One known issue of one owner. `name` is the name of the Incident, and is the same at every
    reconcile."""

    name: str
    recipe: Recipe
    owner: GangRef
    pod: Pod
    at: datetime
    summary: str
    words: str
    reason: Reason
    why_not: str


def advise(
    world: World, reports: Mapping[str, NodeHealth], now: datetime
) -> tuple[list[Advice], list[Failure]]:
    """Returns one advice for each recipe and owner, for the first pod that shows the issue, from the
    `reports` of agents by node name."""
    told, failures = each(
        _showing(world, reports),
        lambda one: regarding("v1", "Pod", one[2].name, one[2].uid, one[2].namespace),
        lambda one: list(_of_pod(world, *one, now)),
    )
    found: dict[str, Advice] = {}
    for advice in (one for of_pod in told for one in of_pod):
        found.setdefault(advice.name, advice)
    return [found[name] for name in sorted(found)], failures


def _showing(world: World, reports: Mapping[str, NodeHealth]) -> Iterator[tuple[Node, PodProgress, Pod]]:
    """Yields the pods that show a known issue, but only a few of the pods that are alike (`_ALIKE_MAX`)."""
    asked: Counter[tuple[str, frozenset[str]]] = Counter()
    for name, health in reports.items():
        node = world.nodes.get(name)
        for progress in health.status.pods:
            if not progress.known_lines:
                continue
            issues = frozenset(line.signature for line in progress.known_lines if line.issue)
            if node is None or not issues:
                continue
            for uid, pod in _pods(world, node, progress):
                asked[uid, issues] += 1
                if asked[uid, issues] <= _ALIKE_MAX:
                    yield node, progress, pod


def _pods(world: World, node: Node, progress: PodProgress) -> Iterator[tuple[str, Pod]]:
    """Yields the uid of the owner or gang, and the pod. Yields nothing for a pod that the API server no
    longer has."""
    for uid in world.gangs_on.get(node.name, ()):
        pod = world.pods_of.get(uid, {}).get(progress.uid)
        if pod is not None:
            yield uid, pod


def _of_pod(world: World, node: Node, progress: PodProgress, pod: Pod, now: datetime) -> Iterator[Advice]:
    gang = world.gangs.get(pod.owner_uid)
    if gang is None and pod.outsider is not None:
        owner = pod.outsider.owner
        no = Denied(
            Reason.UNSUPPORTED, f"Rekindle does not restart jobs of the kind of {_called(pod, owner)}"
        )
        yield from _fitting(world, node, progress, pod, owner, pod.outsider.containers, {}, no)
    elif gang is not None and gang.ref.namespace == pod.namespace:  # the pod's owner can be forged
        verdict = may_touch(world, gang, now)
        if not isinstance(verdict, Allowed):
            containers = [one for t in gang.templates.values() for one in training(t.containers)]
            yield from _fitting(world, node, progress, pod, gang.ref, containers, gang.annotations, verdict)


def _fitting(
    world: World,
    node: Node,
    progress: PodProgress,
    pod: Pod,
    owner: GangRef,
    containers: Sequence[Mapping[str, object]],
    annotations: Mapping[str, str],
    no: Denied,
) -> Iterator[Advice]:
    seen = Evidence(
        lines=tuple(lines_of([progress])),
        signals=frozenset([progress.first_error.code] if progress.first_error else []),
    )
    known = [
        of_container(
            one,
            seen,
            node,
            kind=owner.kind,
            annotations=annotations,
            free_bytes=progress.free_device_bytes,
        )
        for one in containers
    ]
    lines = [(line_of(line.text), line.at) for line in progress.known_lines]
    for recipe in world.recipes.values():
        at = _shown_at(recipe, lines)
        if at is None:
            continue
        answers = (match(recipe, evidence) for evidence in known)
        fitting = next((answer for answer in answers if isinstance(answer, Matched)), None)
        if fitting is not None:
            yield _advice(fitting, at, pod, owner, no)


def _shown_at(recipe: Recipe, lines: Sequence[tuple[Line, datetime]]) -> datetime | None:
    """Returns the time of the first line that shows the issue. Without such a line nothing proves that this
    workload has failed: the settings of a workload alone are no issue. This check comes first, because a
    thousand replicas may show the same issue."""
    templates = list(templates_of(recipe))
    return next((at for line, at in lines if any(one.find(line) is not None for one in templates)), None)


def _advice(fitting: Matched, at: datetime, pod: Pod, owner: GangRef, no: Denied) -> Advice:
    recipe = fitting.recipe
    variables = ", ".join(f"{name}={value}" for name, value in recipe.change.env.items())
    advice = fill(recipe.change.advise, _figures(fitting.captured)) or f"Set {variables} in the template."
    return Advice(
        name=f"{shortened(owner.name, 180)}-known-issue-{fingerprint(owner.uid, recipe.name)}",
        recipe=recipe,
        owner=owner,
        pod=pod,
        at=at,
        summary=f"{_called(pod, owner)}: {recipe.title} ({recipe.name}, seen in {pod.name})",
        words=advice,
        reason=no.reason,
        why_not=no.message,
    )


def _figures(captured: Mapping[str, str]) -> dict[str, str]:
    """Returns the captured values that an Incident may show. All tenants read Incidents, so an Incident has
    no text of a log; versions and sizes are allowed."""
    return {
        name: value
        for name, value in captured.items()
        if parse_version(value) is not None or parse_size(value) is not None
    }


def _called(pod: Pod, owner: GangRef) -> str:
    """Returns the name of the owner. A ReplicaSet has the name that people know, the name of its
    Deployment."""
    of_pods = pod.labels.get("pod-template-hash", "")
    if owner.kind == "ReplicaSet" and of_pods and owner.name.endswith(f"-{of_pods}"):
        return f"Deployment {owner.namespace}/{owner.name.removesuffix(f'-{of_pods}')}"
    return str(owner)
