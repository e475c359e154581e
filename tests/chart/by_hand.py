"""Finds the places in which a kind of job has to be named by hand and is missing: the chart's RBAC rules and
policies, which stay files that people read (docs/decisions/0025), and the texts for users about the kinds.

A place in the chart is reported with its file and line, and with the words to add there. A text is reported
with its file, and with the pattern that must match there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from recover.workloads import Workload

__all__ = ["FILES", "Place", "lacking_in_chart", "lacking_in_words", "texts"]

ROOT = Path(__file__).parents[2]
_CHART = "charts/rekindle/files"
_RIGHTS = f"{_CHART}/rbac/controller.yaml"
_HANDED_OVER = f"{_CHART}/policies/controller.yaml"
_ENVIRONMENT = f"{_CHART}/policies/environment.yaml"
_FENCE = f"{_CHART}/policies/fence.yaml"
_ANEW = f"{_CHART}/policies/fence_anew.yaml"
_JOBS = f"{_CHART}/policies/fence_jobs.yaml"

FILES = (_RIGHTS, _HANDED_OVER, _ENVIRONMENT, _FENCE, _ANEW, _JOBS)
"""Files of the chart that name kinds. `make docs` writes policies/warnings.yaml, which is not among them."""

_FENCE_JOBS = "rekindle-fence-jobs"
_OF_THE_SPEC = "the controller of Rekindle changes only suspend in the spec of a job"

Texts = Mapping[str, str]
"""Texts of files, by path from the root of the repository."""


class Place(msgspec.Struct, frozen=True):
    file: str
    first: int
    """First and last line, counted from 1."""
    last: int
    add: str

    def __str__(self) -> str:
        return f"{self.file}:{self.first}: add {self.add}"


def texts() -> dict[str, str]:
    return {name: (ROOT / name).read_text(encoding="utf-8") for name in FILES}


def lacking_in_chart(workload: Workload, files: Texts) -> list[Place]:
    """Returns the places in which the chart must name the kind and does not. Without them what the controller
    writes for its jobs is refused, or is not judged."""
    kind = workload.resource
    return [
        *_rights(workload, files[_RIGHTS]),
        *_rules(workload, files[_JOBS], _JOBS, (kind.plural, f"{kind.plural}/*")),
        *_rules(workload, files[_ANEW], _ANEW, (kind.plural,)),
        *(
            place
            for asked in (_names, _stops, _templates, _owners)
            for need in asked(workload)
            if (place := _of_item(need, files)) is not None
        ),
    ]


def lacking_in_words(workload: Workload) -> list[str]:
    """Returns the pages and files that must name the kind and do not, each with what it lacks."""
    kind = workload.resource.kind
    wanted = {
        "docs/environment.md": (f"`{kind.lower()}`", rf"(?m)^\| (?:\w+, )*{kind}\b"),
        "README.md": (rf"- Frameworks: .*\b{kind}s?\b",),
        "recover/api/reasons.py": (rf"Reason.UNSUPPORTED: Explanation\([^)]*\b{kind}\b",),
    }
    found = [
        f"{name}: nothing there matches {pattern!r}"
        for name, patterns in wanted.items()
        for pattern in patterns
        if not re.search(pattern, (ROOT / name).read_text(encoding="utf-8"))
    ]
    case = f"tests/recover/doctor/doctor_cases/{kind.lower()}.yaml"
    return [*found, *([] if (ROOT / case).exists() else [f"{case}: there is no such file"])]


class _Item(msgspec.Struct, frozen=True):
    """One item of a list in a policy, which is `- name: <item>` or the validation with that message, and a
    pattern of the words that the item must have."""

    file: str
    policy: str
    item: str
    words: str
    add: str


def _names(workload: Workload) -> Iterator[_Item]:
    """Yields the items that name the ConfigMap that resumed ranks read, <job>-rekindle-<kind>."""
    name = workload.resource.kind.lower()
    for file, policy, item in (
        (_HANDED_OVER, "rekindle-handed-over", "is-read-by-resumed-ranks"),
        (_FENCE, "rekindle-fence-configmaps", "isEnvironment"),
        (_JOBS, _FENCE_JOBS, "read"),
    ):
        yield _Item(file, policy, item, rf"[(|]{name}[|)]", f"`|{name}` to the kinds in `{item}`")


def _stops(workload: Workload) -> Iterator[_Item]:
    for field in workload.suspending(True):
        add = f"'{field}' to the fields that a stop changes"
        yield _Item(_JOBS, _FENCE_JOBS, _OF_THE_SPEC, f"'{field}'", add)
    if workload.patches_status:
        plural = f"'{workload.resource.plural}'"
        add = (
            f"{plural} to the kinds with 'UPDATE status', and the fields of its status to the validation "
            "with the message `... the status of a job ...`"
        )
        yield _Item(_JOBS, _FENCE_JOBS, "known", plural, add)


def _templates(workload: Workload) -> Iterator[_Item]:
    """Yields the items that name the pod templates, in policies about a job that is created again and about
    the changes of a start."""
    kind, path = workload.resource, workload.pod_templates
    field = path[1]
    if "*" in path and not workload.makes_jobs:
        item, words, add = "replicas", rf"\.\?{field}\b", f"`{field}`"
    else:
        item, words = "templates", rf"'{kind.plural}'.*\.\??{field}\b"
        add = f"'{kind.plural}' with its `{'.'.join(path)}`"
    yield _Item(_ANEW, "rekindle-fence-anew", item, words, f"{add} to the variable {item}")
    if workload.makes_jobs:
        return  # a start changes the templates of its Jobs
    yield _Item(_JOBS, _FENCE_JOBS, item, words, f"{add} to the variable {item}, before and after the change")
    add = f"'{field}' to the fields that a start changes"
    yield _Item(_JOBS, _FENCE_JOBS, _OF_THE_SPEC, f"'{field}'", add)


def _owners(workload: Workload) -> Iterator[_Item]:
    """Yields the items that name owners of pods."""
    kind, label = workload.resource, workload.pod_label
    if workload.makes_jobs:
        name, add = f"-rekindle-{kind.kind.lower()}'", f"the label {label} of the pods of its Jobs"
        yield _Item(_ENVIRONMENT, "rekindle-environment", "gang", re.escape(label), add)
        yield _Item(_ENVIRONMENT, "rekindle-environment", "map", f"{re.escape(label)}.*{name}", add)
    else:
        words, add = rf"'{kind.kind}'.*'{kind.group}/'", f"'{kind.kind}' of '{kind.group}/' to the owners"
        yield _Item(_FENCE, "rekindle-fence-pods", "isOfAJob", words, add)


def _of_item(need: _Item, files: Texts) -> Place | None:
    lines = files[need.file].splitlines()
    start = next(n for n, line in enumerate(lines) if line == f"  name: {need.policy}")
    first, last = next(
        (first, last)
        for first, last in _items(lines, start)
        if lines[first] == f"  - name: {need.item}" or f"message: {need.item}" in "".join(lines[first:last])
    )
    text = " ".join(line.strip() for line in lines[first:last] if "message: " not in line)
    if re.search(need.words, text):
        return None
    return Place(need.file, first + 1, last, need.add)


def _items(lines: list[str], start: int) -> Iterator[tuple[int, int]]:
    """Yields the first line, and the line after the last one, of each item of a list, from `start` to the
    policy's end."""
    end = next((n for n in range(start, len(lines)) if lines[n] == "---"), len(lines))
    heads = [n for n in range(start, end) if lines[n].startswith("  - ")]
    for first in heads:
        after = (n for n in range(first + 1, end) if not lines[n].startswith("    "))
        yield first, next(after, end)


