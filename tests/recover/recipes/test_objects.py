"""Tests Recipe objects: which are in force, what the controller writes into their status, and what it
requests from agents."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.apiserver.client import Client
from chaos.apiserver.kinds import KINDS
from chaos.apiserver.store import MemoryCluster
from chaos.cluster.virtual import real_clock
from detectors.wire.contract import NodeHealth, NodeHealthSpec, ObjectMeta
from detectors.wire.training import Signature
from recover.api import Condition
from recover.api.crds import schemas
from recover.api.recipe import RecipeStatus
from recover.k8s.kinds import NAMESPACES, NODEHEALTHS, NODES, RECIPES
from recover.model import World
from recover.model.actions import Patch
from recover.model.judged_recipes import SeenRecipe
from recover.model.modes import Mode, Modes, begun
from recover.policy.settings import Settings
from recover.recipes.convert import RecipeError
from recover.recipes.load import built_in
from recover.recipes.objects import SIGNATURES_MAX, InForce, from_object, seen, settle, to_object
from recover.recipes.status import tell
from recover.runtime.controller import Controller
from recover.runtime.telemetry import Metrics
from recover.triage.nodehealths import upkeep
from tests.builders import NOW, cluster
from tests.facts import names

Object = dict[str, Any]
BUILT_IN = built_in()
TITLE = "Ranks die of a small /dev/shm"
UNABLE = "unable to write to file </torch_{file}>"


def recipe(name: str = "our-shm", *logs: str, **spec: Any) -> Object:
    tests = [{"log": log} for log in logs or [UNABLE]]
    written = {
        "title": TITLE,
        "source": "our own runbook, page 12",
        "match": {"allOf": [{"anyOf": tests}]},
        "change": {"hold": "always", "advise": "Mount a larger one."},
    }
    return {
        "apiVersion": "rekindle.dev/v1alpha1",
        "kind": "Recipe",
        "metadata": {"name": name},
        "spec": written | spec,
    }


def stored(made: Object, *, age_s: int = 0, status: RecipeStatus | None = None) -> SeenRecipe:
    """Returns the recipe as the API server returns it."""
    meta = {
        "uid": f"{made['metadata']['name']}-uid",
        "resourceVersion": "7",
        "generation": 2,
        "creationTimestamp": NOW - timedelta(seconds=age_s),
    }
    told = {"status": msgspec.to_builtins(status)} if status is not None else {}
    return seen(msgspec.json.encode({**made, "metadata": made["metadata"] | meta, **told}))


def settled(*objects: Object) -> InForce:
    return settle(BUILT_IN, map(stored, objects))


def verdicts(found: InForce) -> dict[str, tuple[bool, str]]:
    return {one.seen.name: (one.accepted, one.reason.value) for one in found.judged}


# --- recipes in force ---------------------------------------------------------------------------------------


def test_a_good_object_is_used_beside_the_built_in_recipes_and_agents_look_for_its_lines() -> None:
    verify = {"log": ["found {gib:integer} GiB of shm"]}
    change = {"env": {"SHM": "big"}}

    found = settled(recipe(change=change, verify=verify))

    assert found.recipes.keys() == BUILT_IN.keys() | {"our-shm"}
    assert found.signatures == (Signature(name="our-shm", match=[UNABLE], verify=verify["log"]),)
    assert verdicts(found) == {"our-shm": (True, "Used")}


def test_without_objects_agents_are_told_nothing_since_they_know_the_built_in_recipes() -> None:
    assert settled() == InForce(recipes=BUILT_IN, signatures=(), judged=())


def test_an_object_takes_the_place_of_the_built_in_recipe_of_its_name() -> None:
    line = "device kernel image is broken"

    found = settled(recipe("cuda-invalid-image", line), recipe())

    assert found.recipes["cuda-invalid-image"].title == TITLE
    assert found.signatures[0] == Signature(name="cuda-invalid-image", match=[line])
    instead, of_its_own = found.judged
    assert verdicts(found) == {"cuda-invalid-image": (True, "Used"), "our-shm": (True, "Used")}
    assert instead.message != of_its_own.message, "it says so"


def test_a_built_in_recipe_is_switched_off_by_a_copy_of_it_and_agents_cease_to_look_for_its_lines() -> None:
    off = to_object(BUILT_IN["cuda-invalid-image"])
    off["spec"]["disabled"] = True

    found = settled(off)

    assert found.recipes.keys() == BUILT_IN.keys() - {"cuda-invalid-image"}
    assert found.signatures == (Signature(name="cuda-invalid-image"),)
    assert verdicts(found) == {"cuda-invalid-image": (True, "Disabled")}


def test_of_a_recipe_of_ones_own_that_is_switched_off_nothing_is_left() -> None:
    found = settled(recipe(disabled=True))

    assert (found.recipes, found.signatures) == (BUILT_IN, ())


def test_a_broken_replacement_leaves_the_built_in_recipe_in_force_and_says_so() -> None:
    found = settled(recipe("cuda-invalid-image", change={}), recipe())

    assert found.recipes["cuda-invalid-image"] == BUILT_IN["cuda-invalid-image"]
    assert [one.name for one in found.signatures] == ["our-shm"]
    (refused,) = (one for one in found.judged if not one.accepted)
    assert names(refused.message, "cuda-invalid-image", "spec.change", "env", "placement", "hold", "advise")
    (of_ones_own,) = RecipeError("Recipe cuda-invalid-image", refused.seen.problems).lines
    assert refused.message != of_ones_own, "it says what is in force"


def test_of_more_recipes_than_agents_can_look_for_the_newest_are_refused() -> None:
    aged = [stored(recipe(f"r{number}"), age_s=100 - number) for number in range(SIGNATURES_MAX)]
    newest = stored(recipe("a-new-one"))
    no_lines = stored(recipe("exit-code", match={"allOf": [{"exitCode": 135}]}))

    found = settle(BUILT_IN, [newest, no_lines, *aged])

    assert [one.seen.name for one in found.judged if not one.accepted] == ["a-new-one"]
    assert verdicts(found)["a-new-one"] == (False, "TooMany")
    assert found.recipes.keys() >= {"r0", "exit-code"}
    assert "a-new-one" not in found.recipes
    names = [one.name for one in found.signatures]
    assert names == sorted(names)


def test_the_templates_of_all_recipes_together_stay_small_enough_for_every_nodes_object() -> None:
    long = ["a line of a log that people look for " + f"{number} " + "x" * 250 for number in range(32)]

    found = settled(recipe("r1", *long), recipe("r2", *long))

    assert verdicts(found) == {"r1": (True, "Used"), "r2": (False, "TooMany")}


def test_a_recipe_with_more_templates_than_an_agent_takes_is_refused_alone() -> None:
    clauses = [{"anyOf": [{"log": f"line {n} of number {c}"} for n in range(17)]} for c in range(2)]

    found = settled(recipe("many", match={"allOf": clauses}), recipe())

    assert verdicts(found) == {"many": (False, "Invalid"), "our-shm": (True, "Used")}
    assert names(found.judged[0].message, "spec.match", 34, 32)


def test_what_agents_are_told_fits_the_schema_of_a_nodehealth() -> None:
    signatures = schemas()["nodehealths"]["properties"]["spec"]["properties"]["signatures"]

    assert signatures["maxItems"] == SIGNATURES_MAX
    assert signatures["items"]["properties"]["match"]["maxItems"] == 32


def test_a_message_that_is_too_long_keeps_its_end() -> None:
    (judged,) = settled(recipe(change={"env": {f"S {n}": "x" for n in range(32)}})).judged

    (short,) = RecipeError("", ["..."]).lines
    assert len(judged.message) == 1024
    assert judged.message.endswith(short.removeprefix(": "))


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_every_built_in_recipe_can_be_written_as_an_object(name: str) -> None:
    assert from_object(to_object(BUILT_IN[name]), "test") == BUILT_IN[name]


@given(st.sampled_from(sorted(BUILT_IN)), st.data())
def test_an_object_that_holds_anything_is_used_or_told_and_never_stops_the_others(
    name: str, data: st.DataObject
) -> None:
    """Another version of the CRD may let such values through, at any place of a good recipe."""
    odd = to_object(BUILT_IN[name])
    places = [*_places(odd["spec"])]
    holder, key = data.draw(st.sampled_from(places))
    put: Any = data.draw(
        st.sampled_from([None, "", "x", 0, -1, 1.5, True, [], ["x"], {}, {"x": {}}, "{", "{x}"])
    )
    if isinstance(holder, dict) and data.draw(st.booleans()):
        key = data.draw(st.sampled_from(["odd", "is", "log", "value", "name"]))
    holder[key] = put

    found = settled(odd, recipe())

    assert found.recipes.keys() == BUILT_IN.keys() | {"our-shm"}
    assert verdicts(found)["our-shm"] == (True, "Used")
    assert all(one.message and len(one.message) <= 1024 for one in found.judged)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)


# --- the status of a recipe ---------------------------------------------------------------------------------


def test_each_object_is_told_once_whether_it_is_used() -> None:
    (patch,) = told(stored(recipe(attempts=0)), now=NOW)
    assert (patch.name, patch.uid, patch.version, patch.subresource) == (
        "our-shm",
        "our-shm-uid",
        "7",
        "status",
    )
    status = msgspec.convert(patch.body["status"], RecipeStatus)
    (condition,) = status.conditions
    assert (condition.type, condition.status, condition.reason) == ("Accepted", "False", "Invalid")
    assert names(condition.message, "our-shm", "spec.attempts", 0, 1)
    assert status.observed_generation == 2

    later = NOW + timedelta(hours=1)

    assert told(stored(recipe(attempts=0), status=status), now=later) == []
    assert mended(stored(recipe(), status=status), now=later) == later
    assert mended(stored(recipe(attempts=11), status=status), now=later) == NOW


def told(one: SeenRecipe, *, now: datetime) -> list[Patch]:
    found = settle(BUILT_IN, [one])
    world = msgspec.structs.replace(cluster().world(), judged_recipes=found.judged)
    return [action for action in tell(world, now).actions if isinstance(action, Patch)]


def mended(one: SeenRecipe, *, now: datetime) -> datetime:
    """Returns the time at which the condition that is then written last changed between True and False."""
    (patch,) = told(one, now=now)
    (condition,) = msgspec.convert(patch.body["status"]["conditions"], list[Condition])
    return condition.last_transition_time


# --- requests to agents -------------------------------------------------------------------------------------


def test_only_nodes_whose_agent_does_not_know_the_recipes_yet_are_written() -> None:
    signatures = settled(recipe()).signatures
    world = with_signatures(signatures, knowing={"n0": signatures, "n1": ()})

    (patch,) = upkeep(world).actions

    assert isinstance(patch, Patch)
    assert patch.name == "n1"
    told = msgspec.to_builtins(signatures[0])
    assert patch.body == {"spec": {"signatures": [told]}}

    (patch,) = upkeep(with_signatures((), knowing={"n0": signatures})).actions

    assert isinstance(patch, Patch)
    assert patch.body == {"spec": {"signatures": []}}


def with_signatures(signatures: tuple[Signature, ...], *, knowing: dict[str, tuple[Signature, ...]]) -> World:
    world = cluster(nodes=len(knowing)).world()
    health = {
        name: NodeHealth(metadata=ObjectMeta(name=name), spec=NodeHealthSpec(signatures=list(known)))
        for name, known in knowing.items()
    }
    return msgspec.structs.replace(world, signatures=signatures, health=health)


# --- all of it together -------------------------------------------------------------------------------------


async def test_the_controller_takes_up_an_object_tells_so_and_forgets_it_when_it_is_deleted() -> None:
    clock = real_clock()
    store = MemoryCluster(clock.now)
    store.create(NAMESPACES, {"metadata": {"name": Settings().namespace}})
    store.create(NODES, {"metadata": {"name": "n1"}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}})
    leading = asyncio.Event()
    leading.set()
    client = Client(store, "controller")
    controller = Controller(client, Settings(), Metrics(), clock, leading)
    working = asyncio.create_task(controller.run())

    async def until(is_so: Any) -> None:
        async with asyncio.timeout(20):
            while not is_so():
                await asyncio.sleep(0.01)

    def reasons() -> dict[str, str]:
        return {
            one["metadata"]["name"]: one["status"]["conditions"][0]["reason"]
            for one in store.objects(RECIPES)
            if one.get("status")
        }

    def signatures() -> list[str]:
        (health,) = store.objects(NODEHEALTHS)
        return [one["name"] for one in health["spec"].get("signatures", [])]

    try:
        await until(lambda: store.objects(NODEHEALTHS))
        store.create(RECIPES, recipe("broken", "no {good"))
        store.create(RECIPES, recipe())
        await until(lambda: reasons() == {"broken": "Invalid", "our-shm": "Used"})
        await until(lambda: signatures() == ["our-shm"])
        written = len(store.audit)
        await asyncio.sleep(0.3)
        assert len(store.audit) == written
        await client.delete(RECIPES, "our-shm")
        await until(lambda: signatures() == [])
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def test_where_the_crd_is_not_installed_the_controller_works_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(KINDS, RECIPES)
    clock = real_clock()
    client = Client(MemoryCluster(clock.now), "controller")
    controller = Controller(client, Settings(), Metrics(), clock, asyncio.Event())
    working = asyncio.create_task(controller.run())
    try:
        await asyncio.wait_for(controller.ready.wait(), 20)
        assert controller.observer.world(Modes(begun(Mode.OBSERVE, NOW))).recipes == BUILT_IN
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
