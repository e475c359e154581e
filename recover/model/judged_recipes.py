"""Defines Recipe objects as decisions see them: the text that people wrote, and whether it is used."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from recover.api.recipe import RecipeStatus
from recover.api.recipe_spec import Recipe

__all__ = ["JudgedRecipe", "RecipeReason", "SeenRecipe"]


class RecipeReason(StrEnum):
    """Reason of an object's condition Accepted."""

    USED = "Used"
    DISABLED = "Disabled"
    INVALID = "Invalid"
    TOO_MANY = "TooMany"


class SeenRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """One Recipe object as decisions see it."""

    name: str
    uid: str
    version: str
    generation: int
    created: datetime | None
    recipe: Recipe | None
    problems: tuple[str, ...]
    """Why the recipe cannot be used; empty for a good one."""
    status: RecipeStatus


class JudgedRecipe(msgspec.Struct, frozen=True, kw_only=True):
    """One Recipe object, and whether it is used."""

    seen: SeenRecipe
    accepted: bool
    reason: RecipeReason
    message: str
