"""The agent closes its node's devices while a repair works on them, and reports that it has."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from detectors.folds.core import AgentCore
from detectors.rules.facts import KernelLine
from detectors.service.settings import AgentSettings, Nvml
from detectors.sources import nvml
from detectors.wire.contract import Coverage, CoverageState, NodeHealthSpec, NodeHealthStatus, Source
from detectors.wire.gpu_sample import Sample
from tests.detectors.agent.host import BOOT, SETTINGS, Host
from tests.detectors.client.node_api import node_api
from tests.detectors.sources.nvml_standin import Gpus, nvml_children


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "host")


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    return Gpus(tmp_path, monkeypatch)


def settings(nvml_settings: Nvml) -> AgentSettings:
    return msgspec.structs.replace(SETTINGS, nvml=nvml_settings)


def nvml_of(status: NodeHealthStatus) -> Coverage | None:
    return next((entry for entry in status.coverage if entry.source is Source.NVML), None)


def is_covered(status: NodeHealthStatus) -> bool:
    entry = nvml_of(status)
    return entry is not None and entry.state is CoverageState.COVERED


def is_blind(status: NodeHealthStatus, name: str) -> bool:
    """Whether NVML is blind for a reason that contains this name."""
    entry = nvml_of(status)
    return entry is not None and entry.state is CoverageState.BLIND and name in entry.why


async def test_a_reading_that_hangs_is_ended_before_the_agent_answers(host: Host, gpus: Gpus) -> None:
    gpus.node(hang="nvmlInit")
    async with node_api("n1") as api, host.agent(api, settings(Nvml(deadline_s=600))):
        async with asyncio.timeout(20):
            while not (readers := nvml_children()):
                await asyncio.sleep(0.02)
        api.spec = {"handsOff": "repair-a-reset-1"}
        host.kernel("NVRM: Xid (PCI:0000:38:00): 79, x")
        status = await api.until(lambda status: status.hands_off == "repair-a-reset-1")

        assert is_blind(status, "repair-a-reset-1")
        for reader in readers:
            with pytest.raises(ProcessLookupError):
                os.kill(reader, 0)


async def test_the_devices_are_read_again_as_soon_as_the_repair_gives_them_back(
    host: Host, gpus: Gpus
) -> None:
    async with node_api("n1") as api:
        api.spec = {"handsOff": "repair-a-reset-1"}
        async with host.agent(api, settings(Nvml())):
            await api.until(lambda status: status.hands_off == "repair-a-reset-1")
            assert gpus.times_begun == 0, "an agent that starts during the repair reads nothing either"

            api.spec = {}
            status = await api.until(is_covered)

    assert (status.hands_off, status.driver_version) == ("", "595.45.04")
    assert gpus.times_begun


async def test_between_two_samples_no_process_has_a_device_open(host: Host, gpus: Gpus) -> None:
    """Otherwise a reset, or an unload of the driver, fails, no matter who does it."""
    async with node_api("n1") as api, host.agent(api, settings(Nvml(every_s=600, confirm_s=600))):
        await api.until(is_covered)

        assert len(nvml_children()) == 1
        assert (gpus.times_begun, gpus.times_ended) == (1, 1)


async def test_each_step_is_answered_by_its_own_name(host: Host, gpus: Gpus) -> None:
    async with node_api("n1") as api:
        api.spec = {"handsOff": "repair-a-reset-1"}
        async with host.agent(api, settings(Nvml())):
            await api.until(lambda status: status.hands_off == "repair-a-reset-1")
            api.spec = {"handsOff": "repair-a-validate-2"}
            status = await api.until(lambda status: status.hands_off == "repair-a-validate-2")

    assert is_blind(status, "repair-a-validate-2")
    assert gpus.times_begun == 0


async def test_a_repair_that_never_gives_back_does_not_blind_the_agent_for_ever(
    host: Host, gpus: Gpus
) -> None:
    async with node_api("n1") as api:
        api.spec = {"handsOff": "repair-a-reset-1"}
        async with host.agent(api, settings(Nvml(hands_off_max_s=0.2))):
            status = await api.until(is_covered)
            assert status.hands_off == "", "a device is open again: nothing else may be claimed"

            api.spec = {"handsOff": "repair-a-reset-2"}
            host.kernel("NVRM: Xid (PCI:0000:38:00): 79, x")
            await api.until(lambda status: status.hands_off == "repair-a-reset-2")


async def test_an_agent_that_never_reads_nvml_answers_as_well(host: Host) -> None:
    async with node_api("n1") as api:
        api.spec = {"handsOff": "repair-a-reset-1"}
        async with host.agent(api):
            await api.until(lambda status: status.hands_off == "repair-a-reset-1")
            api.spec = {}
            await api.until(lambda status: is_blind(status, "nvml.enabled"))


class Stuck:
    """A child in uninterruptible sleep, which still exists after a kill."""

    pid = 4711
    returncode: int | None = None


class Heard:
    def __init__(self) -> None:
        self.steps: list[str] = []
        self.why = ""

    def sampled(self, sample: Sample) -> bool:
        return False

    def wants_readings(self) -> bool:
        return False

    def is_in_use(self) -> bool:
        return False

    def silent(self, times: int, why: str) -> None: ...

    def values_unknown(self) -> None: ...

    def devices_closed(self, step: str) -> None:
        self.steps.append(step)

    def covered(self) -> None: ...

    def blind(self, why: str) -> None:
        self.why = why


async def test_a_child_that_hangs_in_the_driver_is_named_and_no_answer_given_before_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    child, heard = Stuck(), Heard()

    class Hanging:
        def __init__(self, module: str, *, outlived: list[object], tells_calls: bool) -> None:
            self._outlived = outlived

        async def ask(self, deadline_s: float, question: str) -> bytes:
            await asyncio.sleep(600)
            raise AssertionError

        async def end(self) -> None:
            self._outlived.append(child)

    monkeypatch.setattr(nvml, "LastingChild", Hanging)
    monkeypatch.setattr(nvml, "_STUCK_LOOK_S", 0.02)
    source = nvml.Nvml(heard, Nvml())
    task = asyncio.create_task(source.run())
    await asyncio.sleep(0.05)
    source.close_devices_for("repair-a-reset-1")
    async with asyncio.timeout(10):
        while "4711" not in heard.why:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert heard.steps == []

        child.returncode = -9
        while heard.steps != ["repair-a-reset-1"]:
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_while_a_repair_has_the_devices_the_controller_is_asked_often() -> None:
    core = AgentCore(AgentSettings(), boot_id=BOOT)
    core.spec(NodeHealthSpec(hands_off="repair-a-reset-1"))
    now = datetime.now(UTC)
    assert core.ask_every_s(now) == 300

    core.devices_closed("repair-a-reset-1")

    assert core.ask_every_s(now) == 5
    assert core.status(now).hands_off == "repair-a-reset-1"


@pytest.mark.parametrize(
    ("xid", "later_s"), [(79, 30.0), (31, 300.0)], ids=["a device is broken", "a program's own fault"]
)
def test_a_repair_that_has_waited_for_hours_is_heard_before_its_step_begins(xid: int, later_s: float) -> None:
    """The controller gives the agent a minute to close the devices."""
    core = AgentCore(AgentSettings(), boot_id=BOOT)
    now = datetime.now(UTC)
    core.kernel_line(KernelLine(sequence=1, at=now, text=f"NVRM: Xid (PCI:0000:38:00): {xid}, x"))

    assert core.ask_every_s(now + timedelta(minutes=10)) == 5
    assert core.ask_every_s(now + timedelta(hours=12)) == later_s


def test_a_fault_that_never_pauses_is_news_after_the_repair_that_did_not_help() -> None:
    """Otherwise the fault would count into the earlier finding, on which Rekindle no longer acts once the
    node is returned to service."""
    core = AgentCore(AgentSettings(), boot_id=BOOT)
    begin = datetime.now(UTC)

    def line(sequence: int) -> bool:
        at = begin + timedelta(seconds=1.5 * sequence)
        text = "NVRM: Xid (PCI:0000:38:00): 48, x"
        return core.kernel_line(KernelLine(sequence=sequence, at=at, text=text))

    assert [line(1), line(2), line(3)] == [True, False, False]
    core.devices_closed("repair-a-reset-1")
    core.devices_closed("")

    assert [line(4), line(5)] == [True, False]
    assert [finding.first_seen for finding in core.findings] == [
        begin + timedelta(seconds=1.5),
        begin + timedelta(seconds=6),
    ]


async def test_the_answer_comes_soon_where_the_finding_is_new(host: Host) -> None:
    """With the shipped times the agent requests its spec every 5 s, here every 0.05 s, and without a new
    finding every 300 s."""
    async with node_api("n1") as api, host.agent(api):
        await api.until(lambda status: len(status.coverage) == len(Source))
        host.kernel("NVRM: Xid (PCI:0000:38:00): 79, x")
        await api.until(lambda status: bool(status.findings))
        await asyncio.sleep(0.2)
        api.spec = {"handsOff": "repair-a-reset-1"}
        await api.until(lambda status: status.hands_off == "repair-a-reset-1")
