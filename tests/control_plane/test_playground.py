"""Every line of docs/playground.md works, in the order of the page, on the playground that one command
starts."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.control_plane.build import Programs
from tests.control_plane.plane import ControlPlane
from tests.control_plane.playground import playground as raise_playground
from tests.control_plane.xid import main as xid

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "playground.md"
LINES = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
]
ENDS_WITHIN_S = 180.0
SAYS_WHAT_FAILS = "rekindle doctor"
"""Command that exits with 1 if it has found something."""
AGAIN = """
try() {
  for second in $(seq 60); do
    eval "$1"; status=$?
    if [ $status = 0 ] || { [ $status = 1 ] && [[ "$1" == "$doctor"* ]]; }; then echo "ok: $1"; return; fi
    sleep 1
  done
  echo "failed: $1"
  exit 1
}
"""
"""Script that repeats a line until it succeeds. The script may run a line before the cluster is ready for it,
because a person types more slowly."""


@pytest.mark.control_plane
@pytest.mark.parametrize("flags", [[], ["--training"]], ids=["job", "pytorchjob"])
def test_every_line_of_the_page_works(flags: list[str]) -> None:
    lines = [line.replace("job/llm", "pytorchjob/llm") if flags else line for line in LINES]
    lines = [
        line for line in lines if not (flags and "logs" in line)
    ]  # kubectl knows no pods of a PyTorchJob
    with playground(flags) as exports:
        script = [exports, f'doctor="{SAYS_WHAT_FAILS}"', AGAIN]
        script += [f"try {quoted(line)}" for line in lines]
        done = subprocess.run(
            ["bash"], input="\n".join(script), cwd=ROOT, capture_output=True, text=True, check=False
        )

    said = done.stdout + done.stderr
    assert [line for line in lines if f"ok: {line}" not in done.stdout] == [], said
    assert "Succeeded" in done.stdout
    assert re.search(r"gpu-\d +Ready,SchedulingDisabled", done.stdout.rpartition("uninstalled")[2]), said
    assert "rekindle.dev/unhealthy" not in done.stdout.rpartition("uninstalled")[2]


@contextmanager
def playground(flags: list[str]) -> Iterator[str]:
    """Yields the exports that the playground prints. When the playground has ended, nothing of it is left."""
    command = [sys.executable, "-m", "tests.control_plane.up", "--rekindle", *flags]
    exports = ""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            exports = "".join(process.stdout.readline() for _ in range(2))
            yield exports
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(ENDS_WITHIN_S) == 0
    kubeconfig = exports.partition("KUBECONFIG=")[2].splitlines()[0]
    assert not Path(kubeconfig).parent.exists()


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


async def test_a_signal_ends_the_playground_only_after_everything_in_it_has_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ended = []

    async def raised(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            ended.append("every process")

    monkeypatch.setattr("tests.control_plane.playground._raised", raised)
    await raise_playground(Programs({}), ControlPlane(tmp_path, 0), training=False)

    assert ended == ["every process"]


def test_an_xid_is_a_further_record_of_that_nodes_kernel_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "gpu-1" / "dev" / "kmsg"
    log.parent.mkdir(parents=True)
    log.touch()

    assert [xid([str(tmp_path), "gpu-1"]), xid([str(tmp_path), "gpu-1", "48"])] == [0, 0]

    first, second = log.read_text(encoding="utf-8").splitlines()
    assert re.fullmatch(r"3,0,0,-;NVRM: Xid \(PCI:0000:17:00\): 79, .*", first)
    assert re.fullmatch(r"3,1,1000000,-;NVRM: Xid \(PCI:0000:17:00\): 48, .*", second)
    assert xid([str(tmp_path), "gpu-9"]) == 2
    assert "gpu-1" in capsys.readouterr().err
