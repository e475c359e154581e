"""The readings of a bench are correct, and a bench prints its readings."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from chaos.apiserver.rest import write_kubeconfig
from chaos.bench import BENCHES
from chaos.bench.figures import Goal, percentile, row, table
from chaos.bench.footprint import Footprint, Share, tell
from chaos.bench.throwaway import raised
from chaos.bench.usage import family, usage
from chaos.cluster.world import Shape, process_cluster
from chaos.scenarios.stage import StageError
from recover.cli.access import Access
from recover.k8s.kinds import JOBS, NAMESPACES, NODES

MIB = 1024 * 1024


@contextmanager
def running(*command: str) -> Iterator[int]:
    """Runs the command and yields the process id, once the process has printed its first line."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


def test_a_process_counts_with_the_memory_of_its_living_children() -> None:
    child = (
        "data = bytearray(64 << 20); data[::4096] = b'1' * len(data[::4096]); print(1, flush=True); input()"
    )
    parent = (
        "import subprocess, sys; "
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE); "
        "child.stdout.readline(); print(child.pid, flush=True); input(); child.kill()"
    )
    with running(sys.executable, "-c", parent) as pid:
        assert len(family(pid)) == 2
        found = usage(pid)
        (child_pid,) = family(pid) - {pid}
        alone = usage(child_pid)
        os.kill(child_pid, 9)

    assert alone.pss_bytes > 64 * MIB
    assert found.pss_bytes > alone.pss_bytes
    assert found.rss_bytes >= found.pss_bytes


def test_the_time_of_children_that_have_ended_is_counted_and_named() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    parent = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}]); "
        "print(1, flush=True); input()"
    )
    with running(sys.executable, "-c", parent) as pid:
        found = usage(pid)

    assert found.ended_children_cpu_s >= 0.29
    assert found.cpu_s >= found.ended_children_cpu_s


def test_a_command_name_with_spaces_and_parentheses_is_no_obstacle(tmp_path: Path) -> None:
    odd = tmp_path / "a) 7 (b"
    odd.symlink_to(sys.executable)
    busy = "import time\nwhile time.process_time() < 0.2: pass\nprint(1, flush=True); input()"
    with running(str(odd), "-S", "-c", busy) as pid:
        found = usage(pid)

    assert 0.19 <= found.cpu_s < 5
    assert found.ended_children_cpu_s == 0


def test_a_process_that_is_gone_has_no_usage() -> None:
    with running(sys.executable, "-S", "-c", "print(1)") as pid:
        pass

    with pytest.raises((FileNotFoundError, ProcessLookupError)):
        usage(pid)


def share(pss_mib: int, percent: float, writes: int) -> Share:
    return Share(
        pss_bytes_max=pss_mib * MIB,
        rss_bytes_max=pss_mib * MIB,
        cpu_s=percent / 100 * 60,
        ended_children_cpu_s=0.0,
        cpu_percent_of_core=percent,
        writes=writes,
        lease_writes=0,
        requests_without_change=0,
    )


def printed(agent: Share) -> str:
    found = Footprint(
        window_s=60.0, steps=60, cores=2, python="3.11", kernel="6", agent=agent, controller=share(70, 0.0, 0)
    )
    console = Console(file=io.StringIO(), width=120)
    tell(console, found)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("agent", "missed"),
    [
        (share(64, 0.2, 0), 0),
        (share(65, 0.2, 0), 1),
        (share(64, 0.21, 0), 1),
        (share(64, 0.2, 1), 1),
        (share(65, 0.21, 1), 3),
    ],
)
def test_a_missed_goal_is_shown_beside_its_figure(agent: Share, missed: int) -> None:
    assert printed(agent).count("missed") == missed


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "soon"])
def test_a_window_that_makes_no_sense_is_wrong_usage(
    seconds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        BENCHES["footprint"].run([f"--seconds={seconds}"])

    assert ended.value.code == 2
    assert "--seconds" in capsys.readouterr().err


@pytest.mark.processes
def test_the_footprint_is_of_real_daemons_and_shows_no_idle_write(capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()

    assert BENCHES["footprint"].run(["--seconds", "3", "--json"]) == 0

    found = msgspec.json.decode(capsys.readouterr().out, type=Footprint)
    assert 3.0 <= found.window_s < time.monotonic() - began
    assert found.steps >= 1
    assert found.agent.writes == found.controller.writes == 0
    for daemon in (found.agent, found.controller):
        assert daemon.rss_bytes_max > daemon.pss_bytes_max > 10 * MIB
        assert daemon.cpu_percent_of_core < 50


# --- figures, and whose cluster it is ---------------------------------------------------------------------


@pytest.mark.parametrize(("percent", "expected"), [(50, 2.0), (75, 3.0), (99, 4.0), (1, 1.0)])
def test_a_percentile_is_a_value_that_was_measured(percent: float, expected: float) -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], percent) == expected


@pytest.mark.parametrize(
    ("goal", "missed"), [(Goal(), 0), (Goal(20, 30), 0), (Goal(19.9, 30), 1), (Goal(19.9, 29.9), 2)]
)
def test_each_missed_goal_of_a_row_is_shown_beside_its_figure(goal: Goal, missed: int) -> None:
    console = Console(file=io.StringIO(), width=120)

    console.print(table("t", [row("cordon", "kernel line -> cordon", [0.01, 0.02, 0.03], goal)]))

    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().count("missed") == missed


@pytest.mark.parametrize("foreign", ["node", "job"])
async def test_a_cluster_that_is_no_throwaway_is_refused_before_anything_is_changed(
    foreign: str, tmp_path: Path
) -> None:
    async with process_cluster(tmp_path / "hosts", Shape(nodes=int(foreign == "node"))) as cluster:
        assert cluster.server is not None
        kubeconfig = tmp_path / "kubeconfig"
        write_kubeconfig(kubeconfig, cluster.server.url, "admin")
        if foreign == "job":
            admin = cluster.client("admin")
            await admin.create(NAMESPACES, {"metadata": {"name": "ml"}})
            template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}}
            await admin.create(JOBS, {"metadata": {"name": "llm"}, "spec": {"template": template}}, "ml")
        before = len(cluster.store.audit)

        with pytest.raises(StageError, match="n1" if foreign == "node" else "ml/llm"):
            async with raised(Access(kubeconfig=str(kubeconfig)), tmp_path, nodes=5, settings=[]):
                pass

        assert not any(e.changed for e in cluster.store.audit[before:] if e.user == "admin")
        assert len(cluster.store.objects(NODES)) == int(foreign == "node")
