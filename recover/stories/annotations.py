"""Annotations and labels that people wrote for us and that do not do what they were meant to. Pure.

Where they are acted upon, one that cannot be read falls back to its default and stops nothing. Here, for
`rekindle why`, the person who wrote it is told so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from difflib import get_close_matches

import msgspec

from detectors.contract import key
from recover.checkpoints.annotation import REPAIR, REPAIR_EXPECTED, LocationError, parse_repair
from recover.checkpoints.annotation import parse as parse_location
from recover.consent import AUTO_RECOVERY, ON_TERMINAL, OptIn
from recover.durations import parse_s
from recover.model import Gang, Mode, NamespaceView, Node
from recover.nodehealths import HANG_TIMEOUT, STEP_TEMPLATE, usable_template
from recover.recipes.evidence import CUDA_RUNTIME
from recover.recipes.values import parse_version

__all__ = ["misread_on_job", "misread_on_node"]

_SHOWN_CHARS = 60
_PREFIX = key("")


class _Rule(msgspec.Struct, frozen=True):
    """What an annotation may hold, and what holds instead where it does not."""

    name: str
    usable: Callable[[str], object]
    expected: str
    instead: str


def _is_opt_in(text: str) -> bool:
    return text.strip().lower() in set(OptIn)


def _is_location(text: str) -> bool:
    try:
        parse_location(text)
    except LocationError:
        return False
    return True


def _is_repair(text: str) -> bool:
    try:
        parse_repair(text)
    except ValueError:
        return False
    return True


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _is_count(text: str) -> bool:
    return re.fullmatch(r"[1-9][0-9]{0,8}", text) is not None


_OPT_IN = _Rule(AUTO_RECOVERY, _is_opt_in, "enabled, observe or disabled", "it counts as observe")
_HOLD_UNTIL = _Rule(
    key("hold-until"), _is_time, "a time with its zone, as 2030-01-31T18:00:00Z", "the hold has no end"
)
_HOLD = frozenset({key("hold"), key("hold-reason")})
_SETTING = "the controller's setting holds"

_ON_JOB = (
    _OPT_IN,
    _Rule(
        key("checkpoint"),
        _is_location,
        "an absolute path in the container, optionally with ;format=<name>, as /ckpt;format=torch-dcp",
        "no checkpoint is verified, the framework's own logic decides",
    ),
    _Rule(REPAIR, _is_repair, REPAIR_EXPECTED, "nothing is changed beside the checkpoints"),
    _Rule(
        STEP_TEMPLATE,
        usable_template,
        'text with {step} once, at most 128 characters, as "step {step}/"',
        "only the common forms of a step are read",
    ),
    _Rule(
        HANG_TIMEOUT,
        lambda t: parse_s(t) is not None,
        "a duration as 20m or 1h30m, or off",
        "the default limit holds",
    ),
    _Rule(
        ON_TERMINAL,
        lambda t: t.strip().lower() in ("leave", "recreate"),
        "leave or recreate",
        "the job is not made anew",
    ),
    _Rule(
        CUDA_RUNTIME,
        lambda t: parse_version(t) is not None,
        "a version, as 12.4",
        "recipes do not know the image's CUDA version",
    ),
    _Rule(key("attempts-per-cause"), _is_count, "a whole number, at least 1", _SETTING),
    _Rule(key("max-recoveries"), _is_count, "a whole number, at least 1", _SETTING),
    _HOLD_UNTIL,
)
_JOB_NAMES = sorted({rule.name for rule in _ON_JOB} | _HOLD)
_ON_NAMESPACE = (
    _OPT_IN,
    _Rule(key("mode"), lambda t: t == Mode.OBSERVE, "observe", "the cluster's mode holds"),
    _HOLD_UNTIL,
)
_ON_NODE = (_HOLD_UNTIL,)
_OURS = frozenset(key(name) for name in ("recovery", "quarantined-by", "released-at", "scan-of"))


def misread_on_job(gang: Gang, namespace: NamespaceView | None) -> tuple[str, ...]:
    """One sentence for each annotation or label that does not do what it was meant to."""
    found = _misread(_ON_JOB, gang.annotations, "")
    found += _misread((_OPT_IN,), gang.labels, "", kind="label")
    if namespace is not None:
        where = f" of the namespace {namespace.name}"
        found += _misread(_ON_NAMESPACE, namespace.annotations, where)
        found += _misread((_OPT_IN,), namespace.labels, where, kind="label")
    return tuple(found)


def misread_on_node(node: Node) -> tuple[str, ...]:
    return tuple(_misread(_ON_NODE, node.annotations, ""))


def _misread(
    rules: tuple[_Rule, ...], given: Mapping[str, str], where: str, *, kind: str = "annotation"
) -> list[str]:
    known = {rule.name: rule for rule in rules}
    also = _HOLD | _OURS if kind == "annotation" else frozenset()
    found = []
    for name, value in sorted(given.items()):
        if not name.startswith(_PREFIX) or name in also:
            continue
        rule = known.get(name)
        if rule is None:
            near = get_close_matches(name, _JOB_NAMES, n=1, cutoff=0.8)
            hint = f"; did you mean the annotation {near[0]} of the job?" if near else ""
            found.append(f"{kind} {name}{where}: nothing is read by that name there{hint}")
        elif not rule.usable(value):
            shown = ascii(value if len(value) <= _SHOWN_CHARS else value[:_SHOWN_CHARS] + "...")
            found.append(f"{kind} {name}{where}: {shown}: expected {rule.expected}; now {rule.instead}")
    return found
