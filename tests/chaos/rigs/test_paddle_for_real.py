"""PaddlePaddle itself, as processes of the demo cluster: its allocator conflicts with a share of a GPU,
Rekindle gives its restart another allocator, and Paddle reports that it uses this one.

The test needs the environment that `python -m chaos.rigs.paddle_training.environment` makes. The failing
allocation is simulated, because there is no GPU; whether it fails depends on the allocator that Paddle
reports.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.cluster.world import Shape
from chaos.processes.locked_environment import MissingError
from chaos.rigs.paddle_training.environment import PADDLE
from chaos.rigs.paddle_training.manifest import Training, paddle_job
from chaos.scenarios import ledger
from chaos.scenarios.faults import rank_pod, wait_for
from chaos.scenarios.manifests import NAMESPACE
from chaos.scenarios.scenario import When
from chaos.scenarios.stage import Stage, raised
from chaos.training.launch import free_port
from recover.api import Phase, RecipeOutcome, Recovery
from recover.api.reasons import Reason
from recover.k8s.kinds import CONFIGMAPS, NODEHEALTHS, NODES, PADDLEJOBS, RECIPES, RECOVERIES
from recover.recipes.load import built_in
from recover.recipes.objects import to_object

pytestmark = [pytest.mark.processes, pytest.mark.on_request("REKINDLE_PADDLE")]

JOB = "paddle"
FLAG = "FLAGS_allocator_strategy"
READ_BACK = f"{FLAG} read back from Paddle"
RECIPE = "paddle-autogrow-oom"
OFFERED = Shape(devices={"tencent.com/vcuda-core": 100, "tencent.com/vcuda-memory": 64})
SHARE = {"tencent.com/vcuda-core": "30", "tencent.com/vcuda-memory": "20"}
WHOLE_CARD = {"tencent.com/vcuda-core": "100", "tencent.com/vcuda-memory": "64"}
CONFLICT_AT = 30
LIMIT_S = 600.0
"""Time limit in seconds of each wait. Paddle starts several times within one of them, and each start may take
half a minute on a busy machine."""


@pytest.fixture
def python() -> Path:
    try:
        return PADDLE.interpreter()
    except MissingError as error:
        pytest.fail(str(error))


@pytest.mark.parametrize(
    ("line", "verified", "by"),
    [
        pytest.param("", "SeenInLog", "FLAGS(name=", id="built-in recipe, by Paddle's own line"),
        pytest.param(f"{READ_BACK} {{version}}: naive_best_fit", "SeenInLog", READ_BACK, id="own recipe"),
        pytest.param("a line that nobody prints", "SeenBySteps", RECIPE, id="own recipe, by steps"),
    ],
)
async def test_on_a_share_of_a_gpu_paddle_is_told_another_allocator_takes_it_and_trains_to_the_end(
    tmp_path: Path, python: Path, line: str, verified: str, by: str
) -> None:
    async with raised(tmp_path, nodes=3, mode="recover", shape=OFFERED) as stage:
        if line:
            await verified_by(stage, line)
        await stage.cluster.apply(paddle_job(Training(SHARE, CONFLICT_AT), JOB, free_port(), python))
        await wait_for_step(stage, 5)
        assert [read_back(log) for log in logs(stage)] == ["auto_growth"] * 2

        await until(stage, "the job has succeeded", lambda: condition(stage, "Succeeded"))
        await until(stage, "the recovery has succeeded", lambda: phases(stage) == [Phase.SUCCEEDED])

        (recovery,) = recoveries(stage)
        (use,) = recovery.status.recipes
        assert (use.name, use.outcome, use.env) == (RECIPE, RecipeOutcome.APPLIED, {FLAG: "naive_best_fit"})
        assert "Cannot allocate 762.939697MB memory on GPU 0" in use.seen
        (verdict,) = [c for c in recovery.status.conditions if c.type == "RecipeVerified"]
        assert (verdict.status, verdict.reason) == ("True", verified), verdict.message
        assert by in verdict.message
        assert [read_back(log) for log in logs(stage)] == ["naive_best_fit"] * 2
        assert [PADDLES_OWN_LINE in log for log in logs(stage)] == [True] * 2
        resumed = ledger.resumed_where_chosen(recovery)
        assert resumed.ok, resumed.words
        assert recovery.status.resumed_step == 21
        assert ledger.job_writes(stage.cluster.store.audit, PADDLEJOBS.plural, JOB) in (2, 3)
        assert ledger.cordoned(stage.objects(NODES)) == set()

        told = await why(stage)
        assert RECIPE in told
        assert f"{FLAG}=naive_best_fit" in told
        assert "Cannot allocate 762.939697MB memory on GPU 0" in told


PADDLES_OWN_LINE = f"FLAGS(name='{FLAG}', current_value='naive_best_fit', default_value='auto_growth')"
"""Line by which init_parallel_env reports a flag that differs from its default."""


async def test_on_a_whole_card_the_same_crash_is_no_known_issue_and_ends_as_a_crash_loop_without_the_flag(
    tmp_path: Path, python: Path
) -> None:
    async with raised(tmp_path, nodes=3, mode="recover", shape=OFFERED) as stage:
        await stage.cluster.apply(paddle_job(Training(WHOLE_CARD, CONFLICT_AT), JOB, free_port(), python))

        await until(stage, "the loop has ended", lambda: Phase.ESCALATED in phases(stage))

        last = recoveries(stage)[-1]
        assert last.status.reason == Reason.CRASH_LOOP
        assert [recovery.status.recipes for recovery in recoveries(stage)] == [[]] * len(recoveries(stage))
        assert (
            FLAG
            not in stage.cluster.store.read(CONFIGMAPS, f"{JOB}-rekindle-paddlejob", NAMESPACE).body["data"]
        )
        job = stage.cluster.store.read(PADDLEJOBS, JOB, NAMESPACE).body
        assert job["spec"]["runPolicy"]["suspend"] is True
        assert ledger.cordoned(stage.objects(NODES)) == set()
        assert "2 restarts" in await why(stage)


async def verified_by(stage: Stage, line: str) -> None:
    """Replaces the built-in recipe by a user's recipe that expects this line, and waits until the agents know
    it."""
    recipe = to_object(built_in()[RECIPE])
    recipe["spec"]["verify"]["log"] = [line]
    await stage.client.create(RECIPES, recipe)
    await until(
        stage,
        "each node knows the recipe",
        lambda: all(health.get("spec", {}).get("signatures") for health in stage.objects(NODEHEALTHS)),
    )


# --- state ------------------------------------------------------------------------------------------------


async def until(stage: Stage, what: str, done: Callable[[], bool]) -> None:
    """Waits for the condition. Fails with the condition, the messages of the recoveries, and the last lines
    of the ranks."""
    try:
        async with asyncio.timeout(LIMIT_S):
            while not done():
                stage.check_alive()
                await asyncio.sleep(0.02)
    except TimeoutError:
        said = [f"{r.metadata.name}: {r.status.phase} {r.status.message}" for r in recoveries(stage)]
        pytest.fail(
            "\n".join([f"{what}: not within {LIMIT_S:g} s", *said, *(log[-2000:] for log in logs(stage))])
        )


async def wait_for_step(stage: Stage, step: int) -> None:
    try:
        async with asyncio.timeout(LIMIT_S):
            await wait_for(stage, JOB, When(step=step))
    except TimeoutError:
        pytest.fail("\n".join([f"no step {step} within {LIMIT_S:g} s", *logs(stage)]))


def recoveries(stage: Stage) -> list[Recovery]:
    return ledger.recoveries_of(stage.objects(RECOVERIES))


def phases(stage: Stage) -> list[Phase]:
    return [recovery.status.phase for recovery in recoveries(stage)]


def condition(stage: Stage, kind: str) -> bool:
    status = stage.cluster.store.read(PADDLEJOBS, JOB, NAMESPACE).body.get("status", {})
    return any(c["type"] == kind and c["status"] == "True" for c in status.get("conditions", []))


def logs(stage: Stage) -> list[str]:
    """Returns everything that each rank has printed."""
    pods = [pod for rank in range(2) if (pod := rank_pod(stage, JOB, rank)) is not None]
    folders = [stage.cluster.hosts[pod["spec"]["nodeName"]].log_folder(pod) for pod in pods]
    return [(folder / "paddle" / "0.log").read_text(encoding="utf-8") for folder in folders]


def read_back(log: str) -> str:
    (line,) = [line for line in log.splitlines() if READ_BACK in line]
    return line.rpartition(" ")[2]


async def why(stage: Stage) -> str:
    """Returns the output of `rekindle why` about the job, with all line breaks replaced by blanks."""
    command = [sys.executable, "-m", "detectors.commands.main", "why", f"paddlejob/{JOB}", "-n", NAMESPACE]
    asked = await asyncio.create_subprocess_exec(
        *command, f"--kubeconfig={stage.kubeconfig}", stdout=asyncio.subprocess.PIPE
    )
    said, _ = await asked.communicate()
    assert asked.returncode == 0
    return " ".join(said.decode().split())
