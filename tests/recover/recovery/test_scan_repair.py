"""Tests a scan that may change files at the place of the checkpoints."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from recover.api import Phase
from recover.api.reasons import Reason
from recover.model import Container, PodPhase
from recover.model.actions import Delete
from recover.recovery import scan_trouble
from recover.recovery.scan_pod import create_later
from tests.acting import acts, advanced, look, only_recovery, scanned, step
from tests.builders import Worlds
from tests.facts import names
from tests.recover.recovery.phase_cases import choice, faulted
from tests.recover.recovery.scan_cases import change, choosing, made, why_unverified


def test_a_scan_only_reads_unless_the_job_allows_a_repair() -> None:
    reading = made(faulted(checkpoint="/ckpt"))
    misspelt = made(faulted(checkpoint="/ckpt", checkpoint_repair="all"))
    world = faulted(checkpoint="/ckpt", checkpoint_repair="set-aside, tracker")
    writing = made(world)

    for spec in (reading, misspelt):
        assert spec["volumes"][0]["persistentVolumeClaim"]["readOnly"] is True
        assert spec["containers"][0]["volumeMounts"][0]["readOnly"] is True
        assert "--write" not in spec["containers"][0]["command"]
    assert "readOnly" not in spec_of_volume(writing) | writing["containers"][0]["volumeMounts"][0]
    mark = f"{only_recovery(world).metadata.name}-1"
    assert writing["containers"][0]["command"][-5:] == [
        "--repair",
        "set-aside,tracker",
        "--write",
        "--mark",
        mark,
    ]


def test_a_scan_beside_the_running_gang_never_writes_whatever_the_job_allows() -> None:
    world = faulted(checkpoint="/ckpt", checkpoint_repair="tracker,set-aside")
    recovery, settings = only_recovery(world), world.settings

    later = create_later(recovery, world.gangs["llm-uid"], world.world(), settings, ())

    assert later is not None
    assert "rekindle.dev/checkpoint-repair" not in later.body["metadata"]["annotations"]
    assert later.body["spec"]["volumes"][0]["persistentVolumeClaim"]["readOnly"] is True
    assert "--write" not in later.body["spec"]["containers"][0]["command"]


def spec_of_volume(spec: dict[str, Any]) -> dict[str, Any]:
    volume: dict[str, Any] = spec["volumes"][0]["persistentVolumeClaim"]
    return volume


def repairing() -> Worlds:
    """Returns a recovery in Choosing whose scan may write and does not answer."""
    world = faulted(checkpoint="/ckpt", checkpoint_repair="tracker")
    advanced(world, Phase.CHOOSING)
    step(world)
    change(world, node="n4", phase=PodPhase.RUNNING, containers=(Container("scan", running=True),))
    return world


def test_a_scan_that_may_write_has_ended_before_the_gang_may_write_there_again() -> None:
    world = repairing()

    assert step(world.later(30)) == ["recovery-choosing"]
    (removal,) = look(world).actions
    assert isinstance(removal, Delete)
    assert removal.grace_s is None, "its object stays until its kubelet says that it has ended"
    change(world, deleting_since=world.now)
    assert acts(look(world.later(5))) == []
    assert only_recovery(world).status.phase is Phase.CHOOSING
    world.scans.clear()

    assert names(why_unverified(world), "n4")


def test_a_scan_that_may_write_and_does_not_end_blocks_the_start_until_it_has_ended() -> None:
    world = repairing()
    step(world.later(30))
    change(world, deleting_since=world.now)

    assert step(world.later(180)) == ["recovery-blocked"]
    status = only_recovery(world).status
    assert status.reason == Reason.PODS_STUCK
    assert names(status.message, "n4", next(iter(world.scans.values())).name)
    assert step(world.later(3600)) == []

    world.scans.clear()
    assert step(world) == ["recovery-resuming"]


def test_a_scan_that_seems_not_to_be_released_yet_is_removed_all_the_same() -> None:
    world = repairing()
    change(world, node="", gated=True, phase=PodPhase.PENDING, containers=())
    (scan,) = world.scans.values()
    gate = scan_trouble.unread(scan, None)
    assert gate != scan_trouble.unread(msgspec.structs.replace(scan, gated=False), None)

    assert step(world.later(30)) == ["recovery-choosing"]
    assert step(world) == ["remove-scan"]
    assert gate in why_unverified(world)


def test_a_scan_that_may_write_is_waited_for_also_when_people_take_the_annotations_back() -> None:
    world = repairing()
    world.change_gang(annotations={})

    assert step(world) == ["recovery-choosing"]
    assert step(world) == ["remove-scan"]
    assert names(why_unverified(world), "rekindle.dev/checkpoint")


def test_what_was_repaired_and_a_tracker_that_still_names_another_are_told_in_the_recovery() -> None:
    world = repairing()
    says = "latest says 'global_step90', so the framework by itself loads that one"
    message = msgspec.json.decode(choice(80)) | {"repaired": ["moved\nit"], "tracker": says}
    scanned(world, msgspec.json.encode(message).decode())

    step(world)

    status = only_recovery(world).status
    assert status.checkpoint is not None
    assert (status.checkpoint.repaired, status.checkpoint.tracker) == (["moved it"], says)
    assert names(status.message, says, "rekindle.dev/checkpoint-repair", "tracker")


@pytest.mark.parametrize("field", ["path", "format", "reason"])
def test_an_answer_with_letters_that_are_drawn_as_nothing_makes_no_row_of_its_own(field: str) -> None:
    """People also read the Recovery through kubectl, which prints the text unchanged."""
    world = choosing()
    answer = msgspec.json.decode(choice(80))
    answer["chosen"][field] = "x" + 100 * "\u3164" + "y"
    scanned(world, msgspec.json.encode(answer).decode())

    step(world)

    status = only_recovery(world).status
    assert "\u3164" not in msgspec.json.encode(status).decode()
    assert status.checkpoint is not None
    assert status.checkpoint.verified is (field == "reason")
