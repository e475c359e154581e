"""Defines the frameworks that are run, and runs them. Each run leaves its output and the framework's own
state."""

from __future__ import annotations

import os
import subprocess
import tempfile
from datetime import datetime
from pathlib import Path

import msgspec

from chaos.processes.locked_environment import LockedEnvironment
from chaos.rigs.framework_logs.capture import Chunk, chunks_of
from chaos.rigs.framework_logs.environment import PADDLENLP, TORCH_FRAMEWORKS
from chaos.training.launch import free_port

__all__ = ["RUNS", "Event", "Run", "Truth", "played"]

_SOURCES = Path(__file__).parents[3]
_FIRST_STEPS, _STEPS = 60, 80


class Run(msgspec.Struct, frozen=True):
    """A training to step 60, and a second training that continues from its checkpoint."""

    name: str
    environment: LockedEnvironment
    program: str
    libraries: tuple[str, ...]
    options: tuple[str, ...] = ()
    unbuffered: bool = False
    """Whether the program runs with PYTHONUNBUFFERED=1."""


class Event(msgspec.Struct, frozen=True, array_like=True):
    """An event that truth.py describes."""

    at: datetime
    what: str
    step: int


class Truth(msgspec.Struct, frozen=True):
    versions: dict[str, str]
    command: str
    events: list[Event]


_HF = ("transformers", "accelerate", "torch")
RUNS = (
    Run("hf-trainer", TORCH_FRAMEWORKS, "hf_trainer", _HF),
    Run("hf-trainer-unbuffered", TORCH_FRAMEWORKS, "hf_trainer", _HF, unbuffered=True),
    Run("hf-trainer-info", TORCH_FRAMEWORKS, "hf_trainer", _HF, ("--info",)),
    Run("hf-deepspeed", TORCH_FRAMEWORKS, "hf_trainer", (*_HF, "deepspeed"), ("--deepspeed",)),
    Run("hf-deepspeed-info", TORCH_FRAMEWORKS, "hf_trainer", (*_HF, "deepspeed"), ("--deepspeed", "--info")),
    Run("accelerate", TORCH_FRAMEWORKS, "accelerate_loop", ("accelerate", "torch")),
    Run("lightning-rich", TORCH_FRAMEWORKS, "lightning_trainer", ("lightning", "rich", "torch")),
    Run("lightning-tqdm", TORCH_FRAMEWORKS, "lightning_trainer", ("lightning", "torch"), ("--tqdm",)),
    Run("torchtitan", TORCH_FRAMEWORKS, "torchtitan_trainer", ("torchtitan", "torch")),
    Run("paddlenlp", PADDLENLP, "paddlenlp_trainer", ("paddlenlp", "paddlepaddle")),
)


def played(run: Run) -> tuple[tuple[list[Chunk], Truth], ...]:
    """Returns the first run, and the resumed run. Raises FailedError, and MissingError if there is no
    environment."""
    python = run.environment.interpreter()
    with tempfile.TemporaryDirectory() as folder:
        return tuple(
            _once(run, python, Path(folder), ("--steps", f"{steps}", *more))
            for steps, more in ((_FIRST_STEPS, ()), (_STEPS, ("--resume",)))
        )


def _once(run: Run, python: Path, folder: Path, more: tuple[str, ...]) -> tuple[list[Chunk], Truth]:
    told = folder / f"truth-{len(more)}"
    options = ("--output", "out", "--truth", told.name, *run.options, *more)
    command = ("python", "-m", f"chaos.rigs.framework_logs.trainings.{run.program}", *options)
    chunks = list(chunks_of((f"{python}", *command[1:]), _environment(run), folder))
    events = [msgspec.json.decode(line, type=_Line) for line in told.read_text().splitlines()]
    truth = Truth(
        versions=_versions(python, run.libraries),
        command=" ".join((*(("PYTHONUNBUFFERED=1",) if run.unbuffered else ()), *command)),
        events=[Event(event.at, event.what, event.step) for event in events],
    )
    below = run.environment.below
    packages = (python, *((below.interpreter(),) if below is not None else ()))
    folders = (folder, *(each.parents[1] for each in packages), _SOURCES)
    return [_without_paths(chunk, folders) for chunk in chunks], truth


class _Line(msgspec.Struct, frozen=True):
    at: datetime
    what: str
    step: int


def _environment(run: Run) -> dict[str, str]:
    """Returns the environment variables of one rank, as torchrun would set them."""
    ours = {
        "PYTHONPATH": f"{_SOURCES}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "DS_ACCELERATOR": "cpu",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        **{"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"},
        **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{free_port()}"},
        **({"PYTHONUNBUFFERED": "1"} if run.unbuffered else {}),
    }
    if run.environment is PADDLENLP:
        ours = {name: ours[name] for name in ("PYTHONPATH", "HF_HUB_OFFLINE", "OMP_NUM_THREADS")}
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return {**kept, **ours}


def _versions(python: Path, libraries: tuple[str, ...]) -> dict[str, str]:
    program = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    command = (f"{python}", "-c", program, *libraries)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(zip(libraries, done.stdout.split(), strict=True))


def _without_paths(chunk: Chunk, folders: tuple[Path, ...]) -> Chunk:
    """Replaces paths, so that the stored log shows nothing of the machine."""
    data = chunk.data
    for folder in folders:
        data = data.replace(f"{folder}".encode(), b"/run")
    return msgspec.structs.replace(chunk, data=data)
