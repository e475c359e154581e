"""Makes jobs that are all right, one of each kind, with single changes, for test_doctor_*.py."""

from __future__ import annotations

import copy
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import yaml

from recover.doctor.case import Case, Finding
from recover.doctor.manifest import cases
from recover.doctor.report import examined
from recover.model import NamespaceView, Node, Pod, PodPhase
from recover.model.modes import Mode
from recover.recipes.load import built_in
from tests.recover.stories.why_cases import NOW, health

MANIFESTS = {
    path.stem: yaml.safe_load(path.read_text()) for path in sorted(Path(__file__).parent.glob("*.yaml"))
}
RECIPES = built_in()
PODS = {
    "job": ("spec", "template", "spec"),
    "jobset": ("spec", "replicatedJobs", 0, "template", "spec", "template", "spec"),
    "pytorchjob": ("spec", "pytorchReplicaSpecs", "Worker", "template", "spec"),
    "paddlejob": ("spec", "paddleReplicaSpecs", "Worker", "template", "spec"),
    "tfjob": ("spec", "tfReplicaSpecs", "Worker", "template", "spec"),
}
"""Kind of job -> path to the spec of its pods."""
Change = tuple[tuple[str | int, ...], Any]
"""A path in the manifest, and the value to set at this path. None removes the value."""


def case(kind: str, *changes: Change, **around: Any) -> Case:
    """Returns the case of a job of this kind with these changes, as the doctor reads it from a manifest."""
    document = copy.deepcopy(MANIFESTS[kind])
    for (*path, last), value in changes:
        place = document
        for step in path:
            place = place.setdefault(step, {}) if isinstance(place, dict) else place[step]
        if value is None:
            del place[last]
        else:
            place[last] = value
    ((found,), notes) = cases([document], "job.yaml", RECIPES, NOW)
    assert notes == []
    return msgspec.structs.replace(found, **around)


def in_cluster(kind: str, *changes: Change, **around: Any) -> Case:
    """Returns the same case in a cluster in which nothing is wrong."""
    pods = tuple(pod(number) for number in range(4))
    told = health()
    status = msgspec.structs.replace(
        told.status, pods=[msgspec.structs.replace(told.status.pods[0], first_step=1)]
    )
    good: dict[str, Any] = {
        "is_file": False,
        "unread": {},
        "mode": Mode.RECOVER,
        "mode_kept_in": "rekindle-system/rekindle-state",
        "namespace": NamespaceView("team"),
        "pods": pods,
        "nodes": {"node-3": node("node-3")},
        "health": {"node-3": msgspec.structs.replace(told, status=status)},
        "claim": "team/ckpt",
        "access_modes": ("ReadWriteMany",),
        "adds_environment": False,
    }
    return case(kind, *changes, **(good | around))


def pod(number: int, **changes: Any) -> Pod:
    running = Pod(
        namespace="team",
        name=f"llm-{number}",
        uid=f"p{number}",
        version="1",
        node="node-3",
        phase=PodPhase.RUNNING,
        created=NOW - timedelta(minutes=20),
    )
    return msgspec.structs.replace(running, **changes)


def node(name: str, **labels: str) -> Node:
    return Node(name=name, uid=name, version="1", labels={k.replace("__", "/"): v for k, v in labels.items()})


def found(job: Case) -> dict[str, Finding]:
    return {finding.name: finding for finding in examined(job).findings}


def annotated(name: str, value: str | None) -> Change:
    return ("metadata", "annotations", f"rekindle.dev/{name}"), value


LABEL = ("metadata", "labels", "rekindle.dev/auto-recovery")
QUEUE = ("metadata", "labels", "kueue.x-k8s.io/queue-name")
PAST = "2020-01-01T00:00:00Z"
RECREATES, LEAVES = annotated("on-terminal", "recreate"), annotated("on-terminal", "leave")
EXISTS = [{"operator": "Exists"}]


def spec(*path: str, value: Any) -> Change:
    return ("spec", *path), value


def of_pod(kind: str, field: str, value: Any) -> Change:
    return (*PODS[kind], field), value


def of_container(kind: str, field: str, value: Any) -> Change:
    return (*PODS[kind], "containers", 0, field), value


def volume(**source: Any) -> Change:
    return of_pod("job", "volumes", [{"name": "ckpt", **source}])


def policy(kind: str, value: str) -> Change:
    return spec(f"{kind}ReplicaSpecs", "Worker", "restartPolicy", value=value)


def rule(action: str, **codes: Any) -> Change:
    """Returns a change that adds this rule as the second rule of a Job's podFailurePolicy."""
    return spec(
        "podFailurePolicy", value={"rules": [{"action": "Ignore"}, {"action": action, "onExitCodes": codes}]}
    )
