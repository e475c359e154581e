"""Finds labels and annotations that people wrote for Rekindle and that do not have the effect that people
wanted. Pure.

The code that acts on a label or annotation uses a default for a value that cannot be read, and stops nothing.
This module tells the person who wrote the value, in `rekindle why`. recover/stories/keys.py lists what people
may write where.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

import msgspec

from recover.model import Gang, NamespaceView, Node
from recover.stories.keys import KEYS, NO_EFFECT, PREFIX, WRITTEN_BY_US, Form, Key, On, keys_of

__all__ = ["Misread", "misread", "misread_on_job", "misread_on_node", "misreadings", "misreadings_on_job"]

_MISTAKEN_PREFIXES = ("rekindle.io", "rekindle.ai", "rekindle.com", "rekindle")
_SHOWN_CHARS = 60
_REFERENCE = "docs/reference/labels.md"
_AN = {Form.LABEL: "a label", Form.ANNOTATION: "an annotation"}


class Misread(msgspec.Struct, frozen=True):
    text: str
    """One sentence that says why the key does not have the wanted effect."""
    fix: str
    meant: str = ""
    """The name that the person probably meant, if the name or place of the key is the reason why it has no
    effect."""
    means: str = NO_EFFECT
    """The effect of the key as it is, in words."""


def misread_on_job(gang: Gang, namespace: NamespaceView | None) -> tuple[str, ...]:
    """Returns one sentence for each annotation or label that does not have the wanted effect."""
    return tuple(one.text for one in misreadings_on_job(gang, namespace))


def misreadings_on_job(gang: Gang, namespace: NamespaceView | None) -> tuple[Misread, ...]:
    found = misreadings(On.JOB, gang.labels, gang.annotations)
    if namespace is not None:
        where = f" of the namespace {namespace.name}"
        found += misreadings(On.NAMESPACE, namespace.labels, namespace.annotations, where)
    return found


def misread_on_node(node: Node) -> tuple[str, ...]:
    return misread(On.NODE, node.labels, node.annotations)


def misread(
    on: On, labels: Mapping[str, str], annotations: Mapping[str, str], where: str = ""
) -> tuple[str, ...]:
    """Returns one sentence for each key that does not have the wanted effect. `where` is added after
    the name of the key if the key is on another object than the one about which the person asked."""
    return tuple(one.text for one in misreadings(on, labels, annotations, where))


def misreadings(
    on: On, labels: Mapping[str, str], annotations: Mapping[str, str], where: str = ""
) -> tuple[Misread, ...]:
    """Returns the keys of one object that Rekindle cannot use, with what to write instead. If the object also
    has the key that the person probably meant, the fix is to remove the unusable key."""
    given = {Form.ANNOTATION: annotations, Form.LABEL: labels}
    read = {one.name for form, named in given.items() for one in keys_of(on, form) if one.name in named}
    return tuple(
        msgspec.structs.replace(one, fix=f"remove the {form} {name}") if one.meant in read else one
        for form, named in given.items()
        for name, one in _misread(on, form, named, where)
    )


def _misread(on: On, form: Form, given: Mapping[str, str], where: str) -> Iterator[tuple[str, Misread]]:
    """Yields the keys of one form that Rekindle cannot use, by their names."""
    known = {one.name: one for one in keys_of(on, form)}
    for name, value in sorted(given.items()):
        called = f"{form} {name}{where}"
        if (ours := _of_other_prefix(name)) is not None:
            yield (
                name,
                Misread(
                    f"{called}: Rekindle reads only names that begin with {PREFIX}",
                    f"rename {name} to {ours}",
                    ours,
                ),
            )
            continue
        if not name.startswith(PREFIX) or name in WRITTEN_BY_US:
            continue
        one = known.get(name)
        if one is None:
            meant = _meant(name, on)
            text = f"{called}: Rekindle reads no {form} of this name there"
            if meant is None:
                yield name, Misread(text, f"remove {name}; {_REFERENCE} lists every name")
            elif meant.name == name and on in meant.on:
                other = f"{_an(meant)} of the {on}"
                yield (
                    name,
                    Misread(
                        f"{called}: this is {_AN[form]}, and Rekindle reads {other}",
                        f"write {name} as {other}",
                        name,
                    ),
                )
            else:
                there = f"{_an(meant, form)} {meant.name} of the {on if on in meant.on else meant.on[0]}"
                if meant.name == name:
                    fix = f"remove {name} from the {on}; write it as {_an(meant, form)} of the {meant.on[0]}"
                elif on in meant.on:
                    fix = f"rename {name} to {meant.name}"
                else:
                    place = f"{_an(meant, form)} of the {meant.on[0]}"
                    fix = f"remove {name} from the {on}; write {meant.name} as {place}"
                yield name, Misread(f"{text}; did you mean the {there.partition(' ')[2]}?", fix, meant.name)
        elif not one.usable(value):
            shown = ascii(value if len(value) <= _SHOWN_CHARS else value[:_SHOWN_CHARS] + "...")
            yield (
                name,
                Misread(
                    f"{called}: {shown}: expected {one.expected}; {one.instead}",
                    f"{name}: write {one.expected}",
                    means=one.means,
                ),
            )


def _of_other_prefix(name: str) -> str | None:
    """Returns Rekindle's name of a key whose prefix people mistake for Rekindle's; None for any other prefix,
    which belongs to somebody else."""
    prefix, _, rest = name.partition("/")
    ours = f"{PREFIX}{rest}"
    return ours if prefix in _MISTAKEN_PREFIXES and any(one.name == ours for one in KEYS) else None


def _meant(name: str, on: On) -> Key | None:
    """Returns the key of that name in the other form or on another kind of object; otherwise the key with the
    nearest name, on the same kind of object if there is one. The prefix alone
    makes no name near."""
    same = sorted((one for one in KEYS if one.name == name), key=lambda one: on not in one.on)
    if same:
        return same[0]
    names = {one.name: one for one in KEYS}
    here = [one.name for one in KEYS if on in one.on]
    rest = name.removeprefix(PREFIX)
    near = get_close_matches(name, here, n=1, cutoff=0.8)
    if near and get_close_matches(rest, [near[0].removeprefix(PREFIX)], cutoff=0.5):
        return names[near[0]]
    bare = {one.removeprefix(PREFIX): one for one in names}
    far = get_close_matches(rest, bare, n=1, cutoff=0.8)
    return names[bare[far[0]]] if far else None


def _an(one: Key, form: Form | None = None) -> str:
    """Returns "a label" or "an annotation": the given form, if the key has it."""
    return _AN[form if form in one.forms else one.forms[-1]]
