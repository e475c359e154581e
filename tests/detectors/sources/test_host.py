"""The node itself, as /proc and /sys show it."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from detectors.agent.command import run
from detectors.folds.core import AgentCore, Dirty
from detectors.rules.host_pressure import HostSample, Pressure
from detectors.service.settings import AgentSettings
from detectors.sources.host import HostReader
from tests.detectors.agent.host import BOOT, SETTINGS, Host
from tests.detectors.client.node_api import node_api
from tests.detectors.rules.test_boot_records import PANIC


def booted_s() -> float:
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def record(root: Path, name: str, text: str, *, before_boot_s: float = 120) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (booted_s() - before_boot_s,) * 2)


@pytest.mark.parametrize(
    "name", ["sys/fs/pstore/dmesg-erst-7123", "var/lib/systemd/pstore/1732586400/001/dmesg.txt"]
)
def test_a_record_is_found_in_pstore_and_where_systemd_keeps_it(tmp_path: Path, name: str) -> None:
    record(tmp_path, name, PANIC)
    record(tmp_path, "sys/fs/pstore/console-ramoops-0", "Kernel panic - not syncing: another file")
    (tmp_path / "sys/class/watchdog/watchdog0").mkdir(parents=True)
    (tmp_path / "sys/class/watchdog/watchdog0/bootstatus").write_text("32\n")

    boot, _ = HostReader(tmp_path, boot_id="b", proc=tmp_path / "proc").boot()

    assert [one.line for one in boot.records] == ["Kernel panic - not syncing: Fatal exception in interrupt"]
    assert boot.watchdogs == (32,)
    assert abs(boot.at.timestamp() - booted_s()) < 5


def test_the_reader_names_folders_that_it_does_not_see(tmp_path: Path) -> None:
    _, unseen = HostReader(tmp_path, boot_id="b", proc=tmp_path / "proc").boot()
    assert unseen == [f"{tmp_path}/sys/fs/pstore", f"{tmp_path}/var/lib/systemd/pstore"]


async def test_the_agent_tells_once_why_its_node_has_booted(tmp_path: Path) -> None:
    host = Host(tmp_path)
    record(tmp_path, "sys/fs/pstore/dmesg-erst-7123", PANIC)
    async with node_api("n1") as api:
        async with host.agent(api, SETTINGS):
            first = await api.until(lambda status: bool(status.findings))
        async with host.agent(api, SETTINGS):
            second = await api.until(lambda status: status.boot_id == BOOT)

    assert [finding.code for finding in first.findings] == ["boot-after-panic"]
    assert [finding.id for finding in second.findings] == [first.findings[0].id]


def test_a_boot_without_a_record_is_reported_only_if_an_earlier_boot_is_known(tmp_path: Path) -> None:
    before = AgentCore(AgentSettings(), boot_id="a")
    boot, _ = HostReader(tmp_path, boot_id="b", proc=tmp_path / "proc").boot()

    fresh = AgentCore(AgentSettings(), boot_id="b")
    fresh.booted(boot, boot.at)
    assert (fresh.findings, fresh.dirty) == ([], Dirty.NOTHING)

    after = AgentCore(AgentSettings(), boot_id="b")
    after.restore(before.status(boot.at))
    after.booted(boot, boot.at)
    after.booted(boot, boot.at)
    assert [(f.code, f.count) for f in after.findings] == [("node-booted", 1)]
    assert after.ask_every_s(boot.at) == AgentSettings().publishing.ask_s, (
        "it asks the API server no more often than usual"
    )


def test_a_scan_tells_of_a_panic(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Host(tmp_path)
    record(tmp_path, "sys/fs/pstore/dmesg-erst-7123", PANIC)
    run(["scan", "--host-root", str(tmp_path), "--all", "--set", "nvml.enabled=false"])
    told = capsys.readouterr().out
    assert re.search(r"\bboot-after-panic +node\b", told)
    assert "host: read (crash records are missing: " in told


def test_pressure_and_processes_are_read_as_far_as_the_kernel_shows_them(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    (proc / "pressure").mkdir(parents=True)
    (proc / "sys/kernel").mkdir(parents=True)
    reader = HostReader(tmp_path, boot_id="b", proc=proc)
    assert reader.sample() == HostSample()
    (proc / "pressure/io").write_text("some avg10=0.00 avg60=0.00 avg300=7.50 total=0\n")
    (proc / "loadavg").write_text("0.20 0.18 0.12 1/8034 11206\n")
    (proc / "sys/kernel/threads-max").write_text("32768\n")
    (proc / "sys/kernel/pid_max").write_text("4194304\n")
    assert reader.sample() == HostSample({"io": Pressure(7.5, None)}, 8034, 32768)


def test_this_machine_is_read() -> None:
    sample = HostReader(Path("/"), boot_id="b", proc=Path("/proc")).sample()
    assert sample.threads
    assert sample.threads_max
