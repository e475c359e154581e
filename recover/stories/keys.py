"""The labels and annotations of `rekindle.dev/` that people write: on which objects, with which values. Pure.

The module that acts on a label or annotation reads it separately, and uses a default for a value that it
cannot use. Three readers use this list to explain such values to people: stories/annotations.py for one
object, `rekindle doctor` for a cluster, and the admission policy that warns while a manifest is applied.
docs/reference/labels.md explains each label and annotation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from enum import StrEnum

import msgspec

from detectors.wire.contract import key
from recover.checkpoints.annotation import (
    ANNOTATION,
    FORMATS,
    REPAIR,
    REPAIR_EXPECTED,
    LocationError,
    parse_repair,
)
from recover.checkpoints.annotation import parse as parse_location
from recover.k8s.durations import parse_s
from recover.model.modes import Mode
from recover.policy.consent import AUTO_RECOVERY, CHECKPOINT_ON_SIGTERM, MODE, ON_TERMINAL, OptIn
from recover.policy.step_words import HANG_TIMEOUT, STEP_TEMPLATE, usable_template
from recover.recipes.gang_evidence import CUDA_RUNTIME, VGPU_BASELINE
from recover.recipes.values import parse_version
from recover.triage.spare_node import SPARE

__all__ = ["KEYS", "NO_EFFECT", "PREFIX", "WRITTEN_BY_US", "Form", "Key", "On", "keys_of"]

PREFIX = key("")
NO_EFFECT = "the label or annotation has no effect"


class On(StrEnum):
    """The kinds of objects on which people write keys."""

    JOB = "job"
    NAMESPACE = "namespace"
    NODE = "node"


class Form(StrEnum):
    LABEL = "label"
    ANNOTATION = "annotation"


class Key(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """Name of the key, with the prefix."""
    on: tuple[On, ...]
    forms: tuple[Form, ...] = (Form.ANNOTATION,)
    usable: Callable[[str], object] = lambda _: True
    pattern: str = ""
    """A regular expression that RE2 and Python both accept, and that matches every usable value as a whole. A
    value that it matches may still be unusable. If it is empty, every value is usable."""
    expected: str = "any text"
    """The usable values, in words."""
    instead: str = ""
    """Rekindle's behaviour with a value that cannot be used, in words."""
    means: str = NO_EFFECT
    """The consequence of a value that cannot be used, in words, for the findings of `rekindle doctor`."""


def keys_of(on: On, form: Form) -> Iterator[Key]:
    return (one for one in KEYS if on in one.on and form in one.forms)


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
    return re.fullmatch(_COUNT, text) is not None


def _is_version(text: str) -> bool:
    return parse_version(text) is not None


_EVERYWHERE = (On.JOB, On.NAMESPACE, On.NODE)
_OPTION = rf";\s*(format\s*=\s*({'|'.join(FORMATS)})\s*|marker\s*=[^;]*|digests\s*=\s*check\s*)"
_REPAIRS = r"\s*(none|tracker|set-aside|)\s*"
_COUNT = "[1-9][0-9]{0,8}"
_VERSION = r"\s*v?[0-9]+(\.[0-9]+)*\s*"
_SETTING = "the controller's setting applies"

