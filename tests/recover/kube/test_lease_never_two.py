"""Tests that two controllers never hold the lease at once, whatever happens to them and to their way to
the API server."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import NoReturn

from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.apiserver.client import Client
from recover.kube.lease import Elector, LeaseLostError
from recover.policy.settings import Settings
from tests.recover.kube.lease_cases import Lab, Skewed, now_s, played
from tests.recover.kube.rough import Rough, Trouble


class Pod:
    """A process of a fixed identity that is started again whenever it ends, as a kubelet does it."""

    def __init__(self, lab: Lab, identity: str, skew: timedelta) -> None:
        self.rough = Rough(Client(lab.store, identity))
        self._identity, self._clock = identity, Skewed(lab.clock, skew)
        self.elector = self._new()
        self._process: asyncio.Task[NoReturn] | None = None
        self.keeper = asyncio.create_task(self._keep())

    def _new(self) -> Elector:
        return Elector(self.rough, Settings(), self._identity, self._clock, now_s)

    async def _keep(self) -> None:
        while True:
            self.elector = self._new()
            self._process = asyncio.create_task(self.elector.run())
            await asyncio.wait([self._process])
            error = None if self._process.cancelled() else self._process.exception()
            assert error is None or isinstance(error, LeaseLostError), error
            self.elector = self._new()
            await asyncio.sleep(1)

    def kill(self) -> None:
        if self._process is not None:
            self._process.cancel()

    @property
    def holds(self) -> bool:
        return self.elector.left_s() > 0


class Event(Trouble, frozen=True):
    """An event for one of the pods, and the time since the event before."""

    after_s: float
    pod: int
    kills: bool
    touches: bool


times = st.floats(0, 20).map(lambda t: round(t, 2))


events = st.builds(
    Event,
    after_s=times,
    pod=st.integers(0, 2),
    kills=st.booleans(),
    touches=st.booleans(),
    requests=st.integers(0, 8),
    there_s=times,
    back_s=times,
    fate=st.sampled_from(["arrives", "is lost", "arrives late", "answer is lost"]),
)


@given(
    script=st.lists(events, max_size=12),
    skews=st.lists(st.integers(-9, 9), min_size=3, max_size=3),
    deleted_at_s=st.none() | st.floats(0, 100),
)
@settings(max_examples=60, deadline=None)
def test_never_do_two_hold_the_lease_and_when_trouble_ends_one_leads(
    script: list[Event], skews: list[int], deleted_at_s: float | None
) -> None:
    """The events are requests and answers that are late, lost or overtaken, kills and restarts, wrong wall
    clocks, and people's edits."""

    async def story(lab: Lab) -> None:
        pods = [Pod(lab, f"pod-{n}", timedelta(hours=skew)) for n, skew in enumerate(skews)]
        watcher = asyncio.create_task(_two_hold(pods))
        if deleted_at_s is not None:
            asyncio.get_running_loop().call_at(deleted_at_s, lab.delete)
        for event in script:
            await asyncio.sleep(event.after_s)
            pod = pods[event.pod]
            pod.rough.meets(event)
            if event.kills:
                pod.kill()
            if event.touches:
                lab.touch()
        for pod in pods:
            pod.rough.is_smooth()
        await asyncio.sleep(max(0.0, (deleted_at_s or 0.0) - now_s()) + 100)
        assert not watcher.done(), watcher.result()
        assert [pod.elector.leading.is_set() for pod in pods].count(True) == 1

    played(story)


async def _two_hold(pods: list[Pod]) -> str:
    """Returns only if two pods hold the lease at once."""
    while len(held := [n for n, pod in enumerate(pods) if pod.holds]) < 2:
        await asyncio.sleep(0.05)
    return f"pods {held} hold the lease at {now_s()} s"
