"""Defines the shape of every answer to a program (`-o json`, `-o yaml`), for all commands that read.

An answer is one object, like the objects of Kubernetes: `kind` and `apiVersion` say what the object is, names
are camelCase, times are RFC 3339, durations are numbers with their unit at the end of the name (`S` for
seconds), and enums are codes. A field of an answer is never left out: a value that is not known is null.
Parts that are objects of the API (findings, coverage, a Recipe) leave out empty fields, as the API does.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

__all__ = ["ANSWERS_VERSION", "Answer", "Record", "Time"]

Time = Annotated[datetime, Meta(tz=True)]
"""RFC 3339, with a zone."""
ANSWERS_VERSION = "cli.rekindle.dev/v1alpha1"


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of an answer."""


class Answer(Record, frozen=True, kw_only=True, tag_field="kind", tag="Answer"):
    """The answer of one command; a subclass names its `kind` by its tag."""

    api_version: Annotated[
        Literal["cli.rekindle.dev/v1alpha1"], Meta(description="version of the shape of all answers")
    ] = "cli.rekindle.dev/v1alpha1"

    def names(self) -> tuple[str, ...]:
        """Returns the names that `-o name` prints, one a line."""
        return ()
