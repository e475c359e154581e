"""Text with placeholders that is filled in: a recipe's advice and placement. Pure.

The templates that look into logs are of detectors/text/log_template.py, since the agent looks for them, too.
"""

from __future__ import annotations

from detectors.text.log_template import pieces

__all__ = ["fill", "names_in"]


def names_in(text: str) -> tuple[str, ...]:
    """The placeholders of a text that is filled in, in their order. Raises `BadTemplateError`."""
    return tuple(placeholder.name for placeholder in pieces(text)[1])


def fill(text: str, values: dict[str, str]) -> str:
    """Puts captured values in; one that is not there stays as it was written."""
    literals, placeholders = pieces(text)
    shown = (values.get(one.name, f"{{{one.name}}}") for one in placeholders)
    return literals[0] + "".join(value + literal for value, literal in zip(shown, literals[1:], strict=True))
