"""Real training processes that are interrupted and resumed end with the same bits as undisturbed ones."""

import asyncio
import errno
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from chaos.training.launch import free_port, run_reference
from recover.checkpoints.scan import scan

pytestmark = pytest.mark.processes

WORLD_SIZE = 2
STEPS = 12
EVERY = 4
LIMIT_S = 30.0


class Gang:
    """All ranks of one attempt. They are ended by their ids when the test is over."""

    def __init__(self, directory: Path, *, world_size: int = WORLD_SIZE) -> None:
        self.directory = directory
        self.world_size = world_size
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, **environment: str) -> None:
        port = str(free_port())
        for rank in range(self.world_size):
            self.processes.append(
                subprocess.Popen(
                    [
                        sys.executable, "-m", "chaos.training", "--steps", str(STEPS),
                        "--checkpoint-dir", str(self.directory), "--checkpoint-every", str(EVERY), *arguments,
                    ],
                    env={"PATH": os.environ["PATH"]} | environment | {
                        "RANK": str(rank), "WORLD_SIZE": str(self.world_size),
                        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                    },
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                )
            )  # fmt: skip

    def end(self) -> list[tuple[int, str, str]]:
        """Waits until all ranks have ended by themselves. Returns exit status, stdout and stderr of each
        rank."""
        outputs = [process.communicate(timeout=LIMIT_S) for process in self.processes]
        return [
            (process.returncode, *output) for process, output in zip(self.processes, outputs, strict=True)
        ]


