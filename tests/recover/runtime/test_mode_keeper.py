"""Tests the ConfigMap `rekindle-state`: a restart forgets nothing, and a mode that was raised meanwhile
begins now."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from chaos.apiserver.client import Client
from chaos.apiserver.deletion import Deletion
from chaos.apiserver.store import MemoryCluster
from recover.k8s.kinds import CONFIGMAPS, NAMESPACES
from recover.model import NamespaceView
from recover.model.modes import Mode, Modes
from recover.policy.settings import LowerModes, Settings
from recover.runtime.mode_keeper import STATE, ModeKeeper
from recover.runtime.observe import Observer
from tests.builders import NOW

OWN = Settings().namespace


class HandClock:
    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> datetime:
        return self.at


class Lab:
    """Runs controllers one after another over one store. Each sees the namespaces as they are at that
    time."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.store = MemoryCluster(self.clock.now)
        self.store.create(NAMESPACES, {"metadata": {"name": OWN}})
        self.words: dict[str, str | None] = {"ml": None}
        self.observer: Observer

    @property
    def kept(self) -> dict[str, str]:
        data: dict[str, str] = self.store.read(CONFIGMAPS, STATE, OWN).body["data"]
        return data

    def rewrite(self, **data: str | None) -> None:
        self.store.patch(CONFIGMAPS, STATE, {"data": data}, namespace=OWN)

    @asynccontextmanager
    async def controller(
        self, mode: Mode = Mode.RECOVER, *, waits_s: float = 0.0, **lower: Any
    ) -> AsyncIterator[ModeKeeper]:
        settings = Settings(mode=mode, modes=LowerModes(**lower))
        client = Client(self.store, "controller")
        self.observer = Observer(client, settings, lambda: None)
        self.say()
        keeper = ModeKeeper(client, self.observer, settings, self.clock)
        self.clock.at += timedelta(seconds=waits_s)
        await keeper.load()
        writing = asyncio.create_task(keeper.run())
        try:
            yield keeper
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    async def modes(self, mode: Mode = Mode.RECOVER, *, waits_s: float = 0.0, **lower: Any) -> Modes:
        """Returns the modes of a controller that starts now, once it leads."""
        async with self.controller(mode, waits_s=waits_s, **lower) as keeper:
            return keeper.now()

    def say(self, **words: str | None) -> None:
        self.words |= words
        self.observer.namespaces.rows.clear()
        for name, word in self.words.items():
            notes = {"rekindle.dev/mode": word} if word is not None else {}
            self.observer.namespaces.rows[name] = NamespaceView(name, annotations=notes)

    def later(self, minutes: float) -> datetime:
        self.clock.at += timedelta(minutes=minutes)
        return self.clock.at

    async def written(self) -> None:
        writes = len(self.store.audit)
        async with asyncio.timeout(20):
            while len(self.store.audit) == writes:
                await asyncio.sleep(0.001)


async def test_a_restart_is_no_promotion_and_writes_nothing() -> None:
    lab = Lab()
    lower: dict[str, Any] = {"pools": {"a": Mode.OBSERVE}, "namespaces": {"x": Mode.RECOVER}}
    before = await lab.modes(Mode.REPAIR, **lower)
    writes = len(lab.store.audit)
    lab.later(5)

    assert await lab.modes(Mode.REPAIR, **lower) == before
    assert before.cluster.since == dict.fromkeys(Mode, NOW)
    assert len(lab.store.audit) == writes
    assert (lab.kept["mode"], lab.kept["since"]) == ("repair", NOW.isoformat())


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_mode_never_begins_in_the_future(*, is_restarted: bool) -> None:
    """A controller whose clock is an hour ahead writes its times, and then the clock is set right. Otherwise
    each fault of the next hour would seem older than the mode."""
    lab = Lab()
    lab.later(60)
    async with lab.controller(pools={"a": Mode.OBSERVE}) as keeper:
        lab.clock.at = NOW
        if not is_restarted:
            assert keeper.now().cluster.since[Mode.RECOVER] == NOW
            await asyncio.sleep(0.01)
    if is_restarted:
        modes = await lab.modes(pools={"a": Mode.OBSERVE})
        assert modes.cluster.since == {Mode.OBSERVE: NOW, Mode.RECOVER: NOW}

    assert lab.kept["since"] == NOW.isoformat()


async def test_what_is_raised_by_the_settings_begins_with_the_controller_that_reads_them() -> None:
    lab = Lab()
    await lab.modes(Mode.RECOVER, pools={"a": Mode.OBSERVE, "b": Mode.OBSERVE})
    raised = lab.later(5)
    await lab.modes(Mode.RECOVER, pools={"b": Mode.OBSERVE})
    lab.later(5)

    modes = await lab.modes(Mode.RECOVER, pools={"b": Mode.OBSERVE})

    assert modes.pools["a"].since == {Mode.RECOVER: raised, Mode.REPAIR: raised}
    assert modes.pools["b"].since == {}
    assert modes.cluster.since[Mode.RECOVER] == NOW


