"""Reads the parts that the job objects of all frameworks have in common, as the API gives them: owners, pod
templates, conditions.

Only the parts that a decision or a patch needs are read. workloads/base.py makes a Gang of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from recover.k8s.pod_specs import HOSTNAME, Affinity, ConditionView, Mounts, PodSpec
from recover.model import Mount, Template, Terminal, Volume, VolumeKind

__all__ = ["queue_words", "template_of", "terminal_of", "volumes_of"]


_KINDS = {kind.value: kind for kind in VolumeKind}


def queue_words(parallelism: int, completions: int | None) -> str:
    """Returns why a batch/v1 Job is no gang, as a clause that follows the Job's name: its pods do not all
    live at once. Empty if they do."""
    if completions is None or completions <= parallelism:
        return ""
    return f"completes {completions} pods, {parallelism} at a time, so its pods are not one gang"


def template_of(spec: PodSpec, count: int = 0) -> Template:
    return Template(
        volumes=volumes_of(spec.volumes, msgspec.convert(spec.containers, list[Mounts])),
        security_context=spec.security_context,
        tolerations=tuple(spec.tolerations),
        image_pull_secrets=tuple(secret.name for secret in spec.image_pull_secrets),
        containers=tuple(spec.containers),
        affinity=spec.affinity,
        avoided=_avoided(msgspec.convert(spec.affinity, Affinity)),
        count=count,
        node_selector=spec.node_selector,
        priority_class=spec.priority_class_name,
    )


def volumes_of(volumes: Sequence[Mapping[str, Any]], containers: Sequence[Mounts]) -> tuple[Volume, ...]:
    """Returns the volumes, with the places where the containers mount them."""
    found = []
    mounts = [m for c in containers for m in c.volume_mounts]
    for volume in volumes:
        name = str(volume.get("name", ""))
        kind = next((_KINDS[key] for key in volume if key in _KINDS), VolumeKind.OTHER)
        source = volume.get(kind.value)
        places = {Mount(m.mount_path, m.sub_path, m.sub_path_expr) for m in mounts if m.name == name}
        found.append(
            Volume(
                name=name,
                kind=kind,
                source=source if isinstance(source, Mapping) else {},
                mounts=tuple(sorted(places)),
            )
        )
    return tuple(found)


def _avoided(affinity: Affinity) -> tuple[str, ...]:
    if affinity.node_affinity is None or affinity.node_affinity.required is None:
        return ()
    return tuple(
        sorted(
            {
                value
                for term in affinity.node_affinity.required.node_selector_terms
                for requirement in term.match_expressions
                if requirement.key == HOSTNAME and requirement.operator == "NotIn"
                for value in requirement.values
            }
        )
    )


def terminal_of(
    conditions: list[ConditionView], *, succeeded: Collection[str], failed: Collection[str]
) -> Terminal | None:
    for condition in conditions:
        if condition.status == "True" and (condition.type in succeeded or condition.type in failed):
            is_success = condition.type in succeeded
            return Terminal(is_success, condition.reason, condition.message, condition.changed_at)
    return None
