"""Builds the commands that stories propose: complete, with every name filled in. Pure."""

from __future__ import annotations

import shlex

from recover.api import GangRef
from recover.model import Gang
from recover.policy.consent import AUTO_RECOVERY, OptIn

__all__ = [
    "UNHOLD",
    "annotate",
    "cordon",
    "enabled_by",
    "hold",
    "hold_node",
    "name_of",
    "promote",
    "release",
    "release_node",
    "target_of",
    "undo",
    "why",
    "why_node",
]

UNHOLD = "rekindle.dev/hold- rekindle.dev/hold-until- rekindle.dev/hold-reason-"
"""Arguments of kubectl annotate that end the hold on a namespace, since `rekindle release` does not support
namespaces."""


def promote(namespace: str) -> str:
    """Returns the command that changes the mode to recover. `namespace` is the namespace of the release."""
    return f"helm upgrade rekindle charts/rekindle -n {namespace} --reuse-values --set mode=recover"


def target_of(ref: GangRef) -> str:
    """Returns the job in kubectl's notation."""
    return f"{ref.kind.lower()} -n {ref.namespace} {ref.name}"


def name_of(ref: GangRef) -> str:
    """Returns the job in the notation of `rekindle why` and `rekindle doctor`."""
    return f"-n {ref.namespace} {ref.kind.lower()}/{ref.name}"


def why(ref: GangRef) -> str:
    return f"rekindle why {name_of(ref)}"


def hold(ref: GangRef) -> str:
    return f"rekindle hold {name_of(ref)}"


def hold_node(name: str) -> str:
    return f"rekindle hold node/{name}"


def release(ref: GangRef) -> str:
    """Returns the command that ends the hold on the job."""
    return f"rekindle release {name_of(ref)}"


def release_node(name: str) -> str:
    """Returns the command that ends the hold on the node."""
    return f"rekindle release node/{name}"


def why_node(name: str) -> str:
    return f"rekindle why node/{name}"


def annotate(ref: GangRef, name: str, value: str) -> str:
    return f"kubectl annotate {target_of(ref)} {shlex.quote(f'{name}={value}')} --overwrite"


def cordon(node: str) -> str:
    return f"kubectl cordon {node}"


def enabled_by(ref: GangRef, gang: Gang | None) -> tuple[str, ...]:
    """Returns the commands that give consent for the job. If label and annotation disagree, the more careful
    value counts, so the commands set each one that has another value."""
    labels = gang.labels if gang is not None else {}
    annotations = gang.annotations if gang is not None else {}
    commands = [
        f"kubectl {verb} {target_of(ref)} {AUTO_RECOVERY}=enabled --overwrite"
        for verb, said in (("label", labels), ("annotate", annotations))
        if AUTO_RECOVERY in said and said[AUTO_RECOVERY].strip().lower() != OptIn.ENABLED
    ]
    return tuple(commands) or (annotate(ref, AUTO_RECOVERY, OptIn.ENABLED),)


def undo(incident: str) -> str:
    """Returns the command for the dry run of an undo, which comes first."""
    return f"rekindle undo {incident}"
