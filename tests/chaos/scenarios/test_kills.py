"""The controller is killed with SIGKILL right after a write took effect and before the controller gets the
reply.

The simulated API server applies the write, withholds the reply and kills. A new controller process, which
knows only the API objects, must complete the recovery: each attempt stops the job once and starts it once.
REKINDLE_KILLS sets how often the kill happens at each moment (default 1). `pytest -s` shows the kills.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from chaos.apiserver.store import Audit
from chaos.cluster.containers import Exit
from chaos.cluster.podworker import KubeletSettings
from chaos.cluster.world import Shape
from chaos.controllers.nodes import OUT_OF_SERVICE, LifecycleSettings
from chaos.scenarios import ledger
from chaos.scenarios.faults import inject, rank_pod, wait_for
from chaos.scenarios.manifests import NAMESPACE, training_job
from chaos.scenarios.scenario import Fault, Job, PodCrash, When, Xid
from chaos.scenarios.stage import CONTROLLER, Stage, raised
from chaos.training.launch import free_port
from recover.api import Phase, Recovery
from recover.k8s.kinds import CONFIGMAPS, NODES, PODS, PYTORCHJOBS, RECOVERIES
from recover.workloads.patches import MARK

pytestmark = pytest.mark.processes

KILLS = int(os.environ.get("REKINDLE_KILLS", "1"))
LIMIT_S = 60.0
JOB = "llm"
TRAINING = Job(ranks=2, steps=100_000, step_time_s=0.05, checkpoint_every=5, shard_write_s=0.0)
STEPS_BETWEEN = 12
"""Number of steps between faults. Each fault strikes after a newer checkpoint than the previous fault, so
that the gang makes progress."""
GPU_LOST = Fault(when=When(step=1), xid=Xid(code=79, rank=1))
CRASH = Fault(when=When(step=1), pod_crash=PodCrash(rank=1))

Matches = Callable[[Stage, Audit], bool]


# --- the moments -------------------------------------------------------------------------------------------


class Moment(msgspec.Struct, frozen=True):
    """A write of the controller, identified by what it changed."""

    name: str
    matches: Matches


def entering(phase: Phase) -> Moment:
    """Returns the moment of the write that takes a recovery into that phase."""

    def matches(stage: Stage, entry: Audit) -> bool:
        return entry.resource == RECOVERIES and _phase_after(stage, entry) is phase

    return Moment(phase, matches)


def _phase_after(stage: Stage, entry: Audit) -> Phase:
    found = stage.cluster.store.read(RECOVERIES, entry.name, entry.namespace).body
    return msgspec.convert(found, Recovery, strict=False).status.phase


def _suspended(stage: Stage, entry: Audit, *, now: bool) -> bool:
    if entry.resource != PYTORCHJOBS:
        return False
    job = stage.cluster.store.read(PYTORCHJOBS, entry.name, entry.namespace).body
    return job["spec"]["runPolicy"]["suspend"] is now


STATES = tuple(
    entering(phase)
    for phase in (Phase.PLANNED, Phase.STOPPING, Phase.CHOOSING, Phase.RESUMING, Phase.VERIFYING)
)
STOP = Moment("stop of the job", lambda stage, entry: _suspended(stage, entry, now=True))
RESUME = Moment("resume of the job", lambda stage, entry: _suspended(stage, entry, now=False))
LIFT = "end of the mark"
"""The write after a recovery that removes what the recovery's start has written into the job."""
ONCE = [STOP.name, RESUME.name]
ACTS = (
    Moment("cordon of the node", lambda _, entry: entry.resource == NODES),
    STOP,
    Moment("create of the scan", lambda _, entry: entry.resource == PODS and entry.verb == "create"),
    Moment(
        "write of the environment",
        lambda _, entry: entry.resource == CONFIGMAPS and entry.name == f"{JOB}-rekindle-pytorchjob",
    ),
    RESUME,
)