@pytest.mark.parametrize(("waits_s", "counts_from_s"), [(0, 0), (90, 0), (600, 600)])
async def test_a_promotion_begins_with_the_process_even_if_it_leads_later_unless_it_stood_by_for_long(
    waits_s: float, counts_from_s: float
) -> None:
    lab = Lab()
    await lab.modes(Mode.OBSERVE, pools={"a": Mode.OBSERVE})
    raised = lab.later(5)

    modes = await lab.modes(Mode.RECOVER, waits_s=waits_s)

    begins = raised + timedelta(seconds=counts_from_s)
    assert modes.cluster.since[Mode.RECOVER] == begins
    assert modes.pools["a"].since[Mode.RECOVER] == begins


async def test_a_process_that_is_older_than_the_kept_mode_promotes_when_it_leads() -> None:
    lab = Lab()
    client, settings = Client(lab.store, "controller"), Settings(mode=Mode.RECOVER)
    older = ModeKeeper(client, Observer(client, settings, lambda: None), settings, lab.clock)
    lab.later(0.5)
    await lab.modes(Mode.OBSERVE)
    leads = lab.later(0.5)

    await older.load()

    assert older.now().cluster.since[Mode.RECOVER] == leads


async def test_the_cluster_keeps_the_time_of_what_it_goes_on_doing() -> None:
    lab = Lab()
    await lab.modes(Mode.RECOVER)
    repaired = lab.later(5)
    assert (await lab.modes(Mode.REPAIR)).cluster.since[Mode.REPAIR] == repaired
    lab.later(5)
    await lab.modes(Mode.RECOVER)
    again = lab.later(5)

    since = (await lab.modes(Mode.REPAIR)).cluster.since

    assert (since[Mode.RECOVER], since[Mode.REPAIR]) == (NOW, again)


async def test_a_namespace_whose_people_end_its_observation_is_raised_then_also_after_a_restart() -> None:
    lab = Lab()
    async with lab.controller() as keeper:
        lab.say(ml="observe")
        assert keeper.now().namespaces["ml"].mode is Mode.OBSERVE
        await lab.written()
        raised = lab.later(5)
        lab.say(ml=None)
        assert keeper.now().namespaces["ml"].since[Mode.RECOVER] == raised
        await lab.written()
    lab.later(5)

    assert (await lab.modes()).namespaces["ml"].since[Mode.RECOVER] == raised


async def test_an_observation_that_ended_while_no_controller_ran_ended_when_one_began() -> None:
    lab = Lab()
    lab.words["ml"] = "observe"
    await lab.modes()
    lab.words["ml"] = None
    began = lab.later(30)

    assert (await lab.modes()).namespaces["ml"].since[Mode.RECOVER] == began


async def test_a_namespace_that_is_gone_is_forgotten() -> None:
    lab = Lab()
    lab.words["ml"] = "observe"
    await lab.modes()
    del lab.words["ml"]

    assert (await lab.modes()).namespaces == {}


async def test_a_state_that_somebody_deleted_is_there_again_with_the_next_word() -> None:
    lab = Lab()
    async with lab.controller() as keeper:
        lab.store.delete(CONFIGMAPS, STATE, Deletion(), OWN)
        lab.say(ml="observe")
        assert keeper.now().namespaces["ml"].mode is Mode.OBSERVE
        await lab.written()

    modes = await lab.modes()

    assert (modes.cluster.since[Mode.RECOVER], modes.namespaces["ml"].mode) == (NOW, Mode.OBSERVE)


async def test_a_state_of_the_cluster_alone_is_taken_over() -> None:
    lab = Lab()
    await lab.modes()
    lab.rewrite(mode="recover", since=(NOW - timedelta(days=3)).isoformat(), modes=None)

    assert (await lab.modes()).cluster.since[Mode.RECOVER] == NOW - timedelta(days=3)


@pytest.mark.parametrize(
    "modes",
    [
        "{",
        '{"cluster": {"mode": "recover", "since": {"recover": "2026-11-21T12:00:00"}}}',
        '{"cluster": {"mode": "recover", "since": {}}}',
        '{"cluster": {"mode": "reset", "since": {}}}',
    ],
)
async def test_a_state_that_cannot_be_read_begins_now_and_is_written_anew(modes: str) -> None:
    lab = Lab()
    await lab.modes()
    lab.rewrite(modes=modes)
    now = lab.later(5)

    assert (await lab.modes()).cluster.since[Mode.RECOVER] == now
    assert msgspec.json.decode(lab.kept["modes"], type=Modes).cluster.since[Mode.RECOVER] == now
