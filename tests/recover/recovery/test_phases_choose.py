"""Tests Choosing: the answer of the scan, and the variables that the ranks receive from it."""

from __future__ import annotations

import msgspec
import pytest

from detectors.wire.contract import Fault
from recover.api import Phase
from recover.api.reasons import EventReason, Reason
from recover.model import Mount, Template, Volume, VolumeKind
from recover.model.actions import Ensure
from tests.acting import acts, advanced, end_pods, first_step, look, only_recovery, recovering, step
from tests.facts import names
from tests.recover.recovery.phase_cases import choice, chosen, environment, faulted


def test_each_start_removes_what_somebody_else_has_put_into_the_environment() -> None:
    world = chosen(faulted(checkpoint="/ckpt/llm"), choice(80))

    (found,) = [a for a in look(world).actions if isinstance(a, Ensure)]

    assert found.foreign is not None
    assert found.foreign.reason == EventReason.VARIABLES_REMOVED
    assert found.foreign.regarding["name"] == "llm"


def test_a_verified_choice_is_told_to_the_ranks() -> None:
    world = chosen(faulted(checkpoint="/ckpt/llm"), choice(80))

    assert environment(world) == {
        "REKINDLE_RECOVERY": only_recovery(world).metadata.name,
        "REKINDLE_RESUME_FROM": "/ckpt/llm/step-80",
        "REKINDLE_RESUME_STEP": "80",
    }


@pytest.mark.parametrize("recreate", [False, True])
def test_what_the_ranks_are_told_goes_with_the_job_unless_one_made_anew_is_to_read_it(recreate: bool) -> None:
    world = chosen(faulted(checkpoint="/ckpt/llm"), choice(80))
    notes = world.gangs["llm-uid"].annotations
    word = {"rekindle.dev/on-terminal": "recreate"} if recreate else {}
    world.change_gang(annotations={**notes, **word})

    (found,) = [a for a in look(world).actions if isinstance(a, Ensure)]

    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "llm", "uid": "llm-uid"}
    assert found.body["metadata"]["ownerReferences"] == (None if recreate else [owner])


def test_once_the_gang_has_resumed_no_checkpoint_is_told_to_what_its_framework_starts_later() -> None:
    """A container that restarts in its pod reads the ConfigMap again, weeks after the checkpoint was made."""
    world = chosen(faulted(checkpoint="/ckpt/llm"), choice(80))
    advanced(world, Phase.VERIFYING)
    first_step(world, 81)

    found = look(world).actions

    assert [getattr(act, "what", "") for act in found[:3]] == [
        "take-checkpoint-back",
        "take-checkpoint-back",
        "recovery-succeeded",
    ]
    assert {act.name: (act.body, act.creates) for act in found if isinstance(act, Ensure)} == {
        name: ({"data": {"REKINDLE_RESUME_FROM": None, "REKINDLE_RESUME_STEP": None}}, False)
        for name in ("llm-rekindle-pytorchjob", "llm-rekindle")
    }


@pytest.mark.parametrize(
    ("annotation", "message", "wait_s", "why"),
    [
        ("/ckpt", "Traceback (most recent call last)", 0, ["Traceback"]),
        ("/ckpt", "", 0, [0]),
        ("/ckpt", '{"found": 3}', 0, [3]),
        ("/ckpt", "{}", 0, []),
        ("/ckpt", '{"error": "permission denied"}', 0, ["permission denied"]),
        ("/ckpt", choice(80, "x" * 512), 0, ["x" * 80]),
        ("/ckpt", choice(80, "/etc"), 0, ["'/etc'"]),
        ("/ckpt", choice(80, "../other"), 0, ["'../other'"]),
        ("/ckpt", choice(80, ""), 0, ["''"]),
        ("/ckpt", choice(80, "."), 0, ["'.'"]),
        ("/ckpt", choice(80, "step-80\n\nWho is to blame\n  - node n7"), 0, [r"'step-80\n\nWho"]),
        ("/ckpt", choice(80, "step-80\0"), 0, [r"'step-80\x00'"]),
        ("/ckpt", choice(80, "step-80\x1b[2J"), 0, [r"'step-80\x1b[2J'"]),
        ("/ckpt", choice(80, "step-80\u202e"), 0, [r"'step-80\u202e'"]),
        ("/ckpt", choice(-1), 0, [-1]),
        ("/ckpt", choice(2**63), 0, [2**63]),
        ("/ckpt", None, 30, [30]),
        ("ckpt", None, 0, ["'ckpt'"]),
        ("/elsewhere", None, 0, ["/elsewhere"]),
        (None, None, 0, ["rekindle.dev/checkpoint"]),
    ],
)
def test_without_a_verified_checkpoint_the_frameworks_own_logic_decides_and_the_reason_is_told(
    annotation: str | None, message: str | None, wait_s: float, why: list[object]
) -> None:
    world = faulted(checkpoint=annotation) if annotation is not None else faulted()
    if message is None and wait_s == 0:
        advanced(world, Phase.RESUMING)
    else:
        chosen(world, message, wait_s=wait_s)

    status = only_recovery(world).status
    assert status.reason == Reason.CHECKPOINT_UNVERIFIED
    assert status.checkpoint is not None
    assert status.checkpoint.reason
    assert names(status.checkpoint.reason, *why)
    assert environment(world)["REKINDLE_RESUME_FROM"] is None