class JobWrites:
    """Records what each write of the controller did to the job, in order. Every write passes here before its
    reply is sent."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.done: list[str] = []
        self.strike: Callable[[Audit], Awaitable[None]] | None = None
        stage.cluster.store.before_reply = self._saw

    async def _saw(self, entry: Audit) -> None:
        if entry.user != CONTROLLER or not entry.changed:
            return
        if entry.resource == PYTORCHJOBS:
            is_stopped = _suspended(self.stage, entry, now=True)
            self.done.append(LIFT if not self.is_marked() else STOP.name if is_stopped else RESUME.name)
        if self.strike is not None:
            await self.strike(entry)

    def is_marked(self) -> bool:
        job = self.stage.cluster.store.read(PYTORCHJOBS, JOB, NAMESPACE).body
        return MARK in job["metadata"].get("annotations", {})


class Killer:
    """Kills the controller at the first matching write that took effect, before the reply is sent."""

    def __init__(self, writes: JobWrites, moment: Moment) -> None:
        self.moment = moment
        self.struck = asyncio.Event()
        self._writes = writes
        writes.strike = self._before_reply

    async def _before_reply(self, entry: Audit) -> None:
        stage = self._writes.stage
        if not self.moment.matches(stage, entry):
            return
        self._writes.strike = None
        assert stage.controller is not None
        await stage.controller.kill()
        recovery = recoveries(stage)[-1] if recoveries(stage) else None
        attempt = (
            f"{recovery.metadata.name}, attempt {recovery.status.attempt}" if recovery else "no recovery yet"
        )
        print(f"killed in {self.moment.name} ({attempt})")
        self.struck.set()


# --- state ------------------------------------------------------------------------------------------------


def recoveries(stage: Stage) -> list[Recovery]:
    return ledger.recoveries_of(stage.objects(RECOVERIES))


async def until(stage: Stage, what: str, condition: Callable[[], bool]) -> None:
    """Waits for the condition. Fails with the condition, the messages of the recoveries, and the end of the
    controller's log."""
    try:
        async with asyncio.timeout(LIMIT_S):
            while not condition():
                await asyncio.sleep(0.02)
    except TimeoutError:
        said = [f"{r.metadata.name}: {r.status.phase} {r.status.message}" for r in recoveries(stage)]
        assert stage.controller is not None
        log = stage.controller.last_lines()
        pytest.fail(f"{what}: not within {LIMIT_S:g} s\n" + "\n".join([*said, log]))


async def training_reaches(stage: Stage, step: int) -> None:
    try:
        async with asyncio.timeout(LIMIT_S):
            await wait_for(stage, JOB, When(step=step))
    except TimeoutError:
        pytest.fail(f"no step {step} within {LIMIT_S:g} s")


async def killed_and_replaced(stage: Stage, killer: Killer) -> None:
    await until(stage, f"killed in {killer.moment.name}", killer.struck.is_set)
    await stage.start_controller()


async def recovered(stage: Stage, number: int) -> Recovery:
    await until(
        stage,
        f"recovery {number} has succeeded",
        lambda: len(recoveries(stage)) == number and recoveries(stage)[-1].status.phase is Phase.SUCCEEDED,
    )
    stage.check_alive()
    return recoveries(stage)[-1]


async def one_stop_and_one_resume(writes: JobWrites, recovery: Recovery) -> None:
    """Asserts that there was one stop and one resume, and that nothing else was written to the job since the
    previous recovery, except the removal of the mark. The job began with the step after the chosen
    checkpoint's step."""
    assert recovery.status.attempt == 1
    assert [entered.phase for entered in recovery.status.phases].count(Phase.STOPPING) == 1
    await until(writes.stage, "the mark is gone from the job", lambda: not writes.is_marked())
    assert writes.done == [*ONCE, LIFT]
    writes.done.clear()
    resumed = ledger.resumed_where_chosen(recovery)
    assert resumed.ok, resumed.words


# --- the tests ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("round_", range(KILLS))
@pytest.mark.parametrize("moments", [STATES, ACTS], ids=["states", "acts"])
async def test_a_killed_controller_stops_and_resumes_each_gang_once(
    tmp_path: Path, moments: tuple[Moment, ...], round_: int
) -> None:
    # Only one node may be quarantined here. The acts need this for the cordon. Each round uses another one of
    # the states.
    first = 0 if moments is ACTS else round_ % len(moments)
    async with raised(tmp_path, nodes=3, mode="recover") as stage:
        await stage.cluster.apply(training_job(TRAINING, JOB, free_port()))
        step, faulty, writes = 0, "", JobWrites(stage)
        for number, moment in enumerate((*moments[first:], *moments[:first]), start=1):
            await training_reaches(stage, step + STEPS_BETWEEN)
            killer = Killer(writes, moment)
            if number == 1:
                faulty, _ = inject(stage, JOB, GPU_LOST)
            else:
                inject(stage, JOB, CRASH)
            await killed_and_replaced(stage, killer)

            recovery = await recovered(stage, number)

            await one_stop_and_one_resume(writes, recovery)
            assert ledger.cordoned(stage.objects(NODES)) == {faulty}
            assert recovery.status.resumed_step is not None
            step = recovery.status.resumed_step
        await training_reaches(stage, step + STEPS_BETWEEN)
        assert len(recoveries(stage)) == len(moments)


