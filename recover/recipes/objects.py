"""Reads the Recipe objects that people write into the cluster, and decides which of them are valid and in
force. Pure.

runtime/observe.py decodes each object once (`seen`), and runtime/changes.py settles all of them at each
change (`settle`); the World has the outcome. status.py writes it to the objects, and triage/nodehealths.py
sends agents the lines to look for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from detectors.wire.contract import API_VERSION, NodeHealthSpec, ObjectMeta
from detectors.wire.fitting import limit
from detectors.wire.training import Signature
from recover.api import Condition
from recover.api.recipe import KIND, RecipeObject, RecipeStatus
from recover.api.recipe_spec import Recipe
from recover.model.judged_recipes import JudgedRecipe, RecipeReason, SeenRecipe
from recover.recipes.check_match import Problem
from recover.recipes.convert import RecipeError, checked, converted

__all__ = ["SIGNATURES_CHARS_MAX", "SIGNATURES_MAX", "InForce", "from_object", "seen", "settle", "to_object"]

SIGNATURES_MAX = limit(NodeHealthSpec, "signatures")
"""Number of recipes whose lines fit into a NodeHealth."""
SIGNATURES_CHARS_MAX = 16 * 1024
"""Limit for the characters of all templates together, because the NodeHealth of each node contains them."""


class InForce(msgspec.Struct, frozen=True, kw_only=True):
    """The recipes that are in force, as the result of the built-in recipes and all objects."""

    recipes: Mapping[str, Recipe]
    """Recipes by name."""
    signatures: tuple[Signature, ...]
    """The log lines that agents look for in addition to those that they know, sorted by the recipe's name."""
    judged: tuple[JudgedRecipe, ...]


class _Known(msgspec.Struct):
    """Metadata and status, which are decoded apart from the spec, so that no mistake in the spec hides
    them."""

    metadata: ObjectMeta
    status: RecipeStatus = RecipeStatus()


def seen(raw: bytes) -> SeenRecipe:
    """Returns the Recipe object with its recipe or its problems. Raises msgspec.MsgspecError for data that is
    no API object at all."""
    data = msgspec.json.decode(raw)
    known = msgspec.convert(data, _Known)
    recipe: Recipe | None = None
    problems: tuple[str, ...] = ()
    try:
        recipe = from_object(data, f"{KIND} {known.metadata.name}")
    except RecipeError as error:
        problems = error.what
    return SeenRecipe(
        name=known.metadata.name,
        uid=known.metadata.uid,
        version=known.metadata.resource_version,
        generation=known.metadata.generation,
        created=known.metadata.creation_timestamp,
        recipe=recipe,
        problems=problems,
        status=known.status,
    )


def from_object(data: Any, origin: str) -> Recipe:
    """Returns the recipe of an object as JSON or YAML gives it; `origin` is for messages. Raises
    `RecipeError`."""
    for field, wanted in (("kind", KIND), ("apiVersion", API_VERSION)):
        said = data.get(field) if isinstance(data, dict) else None
        if said != wanted:
            shown = "(none)" if said is None else repr(said)
            expected = f"expected apiVersion {API_VERSION} and kind {KIND}"
            raise RecipeError(origin, [str(Problem(field, shown, expected))])
    made = converted(data, RecipeObject, origin)
    recipe = Recipe(name=made.metadata.name, **msgspec.structs.asdict(made.spec))
    return checked(recipe, origin, of_object=True)


def to_object(recipe: Recipe) -> dict[str, Any]:
    """Returns the object, ready for kubectl apply."""
    spec = msgspec.to_builtins(recipe)
    metadata = {"name": spec.pop("name")}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


# --- all of them together -----------------------------------------------------------------------------------


def settle(built_in: Mapping[str, Recipe], objects: Iterable[SeenRecipe]) -> InForce:
    """Returns the recipes in force. An object with the name of a built-in recipe replaces the built-in
    recipe, unless the object cannot be used.

    If there are more recipes than agents can look for, the oldest objects are used: a new recipe must not end
    one that has worked.
    """
    recipes = dict(built_in)
    signatures: dict[str, Signature] = {}
    judged = []
    for one in sorted(objects, key=_age):
        replaces = one.name in built_in
        if one.recipe is None:
            judged.append(_refused(one, RecipeReason.INVALID, "; ".join(one.problems), replaces=replaces))
            continue
        signature = _signature(one.recipe)
        is_told = replaces or bool(signature.match or signature.verify)
        if is_told and not _has_room([*signatures.values(), signature]):
            most = (
                f"at most {SIGNATURES_MAX} recipes, with at most {SIGNATURES_CHARS_MAX} characters of "
                "templates"
            )
            why = f"agents look for the log lines of {most}, and older Recipe objects use all of this space"
            judged.append(_refused(one, RecipeReason.TOO_MANY, why, replaces=replaces))
            continue
        if is_told:
            signatures[one.name] = signature
        recipes.pop(one.name, None)
        if not one.recipe.disabled:
            recipes[one.name] = one.recipe
        judged.append(_used(one, one.recipe, replaces=replaces))
    return InForce(
        recipes=recipes,
        signatures=tuple(signatures[name] for name in sorted(signatures)),
        judged=tuple(judged),
    )


def _age(one: SeenRecipe) -> tuple[float, str]:
    return (one.created.timestamp() if one.created is not None else 0.0, one.name)


def _signature(recipe: Recipe) -> Signature:
    """Returns the lines of the recipe that agents look for. A recipe that is switched off has no lines. In
    place of a built-in recipe it still has a signature, so that agents stop looking for the built-in
    lines."""
    if recipe.disabled:
        return Signature(name=recipe.name)
    verify = recipe.verify.log if recipe.verify is not None else []
    return Signature(name=recipe.name, match=recipe.match.logs, verify=verify)


def _has_room(signatures: list[Signature]) -> bool:
    chars = sum(len(text) for one in signatures for text in (*one.match, *one.verify))
    return len(signatures) <= SIGNATURES_MAX and chars <= SIGNATURES_CHARS_MAX


def _used(one: SeenRecipe, recipe: Recipe, *, replaces: bool) -> JudgedRecipe:
    reason = RecipeReason.DISABLED if recipe.disabled else RecipeReason.USED
    if recipe.disabled:
        message = (
            "this recipe is switched off, and so is the built-in recipe of this name"
            if replaces
            else "switched off"
        )
    else:
        message = (
            "Rekindle uses this recipe instead of the built-in recipe of this name" if replaces else "used"
        )
    return JudgedRecipe(seen=one, accepted=True, reason=reason, message=message)


def _refused(one: SeenRecipe, reason: RecipeReason, why: str, *, replaces: bool) -> JudgedRecipe:
    end = "; Rekindle does not use this recipe"
    end += ", and the built-in recipe of this name stays in force" if replaces else ""
    text = f"{KIND} {one.name}: {why}"
    room = limit(Condition, "message") - len(end)
    message = (text if len(text) <= room else f"{text[: room - 3]}...") + end
    return JudgedRecipe(seen=one, accepted=False, reason=reason, message=message)