def test_what_a_scan_says_of_others_is_one_line_each_and_forges_no_other() -> None:
    """Code in a scan pod may answer with anything, and people read the answer as if Rekindle had written
    it."""
    forged = "step-90\n\nForged\n  - node n7"
    newer = {"step": 90, "format": "", "complete": False, "bytes": 0}
    message = msgspec.json.encode(
        {
            **msgspec.json.decode(choice(80, reason="x\n\x1b[2Jy")),
            "rejected": [
                {**newer, "path": forged, "reason": "cut"},
                {**newer, "path": "", "reason": "cut"},
                {**newer, "path": "step-90", "reason": "cut\nForged\x07"},
            ],
            "tracker": "a\nb",
            "repaired": ["c\nd"],
            "digests": "e\x00f",
        }
    ).decode()

    checkpoint = only_recovery(chosen(faulted(checkpoint="/ckpt"), message)).status.checkpoint

    assert checkpoint is not None
    assert checkpoint.verified
    assert checkpoint.reason == "x \ufffd[2Jy"
    assert [(c.path, c.reason) for c in checkpoint.rejected] == [("step-90", "cut Forged\ufffd")]
    assert (checkpoint.tracker, checkpoint.repaired, checkpoint.digests) == ("a b", ["c d"], "e\ufffdf")


def test_checkpoints_on_the_nodes_own_disk_are_never_mounted_by_us() -> None:
    world = faulted(checkpoint="/ckpt")
    disk = Volume(name="d", kind=VolumeKind.HOST_PATH, source={"path": "/"}, mounts=(Mount("/ckpt"),))
    world.change_gang(templates={"": Template(volumes=(disk,))})

    advanced(world, Phase.RESUMING)

    assert world.scans == {}
    assert only_recovery(world).status.reason == Reason.CHECKPOINT_UNVERIFIED


def test_the_resume_waits_while_a_verdict_about_one_of_the_gangs_nodes_is_open() -> None:
    world = faulted()
    advanced(world, Phase.CHOOSING)
    world.finding(on="n3", fault=Fault.DRIVER, final=False, ago_s=0.5)

    held = look(world)
    assert acts(held) == []
    assert held.requeue_after_s == pytest.approx(1.5)
    assert step(world.later(2)) == ["recovery-resuming"]


def test_where_there_is_nothing_to_scan_the_choice_is_written_with_its_phase() -> None:
    world = faulted()
    step(world)
    end_pods(world)

    assert step(world) == ["recovery-resuming"]
    status = only_recovery(world).status
    assert [one.phase for one in status.phases] == [Phase.STOPPING, Phase.CHOOSING, Phase.RESUMING]
    assert status.phases[1].at == status.phases[2].at
    assert status.reason == Reason.CHECKPOINT_UNVERIFIED
    assert step(world) == ["start-gang"]


def test_where_the_choice_must_wait_its_phase_is_written_alone() -> None:
    world = faulted()
    step(world)
    end_pods(world)
    world.finding(on="n3", fault=Fault.DRIVER, final=False, ago_s=0.5)
    recovering(world)
    step(world)

    assert step(world) == ["recovery-choosing"]
    assert step(world.later(2)) == ["recovery-resuming"]
