"""Turns plain data (TOML, JSON) into structs, and reports exactly what is wrong if that fails.

Settings, catalogues, recipes, manifests and reports of repair steps are read in this way. A message names
file, row, field, value and what was expected.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

__all__ = ["BadValueError", "bad_value", "convert", "shown"]

T = TypeVar("T")

_PATH = re.compile(r" - at `\$([^`]*)`$")
_MISSING = re.compile(r"^Object missing required field `([^`]*)`")
_UNKNOWN = re.compile(r"^Object contains unknown field `([^`]*)`")
_GOT = re.compile(r"got `([a-z]+)`$")
_KEY = re.compile(r" - at `key` in `\$([^`]*)`$")
_NO_CHOICE = re.compile(r"^Invalid enum value '(.*)'$", re.DOTALL)
_KINDS = {
    str: "str",
    int: "int",
    float: "float",
    bool: "bool",
    list: "array",
    dict: "object",
    type(None): "null",
}
_VALUE_CHARS_MAX = 80


class BadValueError(ValueError):
    """A value that does not fit its field."""

    def __init__(self, *, file: str, where: str, field: str, value: str, expected: str) -> None:
        place = ": ".join(part for part in (file, where) if part)
        super().__init__(f"{place}: field {field or '(all)'}: value {value}: {expected}")
        self.file = file
        self.where = where
        self.field = field
        self.value = value
        self.expected = expected


def convert(data: Any, type_: type[T], *, file: str, where: str = "") -> T:
    """Converts data. Raises `BadValueError`; `where` names the row or section of `file`."""
    try:
        return msgspec.convert(data, type_)
    except msgspec.ValidationError as error:
        field, value, expected = _explain(str(error), data)
        if expected.startswith("invalid enum value"):
            expected = _choices(type_, field) or expected
        raise BadValueError(file=file, where=where, field=field, value=value, expected=expected) from error


def bad_value(error: msgspec.ValidationError, data: Any, *, file: str, where: str = "") -> BadValueError:
    """Returns the error for a struct that was created elsewhere from this data."""
    field, value, expected = _explain(str(error), data)
    return BadValueError(file=file, where=where, field=field, value=value, expected=expected)


def _explain(message: str, data: Any) -> tuple[str, str, str]:
    if of_key := _KEY.search(message):
        path, text = of_key.group(1).lstrip("."), message[: of_key.start()]
        return path, shown(_lookup(data, path)), f"a name in it: {text[:1].lower()}{text[1:]}"
    at = _PATH.search(message)
    path = at.group(1).lstrip(".") if at else ""
    text = (message[: at.start()] if at else message).replace(" | null`", "`")
    if missing := _MISSING.match(text):
        return _join(path, missing.group(1)), "(none)", "this field is required"
    if unknown := _UNKNOWN.match(text):
        name = _join(path, unknown.group(1))
        return name, shown(_lookup(data, name)), "no such field; check its spelling"
    field, value = _entry(data, path, text)
    return field, shown(value), text[:1].lower() + text[1:]


def _entry(data: Any, path: str, text: str) -> tuple[str, Any]:
    """Returns the field and its value. msgspec writes `[...]` for any entry of a mapping, so this takes the
    first entry with the kind or value that the message says it got."""
    head, is_entry, rest = path.partition("[...]")
    holder = _lookup(data, head) if head else data
    if not is_entry:
        return path, holder
    got, no_choice = _GOT.search(text), _NO_CHOICE.match(text)
    for key, inner in holder.items() if isinstance(holder, dict) else ():
        field, value = _entry(inner, rest.lstrip("."), text)
        is_kind = got is not None and _KINDS.get(type(value)) == got.group(1)
        if is_kind or (no_choice is not None and value == no_choice.group(1)):
            return f"{head}[{key}]{'.' if field else ''}{field}", value
    return path, None


def _choices(type_: Any, path: str) -> str:
    """Returns a text with the choices of the enum at `path`. The path may lead through structs, and to a
    mapping whose values are enums; for any other path the text is empty."""
    kind = msgspec.inspect.type_info(type_)
    head, is_entry, _ = path.partition("[")
    for part in head.split("."):
        fields = kind.fields if isinstance(kind, msgspec.inspect.StructType) else ()
        found = next((field for field in fields if field.encode_name == part), None)
        if found is None:
            return ""
        kind = found.type
    if is_entry and isinstance(kind, msgspec.inspect.DictType):
        kind = kind.value_type
    if not isinstance(kind, msgspec.inspect.EnumType):
        return ""
    return "expected one of " + ", ".join(repr(str(member.value)) for member in kind.cls)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _lookup(data: Any, path: str) -> Any:
    for part in path.replace("[", ".").replace("]", "").split("."):
        if isinstance(data, dict):
            data = data.get(part)
        elif isinstance(data, list) and part.isdigit() and int(part) < len(data):
            data = data[int(part)]
    return data


def shown(value: Any) -> str:
    """Returns a value for a message, cut if it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python prints no integer of more than 4300 digits
        text = "(a number that is too long to be written)"
    return text if len(text) <= _VALUE_CHARS_MAX else text[:_VALUE_CHARS_MAX] + "..."
