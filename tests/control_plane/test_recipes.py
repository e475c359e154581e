"""Recipe objects on a real API server: their conditions, what agents learn from them, and what is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from recover.k8s.kinds import LEASES, NODEHEALTHS, RECIPES
from recover.recipes.load import built_in
from recover.recipes.objects import to_object
from tests.control_plane.callers import calling
from tests.control_plane.plane import AUDIT_LAG_S, ControlPlane
from tests.control_plane.rights import AGENT, CONTROLLER_USER
from tests.control_plane.stage import RealStage, raised

pytestmark = pytest.mark.control_plane

NODE_COUNT = 2
TEMPLATE = "unable to write to file </torch_{file}>"
IDLE_S = 2.0
OFF = "cuda-invalid-image"
ONE = {"exitCode": 2}


def recipe(name: str, **spec: Any) -> dict[str, Any]:
    written = {
        "title": "Ranks die of a small /dev/shm",
        "source": "our own runbook, page 12",
        "match": {"allOf": [{"log": TEMPLATE}]},
        "change": {"hold": "always", "advise": "Mount a larger one than torch_{file} needs."},
    }
    identity = {"apiVersion": RECIPES.api_version, "kind": RECIPES.kind, "metadata": {"name": name}}
    return {**identity, "spec": written | spec}


async def test_recipes_of_people_are_judged_told_to_the_agents_and_forgotten(
    control_plane: ControlPlane,
) -> None:
    off = to_object(built_in()[OFF])
    off["spec"]["disabled"] = True
    async with raised(control_plane, nodes=NODE_COUNT, settings=["mode=observe"], agents=0) as stage:
        for body in (
            recipe("small-shm"),
            recipe("gap", change={"advise": "look at {nothing}"}),
            recipe("nvml-driver-mismatch", match={"allOf": [{"log": "E {x}"}]}),
            off,
        ):
            await stage.create(RECIPES, body)

        await stage.until("verdict on each", lambda: verdicts_are(stage, EXPECTED))
        known = [{"name": OFF}, {"name": "small-shm", "match": [TEMPLATE]}]
        await stage.until("signatures on each node", lambda: signatures_are(stage, known))
        told = (await stage.get(RECIPES, "gap"))["status"]
        assert told["observedGeneration"] == 1
        names = ("Recipe gap", "spec.change.advise", "{nothing}", "file")
        assert all(name in told["conditions"][0]["message"] for name in names)

        await asyncio.sleep(AUDIT_LAG_S)
        since = control_plane.audit_position()
        await asyncio.sleep(IDLE_S + AUDIT_LAG_S)
        writes = [w for w in control_plane.audited(since) if w.user.username == CONTROLLER_USER]
        assert {w.object_ref.resource for w in writes} <= {LEASES.plural}

        await stage.patch(RECIPES, "gap", recipe("gap", match={"allOf": [{"exitCode": 135}]}, change=ADVICE))
        await stage.api.request("DELETE", RECIPES.path("small-shm"))
        await stage.api.request("DELETE", RECIPES.path(OFF))

        await stage.until("verdict on the mended one", lambda: verdicts_are(stage, MENDED))
        await stage.until("node without signatures, each", lambda: signatures_are(stage, []))


ADVICE = {"advise": "look at the exit status"}
EXPECTED = {
    "small-shm": ("True", "Used"),
    "gap": ("False", "Invalid"),
    "nvml-driver-mismatch": ("False", "Invalid"),
    OFF: ("True", "Disabled"),
}
MENDED = {"gap": ("True", "Used"), "nvml-driver-mismatch": ("False", "Invalid")}


async def verdicts_are(stage: RealStage, expected: dict[str, tuple[str, str]]) -> bool:
    found = {}
    for item in await stage.all(RECIPES):
        for condition in item.get("status", {}).get("conditions", []):
            found[item["metadata"]["name"]] = (condition["status"], condition["reason"])
    return found == expected


async def signatures_are(stage: RealStage, expected: list[dict[str, Any]]) -> bool:
    found = [item.get("spec", {}).get("signatures", []) for item in await stage.all(NODEHEALTHS)]
    return found == [expected] * NODE_COUNT


async def test_wrong_types_words_and_fields_are_refused_by_the_api_server_itself(
    control_plane: ControlPlane,
) -> None:
    async with calling(control_plane) as callers:
        wrong = {
            "a fault that is none": recipe("r", match={"allOf": [{"fault": "gremlins"}]}),
            "no clause": recipe("r", match={"allOf": []}),
            "two tests in one": recipe("r", match={"allOf": [{"exitCode": 1, "log": TEMPLATE}]}),
            "a test of nothing": recipe("r", match={"allOf": [{"anyOf": [{}]}]}),
            "a choice beside a test": recipe("r", match={"allOf": [{"exitCode": 1, "anyOf": [ONE]}]}),
            "no attempt": recipe("r", attempts=0),
            "a title too short": recipe("r", title="shm"),
        }
        for what, body in wrong.items():
            assert await callers.admin.asks("POST", RECIPES.path(), body) == "422 Invalid", what
        odd = recipe("r", atempts=2)
        assert await callers.admin.asks("POST", RECIPES.path(), odd, fieldValidation="Strict") == (
            "400 BadRequest"
        )
        for name in built_in():
            body = to_object(built_in()[name])
            assert await callers.admin.asks("POST", RECIPES.path(), body, fieldValidation="Strict") == "ok"


async def test_people_write_recipes_and_the_controller_alone_says_whether_they_are_used(
    control_plane: ControlPlane,
) -> None:
    own = RECIPES.path("small-shm")
    status = RECIPES.path("small-shm", subresource="status")
    said: dict[str, Any] = {"status": {"observedGeneration": 1}}
    async with calling(control_plane) as callers:
        controller, agent = await callers.controller(), await callers.agent()
        assert await callers.admin.asks("POST", RECIPES.path(), recipe("small-shm")) == "ok"
        assert await callers.admin.asks("PATCH", own, {"spec": {"attempts": 2}}) == "ok"
        assert await callers.admin.asks("PATCH", status, said) == "refused by policy"
        assert await controller.asks("PATCH", status, said) == "ok"
        for refused in (controller, callers.team):
            assert await refused.asks("PATCH", own, {"spec": {"attempts": 3}}) == "refused by RBAC"
        assert await agent.asks("GET", own) == "refused by RBAC"
        await callers.grant("cluster-admin", agent, account=AGENT)
        assert await agent.asks("DELETE", own) == "refused by policy"
