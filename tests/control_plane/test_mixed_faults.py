"""Faults of every kind occur in turn while the control plane itself fails, and each recovery ends correctly.

REKINDLE_MIXED_S sets for how many seconds new faults are made (default 60); REKINDLE_MIXED_SEED repeats a
run. `pytest -s` shows the seed, each fault with its disturbances, and the memory of the controller:

    REKINDLE_CONTROL_PLANE=1 REKINDLE_MIXED_S=1800 pytest -s tests/control_plane/test_mixed_faults.py
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from statistics import linear_regression
from typing import Any

import pytest

from detectors.client.kubeapi import ApiError, KubeApi, ReplyLost
from detectors.wire.resource import MergePatch
from recover.k8s.kinds import INCIDENTS, JOBS, NODES, PODS, RECOVERIES
from tests.control_plane.build import cached
from tests.control_plane.cases import IN_STEP, indexed_job
from tests.control_plane.controllers import SHIPPED_LEASE
from tests.control_plane.interference import Container, Wire, beside, kept_running, pss_bytes, wired
from tests.control_plane.plane import ControlPlane, started
from tests.control_plane.stage import ANSWERED_S, NAMESPACE, RealStage, raised

pytestmark = pytest.mark.control_plane

MIXED_S = float(os.environ.get("REKINDLE_MIXED_S", "60"))
SEED = int(os.environ.get("REKINDLE_MIXED_SEED", str(random.randrange(10_000) if MIXED_S > 60 else 1127)))
"""A long run draws a new seed. The short run is the same each time, so that it fails only after a change."""
NODES_COUNT, RANKS = 5, 2
LIMIT_S = 420.0
"""Time limit of one recovery in seconds: outages, a lease that must expire, a kubelet's pause, and the five
minutes for which Kubernetes' Job controller may forget a job (recover/recovery/wake.py) may add up."""
APART_S = 12.0
"""Least time in seconds between two kernel lines of one node. Within ten seconds the agent takes the second
line for a repetition of the first (detectors/folds/chain.py), which a person has answered by the release of
the node: Rekindle would act on the repetition ten minutes later at the latest."""
DEAD_S = (1.0, 6.0)
FORGOTTEN_S = 15.0
ALONE_S = 60.0
"""Time in seconds after which a gang that trains without a Recovery needs no Recovery."""
_NONE_NEEDED: dict[str, Any] = {"status": {"phase": "none was needed"}}
SILENCE_S = 8
SETTINGS = [
    "mode=recover",
    *SHIPPED_LEASE,
    "budgets.quarantined_percent_max=100",
    "budgets.pool_percent_max=100",
    "budgets.quarantines_per_hour_max=1000",
    "budgets.brake_percent=100",
    "budgets.brake_nodes_min=1000",
]
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with started(cached(), controllers=True, silence_s=SILENCE_S) as own:
        yield own


async def test_each_recovery_ends_rightly_whatever_fails_meanwhile(plane: ControlPlane) -> None:
    print(f"\nseed {SEED}, {MIXED_S:g} s")
    chance = random.Random(SEED)
    began_s = time.monotonic()
    memory: list[tuple[float, float, int]] = []
    async with laid(plane, chance) as lab:
        number = 0
        while number < 1 or time.monotonic() - began_s < MIXED_S:
            number += 1
            await lab.round(number)
            memory.append((time.monotonic() - began_s, lab.memory_mib(), lab.container.restarts))
    for restarts in sorted({restarts for *_, restarts in memory}):
        of_one = [(at_s, mib) for at_s, mib, which in memory if which == restarts]
        if len(of_one) > 2:
            slope = 3600 * linear_regression(*zip(*of_one, strict=True)).slope
            told = f"{of_one[0][1]:.1f} -> {of_one[-1][1]:.1f} MiB, {slope:+.1f} MiB an hour"
            print(f"memory of controller {restarts + 1} in {of_one[-1][0] - of_one[0][0]:.0f} s: {told}")
    print(f"{number} recoveries in {time.monotonic() - began_s:.0f} s: {lab.told()}")


