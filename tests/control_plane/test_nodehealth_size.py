"""Tests how much an agent can store in its node's NodeHealth, on a real API server with an agent's token."""

from __future__ import annotations

from typing import Any

import pytest

from detectors.agent.publish import patch_body
from detectors.client.kubeapi import ApiError
from detectors.folds.status_size import STATUS_BYTES_MAX, bounded
from detectors.wire.contract import NodeHealthStatus
from recover.k8s.kinds import NODEHEALTHS
from tests.control_plane.callers import ANY_STATUS, Caller, body, calling
from tests.control_plane.plane import ControlPlane
from tests.detectors.agent import bad_node
from tests.recover.api.test_schema_size import WORST_BYTES_MAX

pytestmark = pytest.mark.control_plane

OWN_STATUS = NODEHEALTHS.path("n1", subresource="status")
TIME = "2026-11-21T09:30:00.123456789+00:00"
PODS_MAX, LINES_MAX = 64, 8


def loud(characters: int) -> dict[str, Any]:
    """Returns a status with the maximum of pods and lines, and with that many characters that are each stored
    as six."""
    text = ["<" * 512] * (characters // 512)
    pods = []
    for number in range(PODS_MAX):
        lines, text = text[:LINES_MAX], text[LINES_MAX:]
        known = [{"signature": "", "at": TIME, "text": line, "issue": True} for line in lines]
        pods.append({"uid": "", "namespace": "", "name": "", "edge": "stepping", "at": TIME} | told(known))
        pods[-1]["firstStep"] = number
    return {"status": patch_body(NodeHealthStatus())["status"] | {"pods": pods}}


def told(known: list[dict[str, Any]]) -> dict[str, Any]:
    steps = {"firstStepAt": TIME, "lastStepAt": TIME, "lastStep": 2**62, "freeDeviceBytes": 2**62}
    return {**steps, "medianStepS": 0.12345678901234567, "knownLines": known}


async def stored_bytes(admin: Caller) -> int:
    """Returns the size of the object as the API server writes it, which is how it is stored."""
    return len(await admin.api.request("GET", NODEHEALTHS.path("n1")))


async def test_a_really_bad_node_fits_and_an_agent_that_was_broken_into_stores_little(
    control_plane: ControlPlane,
) -> None:
    async with calling(control_plane) as callers:
        agent = await callers.agent()
        status = bounded(bad_node.broken())
        await agent.does("PATCH", OWN_STATUS, patch_body(status))
        bad_bytes = await stored_bytes(callers.admin)

        odd = {"status": {"driverVersion": "\x00\x1b[31m\u2028<"}}
        assert await agent.asks("PATCH", OWN_STATUS, odd) == "ok", "as a log may hold it"

        fits = 30 * 1024
        while await agent.asks("PATCH", OWN_STATUS, loud(fits)) != "ok":
            fits -= 512
        worst_bytes = await stored_bytes(callers.admin)

        assert await agent.asks("PATCH", OWN_STATUS, loud(fits + 512)) == "422 Invalid"
        endless = {"status": {"observedAt": "2026-11-21T09:30:00." + "1" * 100_000 + "Z"}}
        assert await agent.asks("PATCH", OWN_STATUS, endless) == "422 Invalid"

    print(f"a really bad node: {bad_bytes} bytes, the worst of lines: {worst_bytes} bytes")
    assert bad_bytes < 2 * STATUS_BYTES_MAX
    assert 100_000 < worst_bytes < WORST_BYTES_MAX


async def test_an_agent_cannot_fill_its_nodehealth_with_names_of_writers(control_plane: ControlPlane) -> None:
    applied = body(NODEHEALTHS, "n1", status={"bootId": "b"})
    async with calling(control_plane) as callers:
        agent = await callers.agent()
        refused = ""
        for number in range(40):
            manager = {"fieldManager": f"{number}-{'m' * 100}", "force": "true"}
            try:
                await agent.api.request(
                    "PATCH",
                    OWN_STATUS,
                    params=manager,
                    body=applied,
                    content_type="application/apply-patch+yaml",
                )
            except ApiError as error:
                refused = error.message
                break

        assert "'rekindle-agent'" in refused, "the policy"
        assert await agent.asks("PATCH", OWN_STATUS, ANY_STATUS) == "ok", "its usual writes go on"
        assert await stored_bytes(callers.admin) < 16 * 1024
