"""Classifies an error answer of the API server to a write: a stale view, a temporary failure, or a refusal.
Pure.
"""

from __future__ import annotations

import msgspec

from detectors.client.kubeapi import ApiError
from detectors.wire.contract import ObjectMeta
from recover.model.actions import Action, Patch

__all__ = ["has_patched_version", "is_invalid", "may_pass", "without_values"]

WORDS_CHARS_MAX = 400
"""Maximum length of an API server's refusal in the log and in objects."""


class _Object(msgspec.Struct):
    metadata: ObjectMeta = ObjectMeta()


def is_invalid(error: ApiError, action: Action, there: bytes | None) -> bool:
    """Whether the API server refused the write permanently. A 422 says that the name now belongs to an object
    with another uid, or that the content breaks the schema. The second cause does not change, so a new try is
    refused again."""
    if error.status != 422:
        return False
    if not isinstance(action, Patch) or not action.uid:
        return True
    return there is not None and msgspec.json.decode(there, type=_Object).metadata.uid == action.uid


def has_patched_version(action: Action, there: bytes) -> bool:
    """Whether the object still has the version that the patch named as its precondition."""
    version = msgspec.json.decode(there, type=_Object).metadata.resource_version
    return isinstance(action, Patch) and action.version == version


def without_values(words: str) -> str:
    """Returns the API server's message, cut to `WORDS_CHARS_MAX`. A longer message loses the values of the
    fields that it refuses: a value may be a whole pod template, with the secrets that people write into its
    variables. A shorter message stays as it is."""
    if len(words) <= WORDS_CHARS_MAX:
        return words
    head, found, rest = words.partition("Invalid value: ")
    return (
        f"{head}{found}(...){rest[rest.rfind(': ') :]}"[:WORDS_CHARS_MAX]
        if found
        else words[:WORDS_CHARS_MAX]
    )


def may_pass(error: BaseException) -> bool:
    return isinstance(error, ApiError) and (error.status == 429 or error.status >= 500)
