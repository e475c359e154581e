"""Two jobs of different kinds have one name in one namespace: the variables for the ranks of one must not
reach the ranks of the other."""

from __future__ import annotations

from typing import Any

import pytest

from recover.k8s.kinds import JOBS, PYTORCHJOBS
from tests.control_plane.cases import (
    indexed_job,
    pods_of,
    pytorchjob,
    recoveries,
    seconds_later,
    told_to,
    uids,
)
from tests.control_plane.plane import ControlPlane
from tests.control_plane.stage import NAMESPACE, RealStage, raised

pytestmark = pytest.mark.control_plane

KINDS = {"Job": JOBS, "PyTorchJob": PYTORCHJOBS}


async def test_a_job_and_a_pytorchjob_of_one_name_are_each_told_of_their_own_recovery(
    training: ControlPlane,
) -> None:
    async with raised(training, nodes=5, settings=["mode=recover"], agents=0) as stage:
        await stage.create(JOBS, indexed_job("llm", dying="143"), NAMESPACE)
        await stage.create(PYTORCHJOBS, pytorchjob("llm", "OnFailure", dying="143"), NAMESPACE)
        old = {kind: await pods_up(stage, kind) for kind in KINDS}

        await seconds_later([pod for pods in old.values() for pod in pods])
        # After a failed pod a Job creates no new pod for 10 s.
        await stage.xid_79(old["Job"][-1]["spec"]["nodeName"])
        await stage.end(old["PyTorchJob"][-1], exit_code=1)
        new = {kind: await pods_up(stage, kind, but=uids(old[kind])) for kind in KINDS}

        recovery = {r["spec"]["gang"]["kind"]: r["metadata"]["name"] for r in await recoveries(stage, "llm")}
        told = {kind: [await told_to(stage, pod) for pod in pods] for kind, pods in new.items()}
        assert told == {kind: [recovery[kind]] * 2 for kind in KINDS}


async def pods_up(stage: RealStage, kind: str, *, but: Any = ()) -> list[Any]:
    async def found() -> list[Any] | None:
        pods = [pod for pod in await pods_of(stage, "llm") if owner_of(pod) == kind]
        up = [p for p in pods if p["status"]["phase"] == "Running" and p["metadata"]["uid"] not in but]
        return up if len(up) == 2 else None

    return list(await stage.until(f"2 running pods of the {kind}", found))


def owner_of(pod: Any) -> str:
    return str(pod["metadata"]["ownerReferences"][0]["kind"])
