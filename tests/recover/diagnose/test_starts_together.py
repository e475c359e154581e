"""Gangs that start together wait for one another for a moment: the controller reports nothing new, and no
Warning."""

from __future__ import annotations

import msgspec

from recover.api import Phase, PhaseTime
from recover.model import Mark
from recover.model.actions import Plan
from recover.recovery.advance import advance
from tests.acting import acts, advanced, only_recovery
from tests.builders import Worlds, gang
from tests.recover.triage.test_capacity import struck, template


def beside_a_start(world: Worlds) -> Worlds:
    """Adds another gang that was started a moment ago and whose ranks are not bound to nodes yet."""
    other = gang("bert", ranks=3, templates={"Worker": template()})
    mine = only_recovery(world)
    ref = msgspec.structs.replace(mine.spec.gang, name="bert", uid="bert-uid")
    entered = PhaseTime(phase=Phase.RESUMING, attempt=1, at=world.now)
    world.recoveries["ml/its"] = msgspec.structs.replace(
        mine,
        metadata=msgspec.structs.replace(mine.metadata, name="its"),
        spec=msgspec.structs.replace(mine.spec, gang=ref),
        status=msgspec.structs.replace(mine.status, phase=Phase.RESUMING, phases=[entered]),
    )
    mark = Mark(recovery="its", attempt=1, did="resumed")
    world.gangs[other.ref.uid] = msgspec.structs.replace(other, mark=mark)
    return world


def look_at_mine(world: Worlds) -> Plan:
    mine = next(r for r in world.recoveries.values() if r.metadata.name != "its")
    return advance(mine, world.world(), world.settings, world.now)


def test_a_wait_for_a_gang_that_starts_at_the_same_time_is_no_news_for_some_seconds() -> None:
    world = struck(nodes=6)
    advanced(world, Phase.RESUMING)
    beside_a_start(world)

    first = look_at_mine(world)
    assert acts(first) == []
    assert first.requeue_after_s is not None
    assert 0 < first.requeue_after_s <= 3

    world.later(first.requeue_after_s)
    assert acts(look_at_mine(world)) == ["recovery-resuming"]
