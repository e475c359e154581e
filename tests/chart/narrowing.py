"""Finds what a new CustomResourceDefinition removes that an earlier one allowed: an object that was written
for the earlier definition may be refused, or lose a field. Anything that is added, loosened or described
differently does not count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["narrowed", "narrowed_schema"]

_UPPER = ("maxLength", "maxItems", "maxProperties", "maximum")
_LOWER = ("minLength", "minItems", "minProperties", "minimum")
_EXACT = ("pattern", "format", "x-kubernetes-list-type", "x-kubernetes-list-map-keys")
_KEEPS = "x-kubernetes-preserve-unknown-fields"
_RULES = "x-kubernetes-validations"
_INNER = frozenset({"properties", "items", "additionalProperties"})
_COMPARED = {
    *_UPPER,
    *_LOWER,
    *_EXACT,
    *_INNER,
    _KEEPS,
    _RULES,
    "type",
    "enum",
    "required",
    "default",
    "nullable",
}
_SAYS_NOTHING = {"description", "title", "example"}


def narrowed(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yields one line for each loss. `old` and `new` are definitions with one name."""
    name = old["metadata"]["name"]
    before, after = old["spec"], new["spec"]
    for key in ("group", "scope"):
        if before[key] != after[key]:
            yield f"{name}: {key} was {before[key]}, is {after[key]}"
    for key, value in before["names"].items():
        is_list = isinstance(value, list)
        kept = set(value) <= set(after["names"].get(key, [])) if is_list else value == after["names"].get(key)
        if not kept:
            yield f"{name}: names.{key} was {value}, is {after['names'].get(key)}"
    versions = {version["name"]: version for version in after["versions"]}
    for version in before["versions"]:
        place = f"{name} {version['name']}"
        there = versions.get(version["name"])
        if there is None:
            yield f"{place}: removed"
            continue
        for key in ("served", "storage"):
            if version[key] and not there[key]:
                yield f"{place}: no longer {key}"
        for part in sorted(version.get("subresources", {}).keys() - there.get("subresources", {}).keys()):
            yield f"{place}: subresource {part} removed"
        schemas = (one["schema"]["openAPIV3Schema"] for one in (version, there))
        yield from narrowed_schema(*schemas, place)


def narrowed_schema(old: Mapping[str, Any], new: Mapping[str, Any], place: str) -> Iterator[str]:
    """Yields the same for one schema and the schemas in it; `place` is the path of the schema."""
    for key in sorted(new.keys() - _COMPARED - _SAYS_NOTHING):
        yield f"{place}: {key} is a word that this comparison does not know"
    yield from _types(old, new, place)
    yield from _limits(old, new, place)
    yield from _objects(old, new, place)
    if "items" in old and "items" in new:
        yield from narrowed_schema(old["items"], new["items"], f"{place}[]")


def _types(old: Mapping[str, Any], new: Mapping[str, Any], place: str) -> Iterator[str]:
    before, after = old.get("type"), new.get("type")
    if after is not None and before != after and (before, after) != ("integer", "number"):
        yield f"{place}: type was {before}, is {after}"
    for key in ("nullable", _KEEPS):
        if old.get(key) and not new.get(key):
            yield f"{place}: {key} removed"
    if "default" in old and old["default"] != new.get("default"):
        yield f"{place}: default was {old['default']}, is {new.get('default')}"
    if "enum" in new:
        lost = [value for value in old["enum"] if value not in new["enum"]] if "enum" in old else None
        if lost is None:
            yield f"{place}: took any value, takes {new['enum']}"
        for value in lost or ():
            yield f"{place}: value {value} removed"


def _limits(old: Mapping[str, Any], new: Mapping[str, Any], place: str) -> Iterator[str]:
    for key in _UPPER:
        if key in new and (key not in old or new[key] < old[key]):
            yield f"{place}: {key} was {old.get(key, 'absent')}, is {new[key]}"
    for key in _LOWER:
        least = 0 if key != "minimum" else None  # no length is below 0
        before = old.get(key, least)
        if key in new and (before is None or new[key] > before):
            yield f"{place}: {key} was {old.get(key, 'absent')}, is {new[key]}"
    for key in _EXACT:
        if key in new and new[key] != old.get(key):
            yield f"{place}: {key} was {old.get(key, 'absent')}, is {new[key]}"
    known = {_demand(rule) for rule in old.get(_RULES, [])}
    for rule in new.get(_RULES, []):
        if _demand(rule) not in known:
            yield f"{place}: new rule, {_demand(rule)}"


def _demand(rule: Mapping[str, str]) -> str:
    """Returns the rule's message, which says what the rule demands. The expression may grow with each new
    field that it counts."""
    return rule.get("message", rule["rule"])


def _objects(old: Mapping[str, Any], new: Mapping[str, Any], place: str) -> Iterator[str]:
    before, after = old.get("properties", {}), new.get("properties", {})
    takes_any = bool(new.get(_KEEPS) or new.get("additionalProperties"))
    for name, schema in before.items():
        if name in after:
            yield from narrowed_schema(schema, after[name], f"{place}.{name}")
        elif not takes_any:
            yield f"{place}.{name}: removed"
    for name in new.get("required", []):
        if name not in old.get("required", []) and "default" not in after.get(name, {}):
            yield f"{place}.{name}: is required"
    inner, now = old.get("additionalProperties"), new.get("additionalProperties")
    if inner and not (now or new.get(_KEEPS)):
        yield f"{place}: takes no more names of one's own"
    elif isinstance(inner, dict) and isinstance(now, dict):
        yield from narrowed_schema(inner, now, f"{place}{{}}")
