"""Builds the patches that the stops and starts of all frameworks have in common: the mark, the environment,
nodes to avoid.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from detectors.wire.contract import key
from recover.api import GangRef, Requirement
from recover.k8s.bodies import builtins, merged, shortened
from recover.k8s.json_patch import Path, changes, expecting
from recover.k8s.limits import NAME_CHARS_MAX, is_object_name
from recover.k8s.pod_specs import HOSTNAME
from recover.model import Gang, Mark
from recover.model.actions import Patch
from recover.model.left_stopped import TOLD

__all__ = [
    "DELETE_JOB",
    "MARK",
    "REQUIRED",
    "START",
    "STOP",
    "asked_by_people",
    "asks_for_device",
    "avoiding",
    "changes_affinity",
    "containers_without_environment",
    "environment_name",
    "environment_of",
    "gang_patch",
    "lifted",
    "mark_of",
    "marked",
    "old_environment_of",
    "reading_environment",
    "reads_environment",
    "reads_old_environment",
    "recreated_job",
    "required_expressions",
    "required_terms",
    "requires_environment",
    "tested",
]

MARK = key("recovery")
"""Annotation that names the recovery and attempt that stopped or started the job last."""
START, STOP = "start-gang", "stop-gang"
"""Names of the patches that start and stop a gang."""
DELETE_JOB = "delete-job"
"""Name of the deletion of a job that Rekindle creates again."""
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_WEIGHT = 100
"""The largest weight that Kubernetes accepts."""
_Parts = tuple[str, str, tuple[str, ...]]


def mark_of(annotations: Mapping[str, str]) -> Mark | None:
    """Returns our mark on a job, or None. A mark that people have garbled counts as none: the next write
    replaces it. Anybody who may change the job may write the mark, so a mark with an impossible name of a
    Recovery counts as none, too."""
    try:
        mark = msgspec.json.decode(annotations.get(MARK, ""), type=Mark)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return mark if is_object_name(mark.recovery) else None


def gang_patch(gang: Gang, what: str, spec: dict[str, Any], mark: Mark) -> Patch:
    """Returns one patch with the change and the mark, for exactly the object that was seen."""
    alone = marked(gang, what, mark)
    return msgspec.structs.replace(alone, body={**alone.body, "spec": spec})


def marked(gang: Gang, what: str, mark: Mark) -> Patch:
    """Returns a patch with the mark alone."""
    annotation = msgspec.json.encode(mark).decode()
    return Patch(
        what=what,
        resource=gang.resource,
        namespace=gang.ref.namespace,
        name=gang.ref.name,
        uid=gang.ref.uid,
        version=gang.version,
        body={"metadata": {"annotations": {MARK: annotation}}},
    )


def tested(gang: Gang, patch: Patch, there: Collection[Path]) -> Patch:
    """Adds a JSON Patch with the same change, if tests of the gang's fields may replace its version. `there`
    contains the parts of its spec that exist."""
    if not gang.tests:
        return patch
    present: set[Path] = {("metadata",), ("spec",), *(("spec", *path) for path in there)}
    if gang.annotations:
        present.add(("metadata", "annotations"))
    operations = (*expecting(gang.tests), *changes(patch.body, present))
    return msgspec.structs.replace(patch, operations=operations)


def lifted(gang: Gang, spec: dict[str, Any]) -> Patch:
    """Returns the patch that removes what a start has put into the job, and the mark that remembers it.
    Requirements of recipes on the nodes stay for later starts, and so does their part of the mark. A job that
    is left stopped keeps its mark, which records that state."""
    assert gang.mark is not None, "without a mark there is nothing of ours"
    left = msgspec.structs.replace(gang.mark, avoided=(), suspected=())
    is_kept = bool(left.placed) or (left.did == TOLD and gang.suspended)
    annotation = msgspec.json.encode(left).decode() if is_kept else None
    return Patch(
        what="lift-start",
        resource=gang.resource,
        namespace=gang.ref.namespace,
        name=gang.ref.name,
        uid=gang.ref.uid,
        version=gang.version,
        body={"metadata": {"annotations": {MARK: annotation}}, **({"spec": spec} if spec else {})},
    )


def recreated_job(gang: Gang, patches: Iterable[Patch]) -> dict[str, Any]:
    """Returns the job as people wrote it, with the changes of a start."""
    changed: dict[str, Any] = msgspec.json.decode(gang.definition)
    for patch in patches:
        changed = merged(changed, patch.body)
    return changed


def environment_name(gang: Gang) -> str:
    """Returns the name of the ConfigMap that carries the environment of the next attempt to the gang's
    containers."""
    return environment_of(gang.ref)


def environment_of(gang: GangRef) -> str:
    """Returns the name of the job's ConfigMap. Jobs of several kinds may have the same name, so the name
    contains the kind."""
    return f"{shortened(gang.name, NAME_CHARS_MAX - 20)}-rekindle-{gang.kind.lower()}"


def old_environment_of(gang: GangRef) -> str:
    """Returns the ConfigMap's earlier name, without the kind. Older jobs read it."""
    return f"{shortened(gang.name, NAME_CHARS_MAX - len('-rekindle'))}-rekindle"