@pytest.mark.parametrize("round_", range(KILLS))
async def test_a_second_attempt_too_is_stopped_and_resumed_once_however_often_the_controller_is_killed(
    tmp_path: Path, round_: int
) -> None:
    # There is a second between two steps, so the ranks of the first attempt die before they have made one.
    slow = msgspec.structs.replace(TRAINING, step_time_s=1.0, checkpoint_every=1)
    async with raised(tmp_path, nodes=3, mode="recover") as stage:
        await stage.cluster.apply(training_job(slow, JOB, free_port()))
        writes = JobWrites(stage)
        await training_reaches(stage, 2 + round_)
        inject(stage, JOB, CRASH)
        await until(stage, "the first attempt has started", lambda: writes.done == ONCE)
        await until(stage, "both ranks run", lambda: len(running_ranks(stage)) == TRAINING.ranks)
        killer = Killer(writes, entering(Phase.STOPPING))
        for name in running_ranks(stage):
            stage.cluster.crash_pod(name, Exit.by_signal(signal.SIGABRT), NAMESPACE)
        for following in (STOP, RESUME):
            await until(stage, f"killed in {killer.moment.name}", killer.struck.is_set)
            killer = Killer(writes, following)
            await stage.start_controller()
        await killed_and_replaced(stage, killer)

        recovery = await recovered(stage, 1)

        assert recovery.status.attempt == 2
        await until(stage, "the mark is gone from the job", lambda: not writes.is_marked())
        assert writes.done == [*ONCE, *ONCE, LIFT]
        resumed = ledger.resumed_where_chosen(recovery)
        assert resumed.ok, resumed.words
        assert ledger.cordoned(stage.objects(NODES)) == set()


def running_ranks(stage: Stage) -> list[str]:
    pods = [pod for rank in range(TRAINING.ranks) if (pod := rank_pod(stage, JOB, rank)) is not None]
    return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Running"]


@pytest.mark.parametrize("round_", range(KILLS))
@pytest.mark.parametrize("proof", [OUT_OF_SERVICE, "pod deleted by force"])
async def test_a_controller_killed_in_fencing_waits_for_the_proof_that_the_node_is_off(
    tmp_path: Path, proof: str, round_: int
) -> None:
    times = Shape(lifecycle=LifecycleSettings(silence_s=3.0), kubelet=KubeletSettings(heartbeat_s=0.5))
    async with raised(tmp_path, nodes=3, mode="recover", shape=times) as stage:
        await stage.cluster.apply(training_job(TRAINING, JOB, free_port()))
        await training_reaches(stage, STEPS_BETWEEN)
        writes = JobWrites(stage)
        fencing = Killer(writes, entering(Phase.FENCING))
        dead = await node_of_rank_dies(stage, (round_ + 1) % TRAINING.ranks)
        await killed_and_replaced(stage, fencing)
        await until(stage, "the new controller has read all", lambda: times_in_step(stage) == 2)
        assert recoveries(stage)[0].status.phase is Phase.FENCING
        assert writes.done == [STOP.name]

        if proof == OUT_OF_SERVICE:
            taint = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
            node = stage.cluster.store.read(NODES, dead).body
            taints = [*node["spec"].get("taints", []), taint]
            await stage.client.patch(NODES, dead, {"spec": {"taints": taints}})
        else:
            # The deletion of the Node proves nothing for a pod with a claim, so a person deletes the pod by
            # force.
            await stage.client.delete(NODES, dead)
            (left,) = (pod for pod in stage.objects(PODS) if pod["spec"].get("nodeName") == dead)
            await stage.client.delete(PODS, left["metadata"]["name"], namespace=NAMESPACE, grace_s=0)

        recovery = await recovered(stage, 1)
        await one_stop_and_one_resume(writes, recovery)
        assert ledger.cordoned(stage.objects(NODES)) == set()
        assert recovery.status.resumed_step is not None
        await training_reaches(stage, recovery.status.resumed_step + STEPS_BETWEEN)
        assert len(recoveries(stage)) == 1


async def node_of_rank_dies(stage: Stage, rank: int) -> str:
    """Crashes the machine and the agent on it, at once. The rank's pod stays, because nobody is left to end
    it. Returns the node."""
    pod = rank_pod(stage, JOB, rank)
    assert pod is not None
    dead: str = pod["spec"]["nodeName"]
    await stage.cluster.crash_node(dead)
    await stage.agents.pop(dead).kill()
    return dead


def times_in_step(stage: Stage) -> int:
    """Returns how often the controller's caches were up to date: counts a field of the one log line that
    reports it."""
    assert stage.controller is not None
    return stage.controller.log.read_text(encoding="utf-8").count('"gangs":')