KEYS = (
    Key(
        name=AUTO_RECOVERY,
        on=(On.JOB, On.NAMESPACE),
        forms=(Form.LABEL, Form.ANNOTATION),
        usable=_is_opt_in,
        pattern=r"(?i)\s*(enabled|observe|disabled)\s*",
        expected="enabled, observe or disabled",
        instead="Rekindle treats the job as set to observe",
        means="the value counts as observe",
    ),
    Key(
        name=ANNOTATION,
        on=(On.JOB,),
        usable=_is_location,
        pattern=rf"\s*/[^;]*({_OPTION})*",
        expected="an absolute path in the container, optionally with ;format=<name>, for example "
        "/ckpt;format=torch-dcp",
        instead="no checkpoint is verified, and the framework chooses the checkpoint",
    ),
    Key(
        name=REPAIR,
        on=(On.JOB,),
        usable=_is_repair,
        pattern=f"{_REPAIRS}(,{_REPAIRS})*",
        expected=REPAIR_EXPECTED,
        instead="Rekindle changes nothing in the folder of the checkpoints",
    ),
    Key(
        name=STEP_TEMPLATE,
        on=(On.JOB,),
        usable=usable_template,
        pattern=r"(?s).*\{step\}.*",
        expected='text with {step} once, at most 128 characters, for example "step {step}/"',
        instead="Rekindle reads only the common forms of a step",
    ),
    Key(
        name=HANG_TIMEOUT,
        on=(On.JOB,),
        usable=lambda text: parse_s(text) is not None,
        pattern=r"(?i)\s*(off|0|([0-9]{1,9}(\.[0-9]{1,6})?(ms|s|m|h|d))+)\s*",
        expected="a duration such as 20m or 1h30m, or off",
        instead="Rekindle does not restart the job for missing steps, as with off",
        means="Rekindle does not notice a hang of the job",
    ),
    Key(
        name=CHECKPOINT_ON_SIGTERM,
        on=(On.JOB,),
        usable=lambda text: text.strip().lower() in ("true", "false"),
        pattern=r"(?i)\s*(true|false)\s*",
        expected="true or false",
        instead="Rekindle assumes that the job saves no checkpoint when it is stopped",
    ),
    Key(
        name=ON_TERMINAL,
        on=(On.JOB,),
        usable=lambda text: text.strip().lower() in ("leave", "recreate"),
        pattern=r"(?i)\s*(leave|recreate)\s*",
        expected="leave or recreate",
        instead="the default applies: leave",
    ),
    Key(
        name=CUDA_RUNTIME,
        on=(On.JOB,),
        usable=_is_version,
        pattern=_VERSION,
        expected="a version such as 12.4",
        instead="recipes do not know the image's CUDA version",
    ),
    Key(
        name=key("attempts-per-cause"),
        on=(On.JOB,),
        usable=_is_count,
        pattern=_COUNT,
        expected="a whole number, at least 1",
        instead=_SETTING,
    ),
    Key(
        name=key("max-recoveries"),
        on=(On.JOB,),
        usable=_is_count,
        pattern=_COUNT,
        expected="a whole number, at least 1",
        instead=_SETTING,
    ),
    Key(name=key("hold"), on=_EVERYWHERE),
    Key(name=key("hold-reason"), on=_EVERYWHERE),
    Key(
        name=key("hold-until"),
        on=_EVERYWHERE,
        usable=_is_time,
        pattern=r"[0-9]{4}.*(Z|[+-][0-9][0-9:.,]*)",
        expected="a time with its zone, for example 2030-01-31T18:00:00Z",
        instead="the hold has no end",
        means="Rekindle takes no action on the object until somebody removes the annotation",
    ),
    Key(
        name=MODE,
        on=(On.NAMESPACE,),
        usable=lambda text: text in set(Mode),
        pattern="|".join(Mode),
        expected="observe, recover or repair",
        instead="the cluster's mode applies",
    ),
    Key(
        name=key("managed"),
        on=(On.NODE,),
        forms=(Form.LABEL,),
        usable=lambda text: text in ("true", "false"),
        pattern="true|false",
        expected="true or false",
        instead="the node is managed",
    ),
    Key(name=SPARE, on=(On.NODE,), forms=(Form.LABEL,), expected="true or false"),
    Key(
        name=VGPU_BASELINE,
        on=(On.NODE,),
        forms=(Form.LABEL,),
        usable=_is_version,
        pattern=_VERSION,
        expected="a version such as 12.4",
        instead="recipes do not know for which CUDA version the GPU-sharing layer of the node was built",
    ),
)

WRITTEN_BY_US = frozenset(
    key(name)
    for name in (
        "avoided",
        "excluded",
        "health",
        "quarantined-by",
        "recovery",
        "released-at",
        "released-findings",
        "repair",
        "scan-of",
        "spare-for",
        "spare-kept",
    )
)
"""Keys that Rekindle writes. docs/reference/labels.md says on which objects Rekindle writes each of them. A
key of this list on an object is not a misspelt key of a person."""
