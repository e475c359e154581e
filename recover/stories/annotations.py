"""Annotations and labels that people wrote for us and that do not do what they were meant to. Pure.

Where they are acted upon, one that cannot be read falls back to its default and stops nothing. Here, for
`rekindle why`, the person who wrote it is told so. recover/stories/keys.py lists what may be written where.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from recover.model import Gang, NamespaceView, Node
from recover.stories.keys import KEYS, PREFIX, WRITTEN_BY_US, Form, Key, On, keys_of

__all__ = ["misread", "misread_on_job", "misread_on_node"]

_SHOWN_CHARS = 60


def misread_on_job(gang: Gang, namespace: NamespaceView | None) -> tuple[str, ...]:
    """One sentence for each annotation or label that does not do what it was meant to."""
    found = misread(On.JOB, gang.labels, gang.annotations)
    if namespace is not None:
        where = f" of the namespace {namespace.name}"
        found += misread(On.NAMESPACE, namespace.labels, namespace.annotations, where)
    return found


def misread_on_node(node: Node) -> tuple[str, ...]:
    return misread(On.NODE, node.labels, node.annotations)


def misread(
    on: On, labels: Mapping[str, str], annotations: Mapping[str, str], where: str = ""
) -> tuple[str, ...]:
    """Of one object; `where` is put behind the name, if it is not clear whose it is."""
    return (
        *_misread(on, Form.ANNOTATION, annotations, where),
        *_misread(on, Form.LABEL, labels, where),
    )


def _misread(on: On, form: Form, given: Mapping[str, str], where: str) -> list[str]:
    known = {one.name: one for one in keys_of(on, form)}
    found = []
    for name, value in sorted(given.items()):
        if not name.startswith(PREFIX) or name in WRITTEN_BY_US:
            continue
        one = known.get(name)
        if one is None:
            found.append(
                f"{form} {name}{where}: Rekindle reads no {form} of this name there{_meant(name, on)}"
            )
        elif not one.usable(value):
            shown = ascii(value if len(value) <= _SHOWN_CHARS else value[:_SHOWN_CHARS] + "...")
            found.append(f"{form} {name}{where}: {shown}: expected {one.expected}; now {one.instead}")
    return found


def _meant(name: str, on: On) -> str:
    """That name in the other form or on another kind of object; else the nearest, on the same kind of object
    if there is one."""
    same = sorted((one for one in KEYS if one.name == name), key=lambda one: on not in one.on)
    if same:
        return f"; did you mean {_called(same[0], on)}?"
    names = {one.name: one for one in KEYS}
    here = [one.name for one in KEYS if on in one.on]
    near = get_close_matches(name, here, n=1, cutoff=0.8) or get_close_matches(name, names, n=1, cutoff=0.8)
    return f"; did you mean {_called(names[near[0]], on)}?" if near else ""


def _called(one: Key, on: On) -> str:
    return f"the {one.forms[-1]} {one.name} of the {on if on in one.on else one.on[0]}"
