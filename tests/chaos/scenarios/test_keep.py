"""The commands that `--keep` prints run unchanged in any terminal."""

from __future__ import annotations

import asyncio
import io
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from chaos.scenarios.demo import _keep


async def test_the_commands_name_the_program_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "rekindle"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bin/rekindle", "demo", "--keep"])
    stage: Any = SimpleNamespace(kubeconfig=tmp_path / "kubeconfig")
    printed = io.StringIO()

    kept = asyncio.create_task(_keep(stage, Console(file=printed, width=40)))
    await asyncio.sleep(0)
    kept.cancel()
    await kept

    *_, kubeconfig, status, why = [shlex.split(line) for line in printed.getvalue().splitlines()]
    assert kubeconfig == ["export", f"KUBECONFIG={tmp_path / 'kubeconfig'}"]
    assert (status, why[:2]) == ([str(program), "status"], [str(program), "why"])