@pytest.fixture
def gangs(tmp_path: Path) -> Iterator[Callable[[], Gang]]:
    """Yields a function that makes gangs, one for each attempt, all on the same checkpoint directory."""
    made: list[Gang] = []

    def make() -> Gang:
        made.append(Gang(tmp_path / "ckpt"))
        return made[-1]

    yield make
    for process in (process for gang in made for process in gang.processes):
        if process.poll() is None:
            process.kill()
            process.communicate()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Returns the SHA-256 of the final weights of a run that nothing disturbs."""
    directory = tmp_path_factory.mktemp("undisturbed")
    reference = run_reference(
        steps=STEPS, world_size=WORLD_SIZE, checkpoint_dir=directory, checkpoint_every=EVERY
    )
    return asyncio.run(asyncio.wait_for(reference, LIMIT_S))


def final_sha256(directory: Path) -> str:
    return hashlib.sha256((directory / "final-weights.npy").read_bytes()).hexdigest()


def wait_until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not happened():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def test_every_rank_prints_its_steps_and_rank_0_the_checksum_of_the_weights(
    gangs: Callable[[], Gang], undisturbed: str
) -> None:
    gang = gangs()
    gang.start()
    first, second = gang.end()

    assert (first[0], second[0]) == (0, 0)
    steps = re.findall(r"^step (\d+)/12 loss=\d+\.\d{4}$", second[1], re.MULTILINE)
    assert steps == [str(step) for step in range(1, STEPS + 1)]
    assert f"sha256={undisturbed}" in first[1]
    assert final_sha256(gang.directory) == undisturbed


@pytest.mark.parametrize("victim", range(WORLD_SIZE))
def test_killed_in_the_middle_of_a_shard_and_resumed_the_weights_are_the_same_bits(
    victim: int, gangs: Callable[[], Gang], undisturbed: str
) -> None:
    killed = gangs()
    killed.start("--shard-write-s", "0.4")
    half_written = killed.directory / "step-8" / f"shard-{victim}-of-2.npz"
    whole = killed.directory / "step-4" / f"shard-{victim}-of-2.npz"
    wait_until(lambda: half_written.exists() and half_written.stat().st_size > 0)
    killed.processes[victim].kill()
    ends = killed.end()

    assert ends[victim][0] == -signal.SIGKILL
    other = 1 - victim
    assert ends[other][0] == 1
    (lost,) = ends[other][2].splitlines()
    assert lost.startswith(f"RuntimeError: [rank {other}] ")
    assert lost.endswith(f"rank {victim}")
    assert half_written.stat().st_size < whole.stat().st_size
    chosen = scan(killed.directory).chosen
    assert chosen is not None
    assert chosen.step == 4

    resumed = gangs()
    resumed.start()
    for status, printed, _ in resumed.end():
        assert status == 0
        told, first_step = printed.splitlines()[:2]
        assert str(killed.directory / "step-4") in told
        assert first_step.startswith("step 5/12 ")
    assert final_sha256(resumed.directory) == undisturbed
    assert [found.step for found in scan(resumed.directory).checkpoints if found.complete] == [12, 8, 4]


def test_it_resumes_where_the_environment_says_although_a_newer_one_is_complete(
    gangs: Callable[[], Gang], undisturbed: str
) -> None:
    gangs_before = gangs()
    gangs_before.start()
    gangs_before.end()
    (gangs_before.directory / "final-weights.npy").unlink()

    again = gangs()
    again.start(REKINDLE_RESUME_FROM=str(again.directory / "step-4"))

    for _, printed, _ in again.end():
        assert printed.splitlines()[1].startswith("step 5/12 ")
    assert final_sha256(again.directory) == undisturbed


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (
            lambda step: os.truncate(step / "shard-1-of-2.npz", 9),
            "9 bytes",
        ),
        (lambda step: (step / "commit.json").unlink(), "No such file or directory"),
        (lambda step: (step / "commit.json").write_text("{"), "Expecting property name"),
        (lambda step: flip_a_byte(step / "shard-0-of-2.npz"), "shard-0-of-2.npz"),
    ],
)
def test_a_checkpoint_that_cannot_be_loaded_ends_it_with_the_reason(
    damage: Callable[[Path], None], problem: str, gangs: Callable[[], Gang]
) -> None:
    before = gangs()
    before.start()
    before.end()
    damage(before.directory / "step-8")

    again = gangs()
    again.start(REKINDLE_RESUME_FROM=str(again.directory / "step-8"))

    for rank, (status, _, error) in enumerate(again.end()):
        assert status == 1
        assert error.startswith(f"RuntimeError: [rank {rank}] ")
        assert str(again.directory / "step-8") in error
        assert problem in error


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_sigterm_ends_it_promptly_with_143(gangs: Callable[[], Gang]) -> None:
    gang = gangs()
    # No step ends before the signal comes, however late the operating system schedules this process again.
    gang.start("--step-time-s", "60")
    assert gang.processes[1].stdout is not None
    assert gang.processes[1].stdout.readline(), "it has begun"
    before = time.monotonic()
    for process in gang.processes:
        process.terminate()

    statuses = [status for status, _, _ in gang.end()]

    # The other rank may notice the lost peer before its own signal arrives.
    assert 143 in statuses
    assert set(statuses) <= {143, 1}
    assert time.monotonic() - before < 10.0, "it waits for no peer"


def test_a_rank_alone_gives_up_at_the_deadline_of_the_rendezvous(tmp_path: Path) -> None:
    environment = os.environ | {"JOB_COMPLETION_INDEX": "1", "MASTER_PORT": str(free_port())}
    command = [sys.executable, "-m", "chaos.training", "--steps", "1", "--checkpoint-dir", str(tmp_path)]
    command += ["--world-size", "2", "--rendezvous-timeout-s", "0.2"]

    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )

    assert done.returncode == 1
    assert done.stderr.startswith("RuntimeError: [rank 1] ")
    assert all(name in done.stderr for name in ("rank 0", "127.0.0.1:"))


def test_the_commit_marker_names_every_shard_with_its_checksum(gangs: Callable[[], Gang]) -> None:
    gang = gangs()
    gang.start()
    gang.end()
    step = gang.directory / "step-4"

    manifest = json.loads((step / "commit.json").read_text())

    assert (manifest["format"], manifest["step"]) == ("rekindle-sharded", 4)
    assert {file["name"]: (file["bytes"], file["sha256"]) for file in manifest["files"]} == {
        shard.name: (shard.stat().st_size, hashlib.sha256(shard.read_bytes()).hexdigest())
        for shard in step.glob("shard-*.npz")
    }
    parts = [np.load(step / f"shard-{rank}-of-2.npz")["parameters"] for rank in range(WORLD_SIZE)]
    assert np.concatenate(parts).dtype == np.float64


async def test_the_reference_computes_as_a_container_does_whatever_its_callers_environment_says(
    tmp_path: Path, undisturbed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another set of kernels rounds the last bit differently, and a container would not get this variable."""
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Prescott")
    monkeypatch.setenv("REKINDLE_RESUME_FROM", str(tmp_path / "none"))

    found = await run_reference(
        steps=STEPS, world_size=WORLD_SIZE, checkpoint_dir=tmp_path / "ckpt", checkpoint_every=EVERY
    )

    assert found == undisturbed


async def test_a_cancelled_reference_run_leaves_no_process(tmp_path: Path) -> None:
    reference = asyncio.create_task(
        run_reference(steps=10**6, world_size=2, checkpoint_dir=tmp_path, checkpoint_every=10**6)
    )
    await asyncio.sleep(0.3)
    reference.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reference

    mine = f"--checkpoint-dir={tmp_path}".encode()
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and mine in command_line(pid)]


def command_line(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # the process ended meanwhile
        return b""


async def test_a_failing_reference_run_is_an_error_with_its_last_lines(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(RuntimeError, match=os.strerror(errno.ENOTDIR)):
        await run_reference(steps=1, world_size=1, checkpoint_dir=tmp_path / "file", checkpoint_every=1)