class Lab:
    """Runs rounds: each round has a job, one fault of the job, and other failures until the job trains
    again."""

    def __init__(
        self,
        plane: ControlPlane,
        chance: random.Random,
        stage: RealStage,
        container: Container,
        wires: tuple[Wire, Wire],
    ) -> None:
        self.plane = plane
        self.stage = stage
        self.container = container
        self._wires = wires
        self._chance = chance
        self._faults: list[str] = []
        self._disturbances: list[str] = []
        self._is_cordoned = False
        self._nudged: dict[str, float] = {}
        self._struck_s: dict[str, float] = {}
        """Time of the last kernel line of each node."""
        self._printed: set[str] = set()
        """Uids of pods that have made their first steps after a fault."""

    def memory_mib(self) -> float:
        return pss_bytes(self.container.child) / MIB

    def told(self) -> str:
        return ", ".join(self._faults + self._disturbances)

    async def round(self, number: int) -> None:
        name = f"llm-{number}"
        await self.stage.create(JOBS, indexed_job(name, ranks=RANKS), NAMESPACE)
        pods = await self.until("running ranks", lambda: self._ranks(name))
        for pod in pods:
            await self.stage.steps(pod, first=1, last=100)
        await self.until("controller in step", self._in_step)
        await asyncio.sleep(1.5)  # the job's first steps are known
        fault = self._chance.choice([self._xid, self._silent_node, self._crash, self._deleted])
        disturbances = self._chance.sample(
            [self._controller, self._api_server, self._etcd, self._cut], k=self._chance.choice([0, 1, 1, 2])
        )
        words = [one.__name__.strip("_") for one in (fault, *disturbances)]
        print(f"{time.strftime('%X')} round {number}: {' + '.join(words)}", flush=True)
        began_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for disturb in disturbances:
                group.create_task(self._later(disturb))
            struck = self._chance.choice(pods)
            bad = await self.answered(lambda: fault(struck, pods))
        old = frozenset(pod["metadata"]["uid"] for pod in pods)
        await self.until("ranks made anew", lambda: self._trains(name, old))
        trains_s = time.monotonic()
        may_lack = fault == self._deleted

        async def ended() -> Any:
            await self._trains(name, old)  # also after another start
            return await self._succeeded(name, may_lack=may_lack, since_s=trains_s)

        recovery = await self.until("Recovery Succeeded", ended)
        new = await self.until("ranks", lambda: self._ranks(name, old))
        try:
            await self._judge(name, recovery, bad, new, is_node=self._is_cordoned)
        except AssertionError as error:
            pytest.fail(f"seed {SEED}, round {number}: {error}\n{await self._all_told()}")
        self._faults.append(f"{words[0]} {time.monotonic() - began_s:.0f} s")
        self._disturbances += [word for word in words[1:] if word not in self._disturbances]
        await self._clean(name, bad)

    async def _judge(self, name: str, recovery: Any, bad: str, new: list[Any], *, is_node: bool) -> None:
        """Asserts that there is at most one Recovery, that no rank is on a broken node, and that only that
        node is cordoned."""
        if recovery is not _NONE_NEEDED:
            assert recovery["status"]["resumedStep"] == 101
        if is_node:
            assert bad not in {pod["spec"]["nodeName"] for pod in new}
        cordoned = await self.until("cordons as they should be", lambda: self._cordons_are(bad))
        assert cordoned
        job = await self.answered(lambda: self.stage.get(JOBS, name, NAMESPACE))
        assert job["spec"]["suspend"] is False

    async def _cordons_are(self, bad: str) -> bool:
        nodes = await self.stage.all(NODES)
        out = {n["metadata"]["name"] for n in nodes if n["spec"].get("unschedulable")}
        return out == ({bad} if self._is_cordoned else set())

    async def _clean(self, name: str, bad: str) -> None:
        """Removes the job, and waits until all nodes are in service and all Incidents are closed."""
        await self.answered(
            lambda: self.stage.api.request(
                "DELETE", JOBS.path(name, NAMESPACE), body={"propagationPolicy": "Background"}
            )
        )
        if self._is_cordoned:
            await self.answered(lambda: self.stage.uncordons(bad))
        await self.until("nodes in service", self._all_in_service)
        await self.until("Incidents closed", self._all_closed)

    # --- faults: each returns its node --------------------------------------------------------------------

    async def _xid(self, pod: Any, _: list[Any]) -> str:
        """Breaks always the first GPU, which may already have been lost in the round before."""
        self._is_cordoned = True
        bad = str(pod["spec"]["nodeName"])
        await asyncio.sleep(max(0.0, self._struck_s.get(bad, -math.inf) + APART_S - time.monotonic()))
        self._struck_s[bad] = time.monotonic()
        host = self.stage.agents[bad].host
        pci = host.gpus[0].pci.removesuffix(".0")
        host.append_kmsg(f"NVRM: Xid (PCI:{pci}): 79, pid=4242, name=python3, GPU has fallen off the bus.")
        return bad

    async def _silent_node(self, pod: Any, pods: list[Any]) -> str:
        """A GPU is lost, and the kubelet with it for a while: nobody knows whether the old ranks have
        ended."""
        bad = await self._xid(pod, pods)
        await self.stage.patch(NODES, bad, {"metadata": {"labels": {"type": None}}})
        await asyncio.sleep(SILENCE_S + self._chance.uniform(*DEAD_S))
        await self.answered(lambda: self.stage.patch(NODES, bad, {"metadata": {"labels": {"type": "kwok"}}}))
        return bad

    async def _crash(self, pod: Any, _: list[Any]) -> str:
        self._is_cordoned = False
        await self.stage.end(pod, exit_code=1)
        return str(pod["spec"]["nodeName"])

    async def _deleted(self, pod: Any, pods: list[Any]) -> str:
        """Deletes a rank. Its peers fail a moment later, as ranks do when the connection to a peer is closed.
        If no controller saw the deletion, because the API server was down, their failure is the first sign of
        it."""
        self._is_cordoned = False
        try:
            await self.stage.api.request("DELETE", PODS.path(pod["metadata"]["name"], NAMESPACE))
        except ApiError as error:
            if error.status != 404:  # the answer to an earlier try was lost
                raise
        await asyncio.sleep(self._chance.uniform(*DEAD_S))
        for peer in pods:
            if peer is not pod:
                await self.answered(partial(self._fails, peer))
        return str(pod["spec"]["nodeName"])

    async def _fails(self, pod: Any) -> None:
        """Lets the pod fail, unless a recovery has stopped the pod."""
        try:
            now = await self.stage.get(PODS, pod["metadata"]["name"], NAMESPACE)
            if "deletionTimestamp" not in now["metadata"]:
                await self.stage.end(pod, exit_code=1)
        except ApiError as error:
            if error.status != 404:
                raise

    # --- disturbances, at any moment of the recovery --------------------------------------------------------

    async def _later(self, disturb: Callable[[], Awaitable[None]]) -> None:
        await asyncio.sleep(self._chance.uniform(0.0, 5.0))
        await disturb()

    async def _controller(self) -> None:
        self.container.child.process.kill()

    async def _api_server(self) -> None:
        await self._is_dead("kube-apiserver")

    async def _etcd(self) -> None:
        await self._is_dead("etcd")

    async def _cut(self) -> None:
        for _ in range(5):
            for wire in self._wires:
                wire.cut()
            await asyncio.sleep(1.0)

    async def _is_dead(self, name: str) -> None:
        program = self.plane.programs[name]
        program.kill()
        await asyncio.sleep(self._chance.uniform(*DEAD_S))
        program.start()

    # --- questions ------------------------------------------------------------------------------------------

    async def _in_step(self) -> bool:
        return IN_STEP in self.container.child.log.read_text(encoding="utf-8")

    async def _ranks(self, name: str, but: frozenset[str] = frozenset()) -> list[Any]:
        pods = await self.stage.all(PODS, NAMESPACE, f"batch.kubernetes.io/job-name={name}")
        await self._nudge(pods)
        new = [p for p in pods if p["metadata"]["uid"] not in but and p["status"]["phase"] == "Running"]
        return new if len(new) == RANKS and not any("deletionTimestamp" in p["metadata"] for p in new) else []

    async def _trains(self, name: str, old: frozenset[str]) -> bool:
        """The ranks make steps once all of them run. Returns whether all of them run."""
        ranks = await self._ranks(name, old)
        for pod in ranks:
            if pod["metadata"]["uid"] not in self._printed:
                self._printed.add(pod["metadata"]["uid"])
                steps = ["step 101 loss 0.3", "step 102 loss 0.3"]
                self.stage.agents[pod["spec"]["nodeName"]].prints(pod, steps)
        return bool(ranks)

    async def _nudge(self, pods: list[Any]) -> None:
        """Changes pods that KWOK has forgotten. KWOK forgets a pod if the API server fails while KWOK starts
        the pod, which no kubelet does. Any change of the pod reminds KWOK."""
        for meta in (pod["metadata"] for pod in pods if _awaits_its_kubelet(pod)):
            if time.monotonic() - self._nudged.get(meta["uid"], 0.0) > FORGOTTEN_S:
                self._nudged[meta["uid"]] = time.monotonic()
                note = {"metadata": {"annotations": {"reminder": str(time.monotonic())}}}
                path = PODS.path(meta["name"], NAMESPACE)
                await self.stage.api.request("PATCH", path, body=note, content_type=MergePatch)

    async def _succeeded(self, name: str, *, may_lack: bool, since_s: float) -> Any:
        """Returns the Recovery if it has succeeded, otherwise None. With `may_lack` there may be no Recovery:
        while no controller was running, the Job itself may have replaced each of its ranks. Then the gang
        trains, and Rekindle leaves it alone."""
        mine = [r for r in await self.stage.all(RECOVERIES, NAMESPACE) if r["spec"]["gang"]["name"] == name]
        assert len(mine) <= 1, [(r["metadata"]["name"], r["status"]) for r in mine]
        if not mine and may_lack and time.monotonic() - since_s > ALONE_S and await self._all_closed():
            return _NONE_NEEDED
        found = mine[0] if mine else {"status": {}}
        phase = found["status"].get("phase")
        assert phase not in ("Escalated", "Failed"), found["status"]
        return found if phase == "Succeeded" else None

    async def _all_in_service(self) -> bool:
        nodes = await self.stage.all(NODES)
        return not any(n["spec"].get("taints") or n["spec"].get("unschedulable") for n in nodes)

    async def _all_closed(self) -> bool:
        return all(i["status"].get("phase") == "Closed" for i in await self.stage.all(INCIDENTS))

    async def answered(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Returns the answer once the API server answers."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                try:
                    return await ask()
                except (ApiError, ReplyLost) as error:
                    if isinstance(error, ApiError) and error.status < 500 and error.status != 429:
                        raise
                    await asyncio.sleep(0.2)

    async def until(self, what: str, found: Callable[[], Awaitable[Any]]) -> Any:
        try:
            async with asyncio.timeout(LIMIT_S):
                while True:
                    with contextlib.suppress(ApiError, ReplyLost):
                        if answer := await found():
                            return answer
                    await asyncio.sleep(0.2)
        except TimeoutError:
            pytest.fail(f"seed {SEED}: no {what} in {LIMIT_S:g} s\n{await self._all_told()}")

    async def _all_told(self) -> str:
        told = [line async for line in self.stage._told()]
        pods = await self.answered(lambda: self.stage.all(PODS, NAMESPACE))
        told += [
            f"{pod['metadata']['name']}, created {pod['metadata']['creationTimestamp']}, is on "
            f"{pod['spec'].get('nodeName')}; affinity {pod['spec'].get('affinity')}"
            for pod in pods
        ]
        nodes = await self.answered(lambda: self.stage.all(NODES))
        told += [f"{n['metadata']['name']} {n['metadata'].get('annotations')} {n['spec']}" for n in nodes]
        return "\n".join([*told, self.container.child.last_lines(60)])


def _awaits_its_kubelet(pod: Any) -> bool:
    """Whether the pod has waited longer than KWOK needs to start a pod."""
    scheduled = [c for c in pod["status"].get("conditions", ()) if c["type"] == "PodScheduled"]
    if pod["status"]["phase"] != "Pending" or not pod["spec"].get("nodeName") or not scheduled:
        return False
    at = datetime.fromisoformat(scheduled[0]["lastTransitionTime"])
    return (datetime.now(UTC) - at).total_seconds() > FORGOTTEN_S


@asynccontextmanager
async def laid(plane: ControlPlane, chance: random.Random) -> AsyncIterator[Lab]:
    """Controller and agents reach the API server over separate wires. The controller is restarted whenever it
    ends."""
    async with contextlib.AsyncExitStack() as stack:
        agents, seen_by_agents = await stack.enter_async_context(wired(plane))
        controller, seen_by_controller = await stack.enter_async_context(wired(plane))
        stage = await stack.enter_async_context(
            raised(seen_by_agents, nodes=NODES_COUNT, settings=SETTINGS, agents=NODES_COUNT)
        )
        stage.api = await stack.enter_async_context(KubeApi(plane.credentials(), timeout_s=ANSWERED_S))
        command = beside(stage.controller, seen_by_agents, seen_by_controller)
        await stage.controller.stop()
        log = plane.folder / "kept-controller.log"
        log.unlink(missing_ok=True)
        container = await stack.enter_async_context(kept_running(command, log))
        yield Lab(plane, chance, stage, container, (controller, agents))
