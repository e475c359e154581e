"""Reads the annotation `rekindle.dev/checkpoint: <path in the container>[;format=<name>]` of a job. Pure."""

from __future__ import annotations

from pathlib import PurePosixPath

import msgspec

from recover.checkpoints import READERS

__all__ = ["ANNOTATION", "CheckpointLocation", "LocationError", "parse"]

ANNOTATION = "rekindle.dev/checkpoint"
PATH_CHARS_MAX = 512
_EXPECTED = (
    "expected an absolute path in the container, optionally with ;format=<name>, as /ckpt;format=torch-dcp"
)


class LocationError(ValueError):
    """The annotation cannot be used. The message names it, its value, what was expected and what follows."""

    def __init__(self, value: str, problem: str) -> None:
        shown = ascii(value if len(value) <= 120 else value[:120] + "...")
        super().__init__(
            f"annotation {ANNOTATION}: {shown}: {problem}; {_EXPECTED}. "
            "Until it is mended no checkpoint is verified and the framework's own logic decides."
        )


class CheckpointLocation(msgspec.Struct, frozen=True):
    """`path` is absolute in the gang's containers; `format` is None when the file names decide."""

    path: str
    format: str | None = None


def parse(value: str) -> CheckpointLocation:
    """Raises LocationError."""
    path, *options = (part.strip() for part in value.split(";"))
    if not path.startswith("/"):
        raise LocationError(value, "the path is not absolute" if path else "the path is missing")
    if len(path) > PATH_CHARS_MAX or not path.isprintable():
        raise LocationError(value, f"the path is longer than {PATH_CHARS_MAX} characters or not printable")
    if ".." in path.split("/"):
        raise LocationError(value, "the path contains ..")

    format_name: str | None = None
    for option in options:
        key, equals, given = (part.strip() for part in option.partition("="))
        if key != "format" or not equals:
            raise LocationError(value, f"{option!a} is not a known option")
        if format_name is not None:
            raise LocationError(value, "format is given twice")
        known = [reader.name for reader in READERS]
        if given not in known:
            raise LocationError(value, f"format {given!a} is not one of {', '.join(known)}")
        format_name = given
    # Two leading slashes are kept by POSIX; a mount path never has them.
    return CheckpointLocation(path=str(PurePosixPath("/" + path.lstrip("/"))), format=format_name)
