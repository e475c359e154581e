"""Recipe objects as decisions see them: what people wrote, and what became of it."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from recover.api.recipe import RecipeStatus
from recover.api.recipe_spec import Recipe

__all__ = ["JudgedRecipe", "RecipeReason", "SeenRecipe"]


class RecipeReason(StrEnum):
    """Why an object's condition Accepted is as it is."""

    USED = "Used"
    DISABLED = "Disabled"
    INVALID = "Invalid"
    TOO_MANY = "TooMany"


class SeenRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """One object as decisions see it."""

    name: str
    uid: str
    version: str
    generation: int
    created: datetime | None
    recipe: Recipe | None
    problems: tuple[str, ...]
    """Why it cannot be used; empty for a good one."""
    status: RecipeStatus


class JudgedRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """One object, and what became of it."""

    seen: SeenRecipe
    accepted: bool
    reason: RecipeReason
    message: str
