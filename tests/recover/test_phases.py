"""The recovery of one gang, phase by phase: each look is applied to a world of views, nothing runs."""

from __future__ import annotations

import msgspec
import pytest

from recover.api import Phase
from recover.model import Container, PodPhase, Template, Volume, VolumeKind
from tests.acting import (
    acts,
    advanced,
    end_pods,
    first_step,
    look,
    only_recovery,
    recovering,
    scanned,
    start_pods,
    step,
)
from tests.builders import Worlds, cluster, gang

CLAIM = Volume(
    name="ckpt",
    kind=VolumeKind.CLAIM,
    source={"claimName": "ckpt"},
    mount_paths=("/ckpt",),
)


def faulted(**annotations: str) -> Worlds:
    """A gang on n0 to n3 whose node n1 lost its GPU; n4 to n7 are spare; the Recovery is Planned."""
    job = gang(
        annotations={f"rekindle.dev/{name.replace('_', '-')}": value for name, value in annotations.items()},
        templates={"Worker": Template(volumes=(CLAIM,))},
    )
    return recovering(cluster(nodes=8).running(job).finding(on="n1"))


def choice(step_: int = 80, path: str = "step-80") -> str:
    chosen = {"step": step_, "path": path, "format": "torch-dcp", "complete": True, "reason": "", "bytes": 9}
    return msgspec.json.encode({"chosen": chosen, "found": 1}).decode()


# --- the whole path ---------------------------------------------------------------------------------------


def test_a_gang_is_stopped_scanned_resumed_and_proven_by_its_own_first_step() -> None:
    world = faulted(checkpoint="/ckpt")
    assert step(world) == ["recovery-stopping"]
    assert step(world) == ["stop-gang", "create-scan"]
    end_pods(world)
    assert step(world) == ["recovery-choosing"]
    assert step(world) == ["release-scan"]
    scanned(world, choice())
    assert step(world) == ["recovery-resuming"]
    assert step(world) == ["start-gang"]
    start_pods(world.later(1))
    assert step(world) == ["recovery-verifying", "remove-scan"]
    first_step(world.later(9), 81)
    assert step(world) == ["recovery-succeeded"]

    status = only_recovery(world).status
    assert [t.phase for t in status.phases] == [
        Phase.STOPPING,
        Phase.CHOOSING,
        Phase.RESUMING,
        Phase.VERIFYING,
        Phase.SUCCEEDED,
    ]
    assert (status.last_step, status.resumed_step, status.lost_steps) == (100, 81, 20)
    assert status.lost_gpu_s == pytest.approx(11 * 32)
    assert status.totals is not None
    assert status.totals.recoveries == 1
    assert acts(look(world)) == []


def test_an_act_that_is_done_is_not_repeated_at_the_next_look() -> None:
    world = faulted(checkpoint="/ckpt")
    advanced(world, Phase.STOPPING)
    assert step(world) == ["stop-gang", "create-scan"]
    assert acts(look(world)) == []

    end_pods(world)
    advanced(world, Phase.CHOOSING)
    assert step(world) == ["release-scan"]
    assert acts(look(world)) == []

    scanned(world, choice())
    advanced(world, Phase.RESUMING)
    assert step(world) == ["start-gang"]
    assert acts(look(world)) == ["remove-scan"]


# --- later causes -----------------------------------------------------------------------------------------


def test_a_crash_after_the_resume_begins_the_next_attempt_although_the_first_incident_is_still_open() -> None:
    world = recovering(cluster(nodes=8).running(gang()).crash(rank=1))
    advanced(world, Phase.VERIFYING)
    new = next(iter(world.pods["llm-uid"].values()))
    failed = Container(name="train", running=False, exit_code=1, finished_at=world.later(5).now)
    world.pods["llm-uid"][new.uid] = msgspec.structs.replace(new, phase=PodPhase.FAILED, containers=(failed,))

    recovering(world)
    step(world)

    status = only_recovery(world).status
    assert (status.phase, status.attempt) == (Phase.STOPPING, 2)
