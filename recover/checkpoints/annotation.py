"""Reads the annotations of a job that concern its checkpoints. Pure.

`rekindle.dev/checkpoint: <path in the container>[;format=<name>]` says where the checkpoints are. The format
`generic` also needs `;marker=<relative file>`, and with `;digests=check` the scan reads every byte of the
chosen checkpoint.
`rekindle.dev/checkpoint-repair: tracker,set-aside` says what the scan may change there.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import PurePosixPath

import msgspec

from recover.checkpoints import READERS
from recover.checkpoints.marker_template import GENERIC, MARKER_EXPECTED, TemplateError, parse_marker
from recover.checkpoints.scan_result import Repair

__all__ = [
    "ANNOTATION",
    "FORMATS",
    "REPAIR",
    "REPAIR_EXPECTED",
    "CheckpointLocation",
    "LocationError",
    "ObjectStoreError",
    "parse",
    "parse_repair",
]

ANNOTATION = "rekindle.dev/checkpoint"
REPAIR = "rekindle.dev/checkpoint-repair"
FORMATS = tuple(reader.name for reader in READERS)
REPAIR_EXPECTED = "none, tracker, set-aside, or tracker,set-aside"
PATH_CHARS_MAX = 512
_GENERIC_EXAMPLE = "/ckpt;format=generic;marker=step-{step}/DONE"
_GENERIC = (
    f"expected ;format=generic;marker=<file>, where <file> is {MARKER_EXPECTED}. An example of the whole "
    f"value is {_GENERIC_EXAMPLE}"
)
_DIGESTS = "expected ;digests=check"
_EXAMPLES = {"": "/ckpt", _GENERIC: _GENERIC_EXAMPLE, _DIGESTS: "/ckpt;digests=check"}
_OPTIONS = ("format", "marker", "digests")
_EXPECTED = (
    "expected an absolute path in the container, optionally with ;format=<name>, such as "
    "/ckpt;format=torch-dcp"
)


class LocationError(ValueError):
    """The annotation cannot be used. The message contains the annotation, its value, what was expected and
    the consequence."""

    def __init__(self, value: str, problem: str, expected: str = "") -> None:
        """Builds the message. `expected` says what to write, if the path is not the error."""
        self.expected = expected or _EXPECTED
        self.example = _EXAMPLES.get(expected, "/ckpt;format=torch-dcp")
        """A value that can be used, of the kind that was probably meant."""
        shown = ascii(value if len(value) <= 120 else value[:120] + "...")
        self.why = f"{shown}: {problem}; {self.expected}"
        super().__init__(
            f"annotation {ANNOTATION}: {self.why}. "
            "Until somebody corrects the annotation, no checkpoint is verified, and the framework itself "
            "chooses the checkpoint."
        )


class ObjectStoreError(LocationError):
    """The checkpoints are in a store that cannot be scanned, so no other value would be right."""

    def __init__(self, value: str, store: str) -> None:
        super().__init__(
            value,
            f"{store}:// is an object store, and Rekindle scans only volumes that are mounted into the pods",
            "leave the annotation out",
        )


class CheckpointLocation(msgspec.Struct, frozen=True):
    """The parsed annotation. `path` is absolute in the gang's containers. `format` is None if the file names
    decide. `marker` is set only for the format generic. `digests` says whether to compare digests."""

    path: str
    format: str | None = None
    marker: str | None = None
    digests: bool = False


def parse(value: str) -> CheckpointLocation:
    """Parses the annotation. Raises LocationError."""
    path, *options = (part.strip() for part in value.split(";"))
    if "://" in path:
        raise ObjectStoreError(value, path.partition("://")[0])
    if not path.startswith("/"):
        raise LocationError(value, "the path is not absolute" if path else "the path is missing")
    if len(path) > PATH_CHARS_MAX or not path.isprintable():
        raise LocationError(value, f"the path is longer than {PATH_CHARS_MAX} characters or not printable")
    if ".." in path.split("/"):
        raise LocationError(value, "the path contains ..")

    given = _options(value, options)
    _check(value, given)
    # POSIX keeps two leading slashes; a mount path never has them.
    normal = str(PurePosixPath("/" + path.lstrip("/")))
    return CheckpointLocation(
        path=normal,
        format=given.get("format"),
        marker=given.get("marker"),
        digests="digests" in given,
    )


def parse_repair(value: str) -> frozenset[Repair]:
    """Returns what may be changed; `none` and an empty value allow nothing. Raises ValueError for an unknown
    word."""
    words = {word.strip() for word in value.split(",")} - {"", "none"}
    unknown = words - {*Repair}
    if unknown:
        raise ValueError(f"{min(unknown)!a:.80} is not known; expected {REPAIR_EXPECTED}")
    return frozenset(map(Repair, words))


def _options(value: str, options: list[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for option in options:
        key, equals, content = (part.strip() for part in option.partition("="))
        if key not in _OPTIONS or not equals:
            raise LocationError(value, f"{option!a} is not a known option", _meant(key, content))
        if key in given:
            raise LocationError(value, f"{key} is given twice")
        given[key] = content
    return given


def _meant(key: str, content: str) -> str:
    near = get_close_matches(key, _OPTIONS, n=1)
    return f"expected {near[0]}={content}" if near else f"expected one of {', '.join(_OPTIONS)}"


def _check(value: str, given: dict[str, str]) -> None:
    format_name, marker = given.get("format"), given.get("marker")
    if given.get("digests", "check") != "check":
        raise LocationError(value, f"digests {given['digests']!a} is not known", _DIGESTS)
    if format_name is not None and format_name not in FORMATS:
        raise LocationError(
            value, f"format {format_name!a} is not known", f"expected one of {', '.join(FORMATS)}"
        )
    if format_name == GENERIC and marker is None:
        raise LocationError(value, "format generic needs a marker", _GENERIC)
    if format_name != GENERIC and marker is not None:
        raise LocationError(value, "only the format generic has a marker", _GENERIC)
    if marker is not None:
        try:
            parse_marker(marker)
        except TemplateError as error:
            raise LocationError(value, f"marker {marker!a}: {error}", _GENERIC) from error
