"""The Recipe object: people's own known issue, and whether Rekindle uses it. recipe_spec.py has its spec."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from detectors.wire.contract import API_VERSION, ObjectMeta
from recover.api import Condition
from recover.api.recipe_spec import RecipeSpec

__all__ = ["ACCEPTED", "KIND", "RecipeObject", "RecipeStatus"]

KIND = "Recipe"

ACCEPTED = "Accepted"
"""Type of the only condition."""


class RecipeStatus(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, kw_only=True):
    """Only the controller writes the status."""

    observed_generation: Annotated[
        int, Meta(description="Generation of the spec that the conditions are about.")
    ] = 0
    conditions: Annotated[list[Condition], Meta(max_length=8)] = []
    """The condition Accepted says whether Rekindle uses the recipe and, if not, why."""


class RecipeObject(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, kw_only=True):
    """A known issue: how to recognise the issue, what to change, and how to see that the change helped."""

    api_version: str = API_VERSION
    kind: str = KIND
    metadata: ObjectMeta = ObjectMeta()
    spec: RecipeSpec
    status: RecipeStatus = RecipeStatus()