def _rules(workload: Workload, text: str, file: str, wanted: tuple[str, ...]) -> Iterator[Place]:
    """Yields what the resourceRules of the first policy of the file lack."""
    kind, policy = workload.resource, next(yaml.safe_load_all(text))
    rules = policy["spec"]["matchConstraints"]["resourceRules"]
    if not any(kind.group in rule["apiGroups"] and {*wanted} <= {*rule["resources"]} for rule in rules):
        first = text.splitlines().index("    resourceRules:") + 1
        last = text.splitlines().index("  matchConditions:")
        rule = f"the rule of resources [{', '.join(wanted)}] of apiGroups [{kind.group}]"
        yield Place(file, first, last, rule)


def _rights(workload: Workload, text: str) -> Iterator[Place]:
    """Yields what the rules of the ClusterRole lack. A missing permission is reported by its verb and
    resource."""
    bodies: list[dict[str, Any]] = list(yaml.safe_load_all(text))
    (role,) = (one for one in bodies if one["kind"] == "ClusterRole")
    granted = {
        (verb, resource)
        for rule in role["rules"]
        if workload.resource.group in rule["apiGroups"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
    }
    missing = sorted(workload.permissions - granted)
    if missing:
        lines = text.splitlines()
        first = lines.index("rules:")
        told = ", ".join(f"{verb} {resource}" for verb, resource in missing)
        last = next(n for n in range(first, len(lines)) if lines[n] == "---")
        yield Place(
            _RIGHTS, first + 1, last, f"the permissions {told} of apiGroups [{workload.resource.group}]"
        )
