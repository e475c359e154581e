"""A process that gets SIGTERM while it starts a check leaves no check behind."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detectors.validation.processes import run_within


@pytest.fixture
def told_to_end() -> Iterator[None]:
    """Handles SIGTERM as `rekindle validate` does."""

    def leave(*_: object) -> None:
        raise SystemExit(143)

    before = signal.signal(signal.SIGTERM, leave)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("told_to_end")
def test_told_to_end_between_the_birth_of_a_check_and_its_name_it_ends_the_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    born: list[subprocess.Popen[bytes]] = []

    class ToldMeanwhile(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            born.append(self)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(subprocess, "Popen", ToldMeanwhile)

    with pytest.raises(SystemExit):
        run_within(["sleep", "600"], deadline_s=60)

    try:
        assert born[0].wait(10) == -signal.SIGKILL
    finally:
        born[0].kill()


def test_a_check_may_be_ended_by_the_signals_that_waited_for_its_birth() -> None:
    status = Path("/proc/self/status")
    blocked = next(line for line in status.read_text().splitlines() if line.startswith("SigBlk:"))

    assert blocked in run_within(["cat", str(status)], deadline_s=10).output.decode()
