"""What Kubernetes itself limits, whatever our structs say. Pure.

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
"""Of most objects, Nodes and Pods among them: a DNS subdomain. Names of people's jobs may be as long."""
KEY_NAME_CHARS_MAX: Final = 63
"""Of the key of a label or annotation, behind its prefix."""
LABEL_VALUE_CHARS_MAX: Final = 63
ANNOTATIONS_BYTES_MAX: Final = 256 * 1024
"""Of all annotations of one object together, keys and values. Those of people take their share."""
REASON_CHARS_MAX: Final = 128
"""Of an Event."""
NOTE_BYTES_MAX: Final = 1024
"""Of an Event. The API server refuses an Event with more; people's advice need not be in English."""


def is_object_name(text: str) -> bool:
    """Whether an object can be called so: a DNS subdomain."""
    return len(text) <= NAME_CHARS_MAX and _OBJECT_NAME.fullmatch(text) is not None
