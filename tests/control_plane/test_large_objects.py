"""An editor of one namespace fills it with the largest jobs that an API server accepts. The controller keeps
none of them in memory, and recovers a gang in another namespace meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from detectors.client.kubeapi import ApiError
from recover.k8s.kinds import JOBS, NAMESPACES
from tests.control_plane.cases import indexed_job, recovered, trained
from tests.control_plane.controllers import start_controller
from tests.control_plane.plane import ControlPlane
from tests.control_plane.stage import RealStage, raised

pytestmark = pytest.mark.control_plane

NOISY = "noisy"
JOBS_N = 20
"""Number of large jobs. A parsed one takes 12 MB, so a controller without bounds takes 240 MB for these."""
TOLERATIONS = 38_000
"""Number of tolerations that makes a job 1.3 MB large."""
LIMIT_BYTES = 150 * 1024**2
"""Memory limit of the controller. Without any job the controller takes some 60 MiB."""
SETTINGS = ["mode=recover"]


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_the_largest_jobs_of_one_namespace_keep_no_other_from_being_recovered(
    control_plane: ControlPlane,
) -> None:
    async with raised(control_plane, nodes=3, settings=SETTINGS, agents=0) as stage:
        old = await trained(stage, indexed_job("llm"))
        await stage.controller.stop()
        await filled(stage)

        stage.controller = await start_controller(stage.api, control_plane, SETTINGS)
        await stage.xid_79(old[0]["spec"]["nodeName"])

        await recovered(stage, "llm", old)
        used = _peak_bytes(stage.controller.pid)
        print(f"the controller took {used >> 20} MiB at most beside {JOBS_N} jobs of 1.3 MB")
        assert used < LIMIT_BYTES


async def filled(stage: RealStage) -> None:
    """Creates the large jobs suspended, so that they use no resources."""
    await stage.create(NAMESPACES, {"metadata": {"name": NOISY}})
    crowd = asyncio.Semaphore(4)

    async def create(number: int) -> None:
        async with crowd:
            await stage.create(JOBS, large(f"large-{number}"), NOISY)

    await asyncio.gather(*map(create, range(JOBS_N)))
    with pytest.raises(ApiError):
        await stage.create(JOBS, large("too-large", 2 * TOLERATIONS), NOISY)


def large(name: str, tolerations: int = TOLERATIONS) -> dict[str, Any]:
    pod = {
        "restartPolicy": "Never",
        "containers": [{"name": "train", "image": "none"}],
        "tolerations": [{"key": f"k{n}", "operator": "Exists"} for n in range(tolerations)],
    }
    labels = {"rekindle.dev/auto-recovery": "enabled"}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"suspend": True, "template": {"spec": pod}},
    }


def _peak_bytes(pid: int) -> int:
    """Returns the peak memory of the process in bytes."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024
