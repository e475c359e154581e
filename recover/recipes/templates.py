"""Fills in text with placeholders: a recipe's advice and placement. Pure.

detectors/text/log_template.py has the templates that match logs, since the agent looks for them, too.
"""

from __future__ import annotations

from detectors.text.log_template import pieces

__all__ = ["fill", "names_in"]


def names_in(text: str) -> tuple[str, ...]:
    """Returns the placeholders of a text, in their order. Raises `BadTemplateError`."""
    return tuple(placeholder.name for placeholder in pieces(text)[1])


def fill(text: str, values: dict[str, str]) -> str:
    """Replaces placeholders by captured values. A placeholder without a value stays as it was written."""
    literals, placeholders = pieces(text)
    shown = (values.get(one.name, f"{{{one.name}}}") for one in placeholders)
    return literals[0] + "".join(value + literal for value, literal in zip(shown, literals[1:], strict=True))
