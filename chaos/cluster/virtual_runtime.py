"""Containers as coroutines under virtual time: thousands of ranks cost nothing. For each pod the test chooses
a `Behaviour`, which defines what a container does. VirtualTraining is the behaviour for gangs."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Protocol

from chaos.apiserver.kinds import Object
from chaos.cluster.containers import ContainerRun, Exit

__all__ = ["CHECKPOINT_STEPS", "LINGERS_S", "Behaviour", "Collective", "VirtualRuntime", "VirtualTraining"]

LINGERS_S = "test.rekindle.dev/lingers-s"
"""Annotation on a pod: seconds for which its containers go on after SIGTERM, like a program that first saves
a checkpoint."""
CHECKPOINT_STEPS = 10
"""Number of steps after which a training saves."""


class Behaviour(Protocol):
    async def run(self, run: ContainerRun, say: Callable[[str], None]) -> Exit:
        """Runs the container until it ends by itself. The call is cancelled when the container is killed. Its
        output is dropped unless another behaviour around it reads the output."""
        ...


class VirtualRuntime:
    """A signal ends a container at once, like a program that does not catch it. If its pod has the annotation
    LINGERS_S, SIGTERM ends it only after that many seconds."""

    def __init__(self, behaviour: Callable[[Object], Behaviour]) -> None:
        self._behaviour = behaviour
        self._lingers_s: dict[str, float] = {}
        self._running: dict[str, dict[str, tuple[asyncio.Task[Exit], asyncio.Future[Exit]]]] = {}

    async def start(self, run: ContainerRun) -> asyncio.Future[Exit]:
        behaviour = self._behaviour(run.pod)
        lingers_s = float(run.pod["metadata"].get("annotations", {}).get(LINGERS_S, 0))
        if lingers_s:
            self._lingers_s[run.uid] = lingers_s
        ending: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(behaviour.run(run, _unheard), name=f"container {run.uid}/{run.name}")
        self._running.setdefault(run.uid, {})[run.name] = (task, ending)
        task.add_done_callback(lambda done: self._ended(run, done, ending))
        return ending

    def _ended(self, run: ContainerRun, task: asyncio.Task[Exit], ending: asyncio.Future[Exit]) -> None:
        containers = self._running.get(run.uid, {})
        containers.pop(run.name, None)
        if not containers:
            self._running.pop(run.uid, None)
        if ending.done():
            return
        if task.cancelled():
            ending.set_result(Exit.by_signal(9))
        elif (error := task.exception()) is not None:
            ending.set_exception(error)
        else:
            ending.set_result(task.result())

    def send(self, pod_uid: str, number: int) -> None:
        lingers_s = self._lingers_s.get(pod_uid, 0.0) if number == signal.SIGTERM else 0.0
        if lingers_s:
            asyncio.get_running_loop().call_later(lingers_s, self.kill, pod_uid, Exit.by_signal(number))
        else:
            self.kill(pod_uid, Exit.by_signal(number))

    def kill(self, pod_uid: str, ended: Exit) -> None:
        for task, ending in tuple(self._running.get(pod_uid, {}).values()):
            if not ending.done():
                ending.set_result(ended)
            task.cancel()

    def forget(self, node: str, pod: Object) -> None:
        """Forgets the pod. There are no files to remove."""
        self._lingers_s.pop(pod["metadata"]["uid"], None)


def _unheard(_: str) -> None:
    """Drops the output, because there is no log."""


class Collective:
    """The ranks of one gang meet here: no rank goes on until all of them have come to the same step."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._arrived: dict[int, dict[str, asyncio.Event]] = {}

    async def all_at(self, step: int, uid: str) -> None:
        arrived = self._arrived.setdefault(step, {})
        arrived[uid] = asyncio.Event()
        try:
            if len(arrived) == self._ranks:
                for event in arrived.values():
                    event.set()
                del self._arrived[step]
            await arrived[uid].wait()
        finally:
            if self._arrived.get(step) is arrived:
                del arrived[uid]


class VirtualTraining:
    """One gang: all ranks step together, and a rank that is dead or hangs stops the others without end.

    The gang starts at REKINDLE_RESUME_STEP if that is set, and otherwise at its newest checkpoint.
    """

    def __init__(
        self,
        ranks: int,
        *,
        steps: int,
        start_s: float = 10.0,
        step_s: float = 1.0,
    ) -> None:
        self.checkpoint_step = 0
        self.step = 0
        self._steps = steps
        self._start_s = start_s
        self._step_s = step_s
        self._collective = Collective(ranks)
        self._hanging: set[str] = set()

    def hang(self, pod_uid: str) -> None:
        """Makes that rank stop its progress, without ending."""
        self._hanging.add(pod_uid)

    async def run(self, run: ContainerRun, say: Callable[[str], None]) -> Exit:
        step = int(run.environment.get("REKINDLE_RESUME_STEP", "") or self.checkpoint_step)
        await asyncio.sleep(self._start_s)
        say(f"starting at step {step}")
        while step < self._steps:
            if run.uid in self._hanging:
                await asyncio.Event().wait()
            await self._collective.all_at(step, run.uid)
            await asyncio.sleep(self._step_s)
            step += 1
            say(f"step {step}")
            self.step = step
            if step % CHECKPOINT_STEPS == 0:
                self.checkpoint_step = step
        return Exit(0)
