"""The lines of a scenario on a terminal and in a pipe, and the line about a folder in which no files can be
created."""

from __future__ import annotations

import errno
import io
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from chaos.scenarios import demo
from chaos.scenarios.manifests import NAMESPACE
from chaos.scenarios.report import print_line
from chaos.scenarios.scenario import packaged
from chaos.scenarios.watching import Told, Watcher
from recover.k8s.kinds import PODS, RECOVERIES

WORDS = "Stopping: stopping all 4 ranks: xid-79 on n3, device GPU-937a477f-9765-5b6b-bb61-6a4670a9c95f"


def printed(width: int, *, terminal: bool) -> list[str]:
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=terminal, no_color=True, color_system=None)
    print_line(console, Told(1.5, "controller", WORDS))
    return [line.rstrip() for line in file.getvalue().splitlines()]


@pytest.mark.parametrize("width", [72, 80, 140])
def test_on_a_terminal_words_are_whole_and_stand_below_each_other(width: int) -> None:
    lines = printed(width, terminal=True)

    assert all(len(line) <= width for line in lines)
    assert {len(line) - len(line.lstrip()) for line in lines[1:]} <= {len("   1.50 s  controller ")}
    assert " ".join(" ".join(lines).split()).endswith(WORDS)


def test_in_a_pipe_a_line_stays_one_line() -> None:
    assert printed(80, terminal=False) == [f"   1.50 s  controller {WORDS}"]


def test_a_full_folder_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/scratch/rekindle-1")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    file = io.StringIO()

    assert demo.perform(packaged()["demo"], Console(file=file, width=40)) is None

    (line,) = file.getvalue().splitlines()
    assert line.startswith("demo: cannot write to /scratch/rekindle-1: No space left on device. ")


def test_the_choice_is_told_before_the_start_and_steps_once_a_stretch(tmp_path: Path) -> None:
    stage, log = stage_with_a_log(tmp_path)
    told: list[str] = []
    watcher = Watcher(stage, lambda one: told.append(one.words), datetime.now(UTC), job="llm", steps_apart=20)

    for step in (19, 20, 21, 40):
        log.write_text(f"2026-01-01T00:00:00.000000000Z stdout F step {step}/140 loss=0.3\n")
        watcher.look()

    assert told == [
        "does not use the checkpoint of step 40: no commit.json",
        "Resuming: starting all 4 ranks",
        "rank 0 prints: step 20/140 loss=0.3",
        "rank 0 prints: step 40/140 loss=0.3",
    ]


def stage_with_a_log(folder: Path) -> tuple[Any, Path]:
    log = folder / "train" / "0.log"
    log.parent.mkdir()
    labels = {"batch.kubernetes.io/job-name": "llm", "batch.kubernetes.io/job-completion-index": "0"}
    meta = {"name": "llm-0", "namespace": NAMESPACE, "labels": labels}
    checkpoint = {"rejected": [{"step": 40, "reason": "no commit.json"}]}
    status = {"phase": "Resuming", "message": "starting all 4 ranks", "checkpoint": checkpoint}
    objects = {
        PODS: [{"metadata": meta, "spec": {"nodeName": "n1"}}],
        RECOVERIES: [{"metadata": {"name": "llm-1"}, "status": status}],
    }
    host = SimpleNamespace(log_folder=lambda _: folder)
    cluster = SimpleNamespace(hosts={"n1": host})
    return SimpleNamespace(objects=lambda kind: objects.get(kind, []), cluster=cluster), log
