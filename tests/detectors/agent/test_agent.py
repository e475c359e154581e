"""The whole agent in one process reads a host's files and writes patches."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import msgspec
import pytest
from structlog.testing import capture_logs

from detectors.agent.wiring import AgentOptions, run
from detectors.client.credentials import Credentials
from detectors.service.settings import AgentSettings, Catalogue, Export, GpuMetrics, Logs, Nvml
from detectors.sources import inventory
from detectors.wire.contract import CoverageState, Family, Fault, Origin, Source
from detectors.wire.training import Edge
from tests.detectors.agent.host import BOOT, SETTINGS, Host
from tests.detectors.client.node_api import node_api
from tests.detectors.sources.nvml_standin import Gpus, uuid_of

XID_999 = """
[[xid]]
code = 999
{mnemonic}
meaning = "the riser of our boards is hot"
fault = "thermal"
origin = "kernel"
severity = "fatal"
remedy = "inspect"
source = "our own boards"
"""


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


async def test_an_xid_becomes_a_finding_of_its_gpu(host: Host) -> None:
    async with node_api("n1") as api, host.agent(api):
        await api.until(lambda status: len(status.coverage) == len(Source))
        host.kernel("NVRM: Xid (PCI:0000:38:00): 79, pid=1, name=python3, GPU has fallen off the bus.")
        status = await api.until(lambda status: bool(status.findings))

    (found,) = status.findings
    assert (found.id, found.code, found.fault) == ("0f1e2d3c-kmsg-1", "xid-79", Fault.DEVICE_LOST)
    assert (found.subject.device, found.final, found.boot_id) == ("GPU-38", True, BOOT)


async def test_coverage_says_what_is_read_and_why_the_rest_is_blind(host: Host) -> None:
    async with node_api("n1") as api, host.agent(api):
        status = await api.until(lambda status: len(status.coverage) == len(Source))

    states = {entry.source: entry.state for entry in status.coverage}
    assert states == {
        Source.KMSG: CoverageState.COVERED,
        Source.NVML: CoverageState.BLIND,
        Source.PODS: CoverageState.BLIND,
        Source.LOGS: CoverageState.COVERED,
        Source.FABRIC: CoverageState.BLIND,
        Source.VOLUMES: CoverageState.BLIND,
        Source.HOST: CoverageState.COVERED,
    }
    assert all(entry.why for entry in status.coverage if entry.state is CoverageState.BLIND)


async def test_a_tenant_that_prints_fault_lines_makes_no_finding(host: Host) -> None:
    lie = "NVRM: Xid (PCI:0000:38:00): 79, GPU has fallen off the bus."
    async with node_api("n1") as api, host.agent(api):
        host.kernel(lie, prio=12)
        host.prints(lie, "4,1,1,-;" + lie, "step 1")
        await asyncio.sleep(0.02)
        host.prints("step 2")
        status = await api.until(lambda status: any(pod.first_step is not None for pod in status.pods))
        await asyncio.sleep(0.1)

    assert api.health.findings == []
    assert status.pods[0].first_step == 1


async def test_rubbish_in_the_kernel_log_and_in_a_pods_log_hides_nothing_after_it(
    host: Host,
) -> None:
    settings = msgspec.structs.replace(SETTINGS, logs=Logs(ended_poll_s=0.05, read_pause_s=0.001))
    async with node_api("n1") as api, host.agent(api, settings):
        await api.until(lambda status: len(status.coverage) == len(Source))
        host.prints("step 1")
        (log,) = (host.root / "var/log/pods").rglob("0.log")
        with log.open("ab") as file:
            file.write(b"\xff\x00\xfe no line of the runtime\n" + b"x" * 10_000_000 + b"\n")
        host.prints("\x1b[2J caf\u00e9", "step 2")
        await asyncio.sleep(0.02)
        host.prints("step 3")
        with (host.root / "dev/kmsg").open("ab") as file:
            file.write(b"\xff\xfe\x00\n4,notanumber,1,-;NVRM: Xid\n999999,7,1,-;what facility\n4,1,1\n")
            file.write(b"4,9,9,-;" + b"y" * 1_000_000 + b"\n")
        host.sequence = 9
        host.kernel("NVRM: Xid (PCI:0000:38:00): 79, pid=1, name=python3, GPU has fallen off the bus.")
        status = await api.until(lambda status: bool(status.findings))
        log.parent.rename(log.parent.with_name("gone"))
        await api.until(lambda status: any(pod.last_step == 3 for pod in status.pods))

    assert [found.code for found in status.findings] == ["xid-79"]


async def test_a_device_that_came_to_the_bus_after_the_agent_is_the_nodes(host: Host) -> None:
    async with node_api("n1") as api, host.agent(api):
        await api.until(lambda status: len(status.coverage) == len(Source))
        (host.root / "sys/bus/pci/devices/0000:41:00.0").mkdir(parents=True)
        host.kernel("NVRM: GPU 0000:41:00.0: GPU has fallen off the bus.")

        status = await api.until(lambda status: bool(status.findings))

    assert [found.subject.pci for found in status.findings] == ["0000:41:00"]


async def test_junk_in_the_kernel_log_is_counted_and_does_not_fill_the_agents_own_log(host: Host) -> None:
    async with node_api("n1") as api, host.agent(api):
        await api.until(lambda status: len(status.coverage) == len(Source))
        with capture_logs() as said, (host.root / "dev/kmsg").open("ab") as file:
            file.write(b"this is no record of a kernel\n" * 5000)
            file.write(b"".join(b"4,%d,1,-;a record after a gap\n" % (20 * n) for n in range(1, 500)))
            file.flush()
            host.sequence = 10_000
            host.kernel(*("NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.",) * 500)
            host.kernel("NVRM: Xid (PCI:0000:38:00): 79, pid=1, name=python3, GPU has fallen off the bus.")
            await api.until(lambda status: bool(status.findings))

    warnings = [entry for entry in said if entry["log_level"] == "warning"]
    assert sum("expected" in entry for entry in warnings) == 1, "what is no record of a kernel"
    assert sum("0000:41:00" in entry.get("line", "") for entry in warnings) == 1, "a device of no node"
    assert sum("count" in entry for entry in warnings) == 1, "records that are lost"


async def test_a_training_container_is_followed_from_its_first_step_to_its_end(host: Host) -> None:
    async with node_api("n1") as api, host.agent(api):
        host.prints("loading", "step 41/100 loss 0.3")
        await asyncio.sleep(0.02)
        host.prints("step 42/100 loss 0.3")
        await api.until(lambda status: bool(status.pods) and status.pods[0].edge is Edge.STEPPING)
        host.prints("Traceback (most recent call last):", "ValueError: bad shape")
        host.prints("step 41/100", instance=1)
        status = await api.until(lambda status: Edge.ENDED in [pod.edge for pod in status.pods])

    ended = next(pod for pod in status.pods if pod.edge is Edge.ENDED)
    assert (ended.instance, ended.first_step, ended.last_step) == (0, 41, 42)
    assert ended.tail.endswith("ValueError: bad shape")
    assert ended.first_error is not None
    assert ended.first_error.code == "log-traceback"


async def test_a_jobs_step_template_and_hang_limit_come_with_the_spec(host: Host) -> None:
    async with node_api("n1") as api:
        api.spec = {"pods": [{"uid": "uid-llm-0", "stepTemplate": "it {step}!", "hangTimeoutS": 0.5}]}
        async with host.agent(api):
            host.prints("step 7 of warm-up", "it 1!")
            await asyncio.sleep(0.02)
            host.prints("it 2!")
            await api.until(lambda status: bool(status.pods) and status.pods[0].first_step == 1)
            await api.until(lambda status: status.pods[0].edge is Edge.STALLED)
            host.prints("it 3!")
            await api.until(lambda status: status.pods[0].edge is Edge.RESUMED)


async def test_a_long_log_that_is_read_from_its_start_shows_no_stall_on_the_way(host: Host) -> None:
    """The log is of a training of two hours, and the agent needs two seconds to read it."""
    now = datetime.now(UTC)
    folder = host.root / "var/log/pods/train_llm-0_uid-llm-0/main"
    folder.mkdir(parents=True)
    with (folder / "0.log").open("w") as file:
        for n in range(720):
            at = now - timedelta(seconds=7200 - 10 * n)
            file.write(f"{at.isoformat()} stdout F step {n} {'x' * 1000}\n")
    slow = Logs(read_bytes=16 * 1024, read_pause_s=0.04, ended_poll_s=0.05)
    settings = msgspec.structs.replace(SETTINGS, logs=slow)

    async with node_api("n1") as api, host.agent(api, settings):
        await api.until(lambda status: bool(status.pods))
        await asyncio.sleep(2.5)
        host.prints("step 720")
        await asyncio.sleep(0.2)
        shutil.rmtree(folder.parent)
        status = await api.until(lambda status: status.pods[0].edge is Edge.ENDED)

    edges = [pod["edge"] for patch in api.patches for pod in patch["status"]["pods"] or ()]
    assert status.pods[0].last_step == 720
    assert set(edges) == {Edge.STEPPING, Edge.ENDED}


async def test_a_restart_of_the_agent_neither_loses_nor_repeats(host: Host) -> None:
    xid = "NVRM: Xid (PCI:0000:38:00): {}, x"
    async with node_api("n1") as api:
        async with host.agent(api):
            host.kernel(xid.format(119))
            before = await api.until(lambda status: bool(status.findings))
        host.kernel(xid.format(79))
        async with host.agent(api):
            after = await api.until(lambda status: len(status.findings) == 2)

    assert after.findings[0] == before.findings[0]
    assert after.coverage[0] == before.coverage[0], (
        "no record was missed, so the log was covered all the while"
    )
    assert [found.code for found in after.findings] == ["xid-119", "xid-79"]
    assert [found.count for found in after.findings] == [1, 1]


async def test_a_new_boot_drops_the_findings_of_the_old(host: Host) -> None:
    async with node_api("n1") as api:
        async with host.agent(api):
            host.kernel("NVRM: Xid (PCI:0000:38:00): 79, x")
            await api.until(lambda status: bool(status.findings))
        (host.root / "proc/sys/kernel/random/boot_id").write_text("another-boot\n")
        (host.root / "dev/kmsg").write_text("")
        async with host.agent(api):
            status = await api.until(lambda status: status.boot_id == "another-boot")

    assert [finding.code for finding in status.findings] == ["node-booted"]


async def test_a_bad_row_of_the_users_catalogue_is_told_and_the_others_are_used(host: Host) -> None:
    rows = host.root / "rows.toml"
    good = XID_999.format(mnemonic='mnemonic = "OURS"')
    rows.write_text(good + XID_999.format(mnemonic="").replace("999", "998"))
    settings = msgspec.structs.replace(SETTINGS, catalogue=Catalogue(extra=str(rows)))
    async with node_api("n1") as api, host.agent(api, settings):
        host.kernel("NVRM: Xid (PCI:0000:38:00): 999, ours")
        status = await api.until(lambda status: bool(status.findings))

    assert status.findings[0].fault is Fault.THERMAL
    (problem,) = status.catalogue_problems
    assert all(name in problem for name in (str(rows), "[[xid]]", "row 2", "998", "mnemonic"))


async def test_a_storm_of_lines_is_one_finding_and_few_writes(host: Host) -> None:
    async with node_api("n1") as api, host.agent(api):
        await api.until(lambda status: len(status.coverage) == len(Source))
        writes = len(api.patches)
        host.kernel(
            "NVRM: Xid (PCI:0000:38:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 03",
            *("NVRM: Xid (PCI:0000:38:00): 45, pid=1, name=p, Ch 1 caused by previous Xid 149",) * 20_000,
            "NVRM: Xid (PCI:0000:38:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (R)",
        )
        status = await api.until(lambda status: bool(status.findings) and status.findings[0].final)

    (found,) = status.findings
    assert (found.code, found.chain) == ("xid-149", ["xid-45", "xid-154"])
    assert len(api.patches) - writes <= 5


async def test_without_a_driver_the_agent_works_and_says_so(host: Host) -> None:
    settings = AgentSettings(logs=SETTINGS.logs, publishing=SETTINGS.publishing)
    async with node_api("n1") as api, host.agent(api, settings):
        host.kernel("NVRM: Xid (PCI:0000:38:00): 79, x")
        status = await api.until(
            lambda status: (
                bool(status.findings) and any(entry.source is Source.NVML for entry in status.coverage)
            )
        )

    assert next(entry for entry in status.coverage if entry.source is Source.NVML).why


async def test_a_gpu_that_only_nvml_knows_to_be_lost_is_published(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = Gpus(tmp_path, monkeypatch, count=2)
    shutil.rmtree(host.root / "proc/driver/nvidia")
    settings = msgspec.structs.replace(SETTINGS, nvml=Nvml(every_s=0.1, confirm_s=0.1))
    async with node_api("n1") as api, host.agent(api, settings):
        status = await api.until(lambda status: len(status.devices) == 2)
        assert not status.findings

        gpus.answer(1, handle_error=15)
        status = await api.until(lambda status: bool(status.findings))
        (finding,) = status.findings
        assert (finding.code, finding.origin, finding.subject.device) == (
            "nvml-gpu-lost",
            Origin.DRIVER,
            uuid_of(1),
        )
        assert [device.uuid for device in status.devices] == [uuid_of(0), uuid_of(1)]

        gpus.answer(1, handle_error=0)
        status = await api.until(lambda status: status.findings[0].cleared_at is not None)

    (nvml,) = [entry for entry in status.coverage if entry.source is Source.NVML]
    assert nvml.families == [Family.GPU_HEALTH]


async def test_readings_of_gpus_are_scraped_unless_the_exporter_of_dcgm_is_there(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    gpus = Gpus(tmp_path, monkeypatch, count=2)
    gpus.answer(1, busy_percent=50)
    shutil.rmtree(host.root / "proc/driver/nvidia")
    settings = msgspec.structs.replace(
        SETTINGS, nvml=Nvml(every_s=0.1), gpu_metrics=GpuMetrics(export=Export.AUTO)
    )
    wanted = f'rekindle_gpu_utilization_ratio{{gpu="1",uuid="{uuid_of(1)}"}} 0.5'
    url = f"http://127.0.0.1:{unused_tcp_port}/metrics"
    async with (
        node_api("n1") as api,
        host.agent(api, settings, listen_port=unused_tcp_port),
        aiohttp.ClientSession() as client,
        asyncio.timeout(30),
    ):
        await api.until(lambda status: len(status.devices) == 2)
        while wanted not in (await (await client.get(url)).text()).splitlines():
            await asyncio.sleep(0.05)

        host.prints("ready", pod="nvidia-dcgm-exporter-x2x4z")
        while "rekindle_gpu_utilization_ratio" in await (await client.get(url)).text():
            await asyncio.sleep(0.05)


async def test_lines_that_recipes_look_for_are_published_and_counted_once(
    host: Host, unused_tcp_port: int
) -> None:
    async def counted(client: aiohttp.ClientSession, name: str) -> str:
        async with client.get(f"http://127.0.0.1:{unused_tcp_port}/metrics") as answer:
            found = [line for line in (await answer.text()).splitlines() if f'{{signature="{name}"}}' in line]
        return next((line.split()[-1] for line in found if "_total" in line), "none")

    full = "Cannot allocate 2.5GB memory on GPU 0, available memory is only 512.0MB"
    async with node_api("n1") as api, aiohttp.ClientSession() as client:
        host.prints("Cannot allocate 1.0MB memory on GPU 0, available memory is only 3.1GB", pod="old")
        async with host.agent(api, listen_port=unused_tcp_port):
            await api.until(lambda status: len(status.pods) == 1)
            assert await counted(client, "paddle-autogrow-oom") == "0.0", (
                "it was printed before this agent began"
            )
            for line in (full, "Cannot allocate 25.0MB memory on GPU 0, available memory is only 3.1GB"):
                host.prints(line)
            status = await api.until(lambda status: any(len(pod.known_lines) == 2 for pod in status.pods))
            assert await counted(client, "paddle-autogrow-oom") == "1.0"
            assert await counted(client, "small-shm") == "none"

            api.spec = {
                "pods": [{"uid": "uid-llm-0", "stepTemplate": "it {step}!"}],
                "signatures": [{"name": "small-shm", "match": ["unable to write to file"]}],
                "request": "now",
            }
            host.prints("it 1!")
            await asyncio.sleep(0.02)
            host.prints("it 2!")
            host.prints("CUDA_ERROR_INVALID_IMAGE", pod="other")
            await api.until(lambda status: any(pod.first_step == 1 for pod in status.pods))
            assert await counted(client, "paddle-autogrow-oom") == "1.0", "read again and not counted again"
            assert await counted(client, "small-shm") == "0.0"

    llm = next(pod for pod in status.pods if pod.name == "llm-0")
    assert (llm.edge, llm.first_step) == (Edge.STARTED, None)
    assert [line.text[:22] for line in llm.known_lines] == [
        "Cannot allocate 2.5GB ",
        "Cannot allocate 25.0MB",
    ]


def test_a_gpu_whose_uuid_the_driver_does_not_know_yet_is_left_out(host: Host) -> None:
    host.gpu("0000:39:00.0", "GPU-????????-????-????-????-????????????")
    (host.root / "proc/driver/nvidia/version").write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  595.45.04  Tue Jan  6 2026\n"
    )

    found = inventory.from_proc(host.root)

    assert [device.uuid for device in found.devices] == ["GPU-38"]
    assert found.driver_version == "595.45.04"


@pytest.mark.processes
async def test_the_command_serves_its_probes_and_ends_at_once_when_told(host: Host) -> None:
    async with node_api("n1") as api:
        child = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-c",
                "import sys; from detectors.agent.command import run; sys.exit(run(sys.argv[1:]))",
            ),
            *("--node", "n1", "--host-root", str(host.root), "--server", api.url),
            *("--listen", "127.0.0.1:0", "--set", "nvml.enabled=false"),
            stderr=subprocess.PIPE,
        )
        try:
            await api.until(lambda status: len(status.coverage) == len(Source))
            begin_s = time.monotonic()
            child.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(child.wait(), 30) == 0
            assert time.monotonic() - begin_s < 10, "a kubelet kills after 30"
        finally:
            if child.returncode is None:
                child.kill()


async def test_the_probes_and_metrics_answer(host: Host, unused_tcp_port: int) -> None:
    stop = asyncio.Event()
    async with node_api("n1") as api, aiohttp.ClientSession() as client:
        api.exists = False
        options = AgentOptions(
            node="n1",
            credentials=Credentials(server=api.url),
            host_root=host.root,
            listen_host="127.0.0.1",
            listen_port=unused_tcp_port,
            settings=SETTINGS,
        )
        task = asyncio.create_task(run(options, stop))
        url = f"http://127.0.0.1:{unused_tcp_port}"

        async def status_of(path: str) -> int:
            async with client.get(url + path) as response:
                return response.status

        await _until_listening(client, url)
        assert (await status_of("/healthz"), await status_of("/readyz")) == (200, 503)
        api.exists = True
        await api.until(lambda status: len(status.coverage) == len(Source))
        assert await status_of("/readyz") == 200
        async with client.get(url + "/metrics") as response:
            assert 'rekindle_agent_source_covered{source="kmsg"} 1.0' in await response.text()
        stop.set()
        await asyncio.wait_for(task, 30)


async def _until_listening(client: aiohttp.ClientSession, url: str) -> None:
    async with asyncio.timeout(5):
        while True:
            try:
                async with client.get(url + "/healthz"):
                    return
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.02)