def reads_old_environment(gang: Gang) -> bool:
    """Whether some container of the templates reads the ConfigMap by its old name."""
    old = {"configMapRef": {"name": old_environment_of(gang.ref)}}
    containers: list[Mapping[str, Any]] = [c for t in gang.templates.values() for c in t.containers]
    return any(_same_map(e, old) for c in containers for e in c.get("envFrom") or [])


def reading_environment(containers: tuple[Mapping[str, Any], ...], gang: Gang) -> list[dict[str, Any]]:
    """Returns the containers, each reading our ConfigMap through an optional envFrom.

    A variable that the template sets itself has priority over envFrom: we never override what people wrote.
    """
    ours = {"configMapRef": {"name": environment_name(gang), "optional": True}}
    old = {"configMapRef": {"name": old_environment_of(gang.ref), "optional": True}}
    return [
        {
            **container,
            "envFrom": [
                *(
                    old if _same_map(e, old) else e
                    for e in container.get("envFrom", [])
                    if not _same_map(e, ours)
                ),
                ours,
            ],
        }
        for container in containers
    ]


def requires_environment(
    container: Mapping[str, Any], gang: GangRef, others: Collection[str] = ()
) -> tuple[str, ...]:
    """Returns our ConfigMaps, and those of the `others`, without which the container does not start. None
    exists before the first recovery of the job."""
    names = (environment_of(gang), old_environment_of(gang), *others)
    sources = [source.get("configMapRef") or {} for source in container.get("envFrom") or []]
    return tuple(
        source["name"] for source in sources if source.get("name") in names and not source.get("optional")
    )


def reads_environment(gang: Gang) -> bool:
    """Whether the templates let each rank read our ConfigMap. The templates do not show what admission adds
    to pods."""
    return not containers_without_environment(gang)


def containers_without_environment(gang: Gang) -> dict[str, tuple[str, ...]]:
    """Returns by template the names of a rank's containers that do not read our ConfigMap, by its present or
    its old name. Templates without such a container are left out. A rank's containers are those that request
    a device, or all containers of a template in which none does."""
    names = (environment_of(gang.ref), old_environment_of(gang.ref))
    ours = [{"configMapRef": {"name": name}} for name in names]
    lacking = {}
    for called, template in gang.templates.items():
        every: Sequence[Mapping[str, Any]] = template.containers
        ranks = [container for container in every if asks_for_device(container)] or every
        blind = [
            rank
            for rank in ranks
            if not any(_same_map(e, one) for e in rank.get("envFrom", []) for one in ours)
        ]
        if blind:
            lacking[called] = tuple(rank.get("name", "") for rank in blind)
    return lacking


def asks_for_device(container: Mapping[str, Any]) -> bool:
    """Whether the container requests a device: an extended resource, whose name has a domain, or a claim."""
    resources = container.get("resources", {})
    asked = {**resources.get("requests", {}), **resources.get("limits", {})}
    return bool(resources.get("claims")) or any("/" in name for name in asked)


