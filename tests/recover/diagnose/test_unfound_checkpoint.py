"""A Recovery names, in addition to its chosen checkpoint, a later checkpoint that only the log mentions,
and what the scan did not read."""

from __future__ import annotations

import msgspec
import pytest

from recover.api import Phase
from recover.diagnose.witnesses import witnesses
from tests.acting import advanced, only_recovery, scanned, step
from tests.builders import NOW, Worlds, cluster, gang
from tests.facts import names
from tests.recover.recovery.phase_cases import choice, faulted

NOTHING = msgspec.json.encode({"chosen": None, "found": 0}).decode()


def resuming(says: str, *, saved: int | None = 90) -> Worlds:
    world = faulted(checkpoint="/ckpt")
    world.tells(step=saved, at=NOW)
    advanced(world, Phase.CHOOSING)
    step(world)
    scanned(world, says)
    advanced(world, Phase.RESUMING)
    return world


@pytest.mark.parametrize("says", [choice(80), NOTHING])
def test_a_checkpoint_of_which_only_the_log_tells_is_told_in_the_recovery(says: str) -> None:
    status = only_recovery(resuming(says)).status

    assert status.checkpoint is not None
    unfound = status.checkpoint.unfound
    assert names(unfound, "llm-worker-0", 90, "2026-11-21 12:00:00", "/ckpt")
    assert unfound in status.message
    (verified,) = [c for c in status.conditions if c.type == "CheckpointVerified"]
    assert unfound in verified.message


@pytest.mark.parametrize("saved", [None, 70, 80, 81])
def test_a_log_that_tells_of_the_same_checkpoint_or_of_none_is_no_news(saved: int | None) -> None:
    """Frameworks differ by one in how they number steps."""
    status = only_recovery(resuming(choice(80), saved=saved)).status

    assert status.checkpoint is not None
    assert status.checkpoint.unfound == ""


def test_what_the_scan_did_not_read_of_its_choice_is_told_in_the_recovery() -> None:
    unread = "'model.safetensors' was judged by its name and size, since only its owner may read it"
    status = only_recovery(resuming(choice(90, reason=unread))).status

    assert status.checkpoint is not None
    assert (status.checkpoint.verified, status.checkpoint.reason) == (True, unread)
    (verified,) = [c for c in status.conditions if c.type == "CheckpointVerified"]
    assert verified.status == "True"
    assert names(verified.message, "/ckpt/step-80", unread)


def test_a_rank_that_tells_of_checkpoints_is_a_witness_of_a_large_gang() -> None:
    world = cluster(12).running(gang(ranks=12))
    world.tells(rank=9, at=NOW)
    every, none = (
        witnesses(world.world(), world.gangs["llm-uid"], lost, []) for lost in (["llm-worker-7"], [])
    )

    assert every[0].pod == "llm-worker-7"
    assert [len(every), len(none)] == [8, 8]
    assert {"llm-worker-9"} <= {w.pod for w in every} & {w.pod for w in none}
