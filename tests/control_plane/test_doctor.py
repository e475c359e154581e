"""The predictions of `rekindle doctor` about jobs on a real control plane come true."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from recover.doctor.look import look
from recover.doctor.report import Report, examined
from recover.k8s.kinds import JOBS
from recover.kube.rest import RestCluster
from tests.control_plane.cases import ended, indexed_job
from tests.control_plane.plane import ControlPlane
from tests.control_plane.stage import NAMESPACE, RealStage, raised

pytestmark = pytest.mark.control_plane


async def told(stage: RealStage, job: str) -> Report:
    case, notes = await look(RestCluster(stage.api), job, NAMESPACE, datetime.now(UTC))
    assert notes == []
    return examined(case)


def names(report: Report) -> set[str]:
    return {finding.name for finding in report.findings}


async def test_a_job_without_retries_is_foretold_to_end_for_good_and_does(
    control_plane: ControlPlane,
) -> None:
    async with raised(control_plane, nodes=2, settings=["mode=recover"]) as stage:
        await stage.create(JOBS, indexed_job("llm", backoffLimit=0), NAMESPACE)
        await stage.create(JOBS, indexed_job("waits", suspend=True), NAMESPACE)
        pods = await stage.running("llm", 2)

        before = await told(stage, "llm")
        # The stage has no NVML; the policy of the chart gives the pods their environment.
        assert names(before) == {"no-retry", "no-checkpoint-annotation", "no-steps", "blind"}
        assert before.findings[0].where.field == "spec.backoffLimit"
        assert names(await told(stage, "waits")) == {"retries-counted", "no-checkpoint-annotation"}

        await stage.steps(pods[0], first=1, last=1)
        assert "no-steps" not in names(await told(stage, "llm"))

        await asyncio.sleep(1)  # kubelets write whole seconds; Rekindle ignores faults from before the mode
        await stage.end(pods[0], exit_code=1)
        recovery = await ended(stage, "llm", "Escalated")
        assert recovery["status"]["reason"] == "TerminalJob"
        assert "failed-for-good" in names(await told(stage, "llm"))