def _same_map(source: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    return bool((source.get("configMapRef") or {}).get("name") == ours["configMapRef"]["name"])


def avoiding(affinity: Mapping[str, Any], gang: Gang, mark: Mark) -> dict[str, Any]:
    """Returns the affinity with the terms of the new mark in place of those of the mark before: excluded
    nodes, less preferred nodes, and the requirements of recipes on all nodes. Required terms are ORed, so our
    requirements go into each of them. Terms that people wrote stay."""
    before = set(gang.mark.avoided) if gang.mark else set()
    asked_before = [builtins(one) for one in gang.mark.placed] if gang.mark else []
    asked = [builtins(one) for one in mark.placed]
    result = _copy(affinity)
    node_affinity = result.setdefault("nodeAffinity", {})
    required = node_affinity.setdefault(REQUIRED, {})
    terms = required.setdefault("nodeSelectorTerms", []) or [{}]
    required["nodeSelectorTerms"] = terms
    for term in terms:
        expressions = term.get("matchExpressions", [])
        others = [e for e in expressions if not _excludes_hosts(e) and e not in asked_before]
        hosts = {v for e in expressions if _excludes_hosts(e) for v in e.get("values", [])}
        hosts = (hosts - before) | set(mark.avoided)
        if hosts:
            others.append({"key": HOSTNAME, "operator": "NotIn", "values": sorted(hosts)})
        term["matchExpressions"] = [*others, *(one for one in asked if one not in others)]
    # A term without any requirement matches no node at all.
    required["nodeSelectorTerms"] = [t for t in terms if t.get("matchExpressions") or t.get("matchFields")]
    if not required["nodeSelectorTerms"]:
        node_affinity[REQUIRED] = None
    _prefer_others(node_affinity, gang.mark.suspected if gang.mark else (), mark.suspected)
    return result


def _prefer_others(node_affinity: dict[str, Any], before: Sequence[str], now: Sequence[str]) -> None:
    """Replaces our preference. Only the exact preference that we added `before` is ours."""
    kept = [one for one in node_affinity.get(_PREFERRED) or () if not before or one != _preference(before)]
    if now:
        kept.append(_preference(now))
    if kept:
        node_affinity[_PREFERRED] = kept
    elif _PREFERRED in node_affinity:
        node_affinity[_PREFERRED] = None


def _preference(hosts: Sequence[str]) -> dict[str, Any]:
    others = {"key": HOSTNAME, "operator": "NotIn", "values": list(hosts)}
    return {"weight": _WEIGHT, "preference": {"matchExpressions": [others]}}


def asked_by_people(gang: Gang) -> list[Requirement]:
    """Returns the requirements on a node that every template's required node affinity has without us."""
    ours = gang.mark.placed if gang.mark else ()
    asked = [_asked(template.affinity) for template in gang.templates.values()]
    first = asked[0].items() if asked else ()
    everywhere = [one for parts, one in first if all(parts in others for others in asked)]
    return [one for one in everywhere if one not in ours]


def _asked(affinity: Mapping[str, Any]) -> dict[_Parts, Requirement]:
    """Returns the requirements that all terms contain, by their content, since there may be thousands.
    Requirements of people need not fit the limits of ours: 20 host names are no mistake."""
    terms = [{_parts(one): one for one in expressions} for expressions in required_expressions(affinity)]
    first = terms[0].items() if terms else ()
    return {
        parts: Requirement(key=one["key"], operator=one["operator"], values=one.get("values") or [])
        for parts, one in first
        if all(parts in term for term in terms)
    }


def _parts(expression: Mapping[str, Any]) -> _Parts:
    return expression["key"], expression["operator"], tuple(expression.get("values") or ())


def required_expressions(affinity: Mapping[str, Any]) -> list[list[Mapping[str, Any]]]:
    """Returns the expressions on labels of each term. A node must fulfil one of the terms."""
    return [term.get("matchExpressions") or [] for term in required_terms(affinity)]


def required_terms(affinity: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    required = (affinity.get("nodeAffinity") or {}).get(REQUIRED) or {}
    terms: list[Mapping[str, Any]] = required.get("nodeSelectorTerms") or []
    return terms


def changes_affinity(gang: Gang, mark: Mark) -> bool:
    """Whether the start has nodes to exclude, to prefer less or to require, or must undo such terms of an
    earlier start."""
    marks = [mark, gang.mark] if gang.mark else [mark]
    return any(one.avoided or one.placed or one.suspected for one in marks)


def _excludes_hosts(expression: Mapping[str, Any]) -> bool:
    return expression.get("key") == HOSTNAME and expression.get("operator") == "NotIn"


def _copy(value: Mapping[str, Any]) -> dict[str, Any]:
    copied: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return copied
