"""Lists the limits of Kubernetes itself, which apply whatever our structs allow. Pure.

Sources: Kubernetes, "Object Names and IDs" (names), "Labels and Selectors" (keys and values of labels),
pkg/apis/core/validation/events.go (Events) and apimachinery's pkg/api/validation/objectmeta.go (annotations).
"""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "ANNOTATIONS_BYTES_MAX",
    "KEY_NAME_CHARS_MAX",
    "LABEL_VALUE_CHARS_MAX",
    "NAME_CHARS_MAX",
    "NOTE_BYTES_MAX",
    "REASON_CHARS_MAX",
    "is_object_name",
]

_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

NAME_CHARS_MAX: Final = 253
"""Maximum length of most objects' names, including Nodes and Pods: a DNS subdomain. Names of people's jobs
may be as long."""
KEY_NAME_CHARS_MAX: Final = 63
"""Maximum length of the key of a label or annotation, without its prefix."""
LABEL_VALUE_CHARS_MAX: Final = 63
ANNOTATIONS_BYTES_MAX: Final = 256 * 1024
"""Maximum size of all annotations of one object together, keys and values. People's own annotations count,
too."""
REASON_CHARS_MAX: Final = 128
"""Maximum length of an Event's reason."""
NOTE_BYTES_MAX: Final = 1024
"""Maximum size of an Event's note. The API server refuses an Event with more; people's advice need not be in
English."""


def is_object_name(text: str) -> bool:
    """Whether an object can have this name: a DNS subdomain."""
    return len(text) <= NAME_CHARS_MAX and _OBJECT_NAME.fullmatch(text) is not None
