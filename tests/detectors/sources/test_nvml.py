"""The child that reads NVML, with the real pynvml and a library made for these tests."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from detectors.folds.holders import MigDevice
from detectors.service.settings import Nvml as Settings
from detectors.sources.inventory import of_sample
from detectors.sources.nvml import Nvml, NvmlError, sampled_once
from detectors.wire.gpu_sample import GpuReadings, GpuSample, InstanceReadings, Sample
from tests.detectors.sources.nvml_standin import Gpus, nvml_children, pci_of, uuid_of

DEADLINE_S = 20.0


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    return Gpus(tmp_path, monkeypatch)


async def of_gpu(number: int) -> GpuSample:
    return (await sampled_once(DEADLINE_S)).gpus[number]


async def test_healthy_gpus_tell_who_they_are_and_that_nothing_is_wrong(gpus: Gpus) -> None:
    sample = await sampled_once(DEADLINE_S)

    assert (sample.driver_version, len(sample.gpus)) == ("595.45.04", 8)
    assert sample.gpus[2] == GpuSample(
        index=2,
        uuid=uuid_of(2),
        pci=f"{pci_of(2)}.0",
        model="NVIDIA H100 80GB HBM3",
        minor=2,
        mig_changes=False,
        is_persistent=True,
        free_bytes=80 * 2**30,
        rows_pending=False,
        rows_failed=False,
        sram_exceeded=False,
        uncorrected={},
        uncorrected_ever=0,
        links=(True,) * 18,
        slowdowns=1,
        margin_c=40,
        pcie_width=16,
        pcie_width_max=16,
        replays=0,
        is_inforom_bad=False,
    )


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({"rows_pending": 1}, {"rows_pending": True}),
        ({"rows_failed": 1}, {"rows_failed": True}),
        ({"rows_pending": "none", "pages_pending": 1}, {"rows_pending": None, "pages_pending": True}),
        ({"sram_exceeded": 1}, {"sram_exceeded": True}),
        (
            {"ecc": 3, "ecc_at_2": 3, "ecc_ever": 9},
            {"uncorrected": {"device memory": 3}, "uncorrected_ever": 9},
        ),
        ({"ecc": 3}, {"uncorrected": {"all its memory": 3}}),
        ({"ecc": 4, "ecc_at_2": 3}, {"uncorrected": {"device memory": 3, "other memory": 1}}),
        ({"ecc": 0}, {"uncorrected": {}}),
        ({"ecc": "none"}, {"uncorrected": None, "uncorrected_ever": None}),
        ({"field_230": 4}, {"recovery_action": 4}),
        ({"field_52": 5, "field_59": 6}, {"link_errors": 11}),
        ({"link_3": 0, "links": 5}, {"links": (True, True, True, False, True)}),
        ({"links": 0}, {"links": ()}),
        (
            {"fabric_state": 3, "fabric_status": 15, "fabric_health": 0x21},
            {"fabric_state": 3, "fabric_status": 15, "fabric_health": 0x21},
        ),
        ({"fabric_state": 0}, {"fabric_state": None}),
        ({"slowdowns": 0x80}, {"slowdowns": 0x80}),
        ({"margin_c": -3}, {"margin_c": -3}),
        ({"pcie_width": 8}, {"pcie_width": 8}),
        ({"replays": 12}, {"replays": 12}),
        ({"inforom_error": 14}, {"is_inforom_bad": True}),
        ({"inforom_error": 3}, {"is_inforom_bad": False}),
        ({"persistent": 0}, {"is_persistent": False}),
        ({"mig_pending": 1}, {"mig_changes": True}),
        ({"mig": 1, "mig_devices": 2}, {"is_mig": True, "mig_devices": {"MIG-1032": 7, "MIG-1033": 8}}),
        ({"minor": 5}, {"minor": 5}),
        ({"free_bytes": "none"}, {"free_bytes": None}),
    ],
)
async def test_what_a_gpu_answers_comes_out(
    gpus: Gpus, answers: dict[str, Any], told: dict[str, Any]
) -> None:
    gpus.answer(2, **answers)

    gpu = await of_gpu(2)

    assert {name: getattr(gpu, name) for name in told} == told
    assert gpu.refused == ""


@pytest.mark.parametrize(("error", "name"), [(15, "GPU_IS_LOST"), (16, "RESET_REQUIRED"), (999, "UNKNOWN")])
async def test_a_gpu_that_gives_no_handle_says_why_and_hides_no_other(
    gpus: Gpus, error: int, name: str
) -> None:
    gpus.answer(3, handle_error=error)

    sample = await sampled_once(DEADLINE_S)

    assert sample.gpus[3] == GpuSample(index=3, refused=name)
    assert [gpu.index for gpu in sample.gpus if gpu.uuid] == [0, 1, 2, 4, 5, 6, 7]


@pytest.mark.parametrize(("error", "name"), [(15, "GPU_IS_LOST"), (16, "RESET_REQUIRED")])
async def test_a_gpu_that_is_lost_behind_its_handle_is_asked_no_more(
    gpus: Gpus, error: int, name: str
) -> None:
    gpus.answer(3, error=error)

    assert await of_gpu(3) == GpuSample(index=3, refused=name)


@pytest.mark.parametrize(
    "error", [3, 4, 10, 13, 999], ids=["not supported", "no right", "late", "unknown call", "?"]
)
async def test_an_error_of_a_call_is_no_data(gpus: Gpus, error: int) -> None:
    gpus.answer(3, error=error)

    gpu = await of_gpu(3)

    assert msgspec.structs.replace(gpu, is_inforom_bad=None) == GpuSample(index=3)


async def test_a_gpu_that_this_container_may_not_open_is_neither_named_nor_accused(gpus: Gpus) -> None:
    gpus.answer(3, handle_error=4)

    assert await of_gpu(3) == GpuSample(index=3)


async def test_the_inventory_is_of_the_gpus_that_told_who_they_are(gpus: Gpus) -> None:
    gpus.node(count=3)
    gpus.answer(0, handle_error=15)
    gpus.answer(1, mig=1, mig_devices=1, free_bytes="none")
    gpus.answer(2, free_bytes=5 * 2**30)

    found = of_sample(await sampled_once(DEADLINE_S))

    assert [(device.uuid, device.index) for device in found.devices] == [(uuid_of(1), 1), (uuid_of(2), 2)]
    assert found.mig_devices == {"MIG-1016": MigDevice(uuid_of(1), instance=7)}
    assert found.free_device_bytes == 5 * 2**30


@pytest.mark.parametrize("error", [9, 18], ids=["no driver", "another version"])
async def test_a_node_without_a_driver_has_no_sample(gpus: Gpus, error: int) -> None:
    gpus.node(init_error=error)

    with pytest.raises(NvmlError) as raised:
        await sampled_once(DEADLINE_S)

    assert not raised.value.is_silence


@pytest.mark.parametrize(
    "call", ["nvmlInit", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetRemappedRows", "nvmlShutdown"]
)
async def test_a_call_that_never_returns_is_named_and_its_process_ended(gpus: Gpus, call: str) -> None:
    gpus.node(hang=call)

    with pytest.raises(NvmlError, match=rf"\b{call}\b") as raised:
        await sampled_once(6.0)

    assert raised.value.is_silence


class Heard:
    """A sink that records what the source gives to the agent."""

    def __init__(self) -> None:
        self.samples: asyncio.Queue[Sample] = asyncio.Queue()
        self.silences: list[int] = []
        self.why = ""
        self.in_use = True
        self.doubtful = False
        self.readings = False

    def sampled(self, sample: Sample) -> bool:
        self.samples.put_nowait(sample)
        return self.doubtful

    def wants_readings(self) -> bool:
        return self.readings

    def is_in_use(self) -> bool:
        return self.in_use

    def values_unknown(self) -> None: ...

    def silent(self, times: int, why: str) -> None:
        self.silences.append(times)

    def devices_closed(self, step: str) -> None: ...

    def covered(self) -> None:
        self.why = ""

    def blind(self, why: str) -> None:
        self.why = why


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_one_child_answers_for_as_long_as_nothing_hangs(gpus: Gpus) -> None:
    heard = Heard()
    task = asyncio.create_task(Nvml(heard, Settings(every_s=0.05)).run())
    async with asyncio.timeout(DEADLINE_S):
        await heard.samples.get()
        first = nvml_children()
        gpus.answer(2, rows_pending=1)
        while not (await heard.samples.get()).gpus[2].rows_pending:
            pass

    assert nvml_children() == first
    assert len(first) == 1
    await ended(task)
    assert nvml_children() == set()


async def test_a_driver_that_hangs_is_told_each_time_and_found_again_by_a_new_child(gpus: Gpus) -> None:
    heard = Heard()
    settings = Settings(every_s=0.05, deadline_s=1.0, retry_s=0.05)
    task = asyncio.create_task(Nvml(heard, settings).run())
    async with asyncio.timeout(2 * DEADLINE_S):
        await heard.samples.get()
        gpus.node(hang="nvmlDeviceGetRemappedRows")
        while 2 not in heard.silences:
            await asyncio.sleep(0.05)
        assert "nvmlDeviceGetRemappedRows" in heard.why
        gpus.node(hang="nothing")
        while not heard.samples.empty():
            heard.samples.get_nowait()
        await heard.samples.get()

    assert heard.why == ""
    await ended(task)
    assert nvml_children() == set()


async def test_a_driver_that_is_unloaded_between_two_samples_is_told_and_found_again(gpus: Gpus) -> None:
    heard = Heard()
    task = asyncio.create_task(Nvml(heard, Settings(every_s=0.05, retry_s=0.05)).run())
    async with asyncio.timeout(DEADLINE_S):
        await heard.samples.get()
        gpus.node(driver_error=9)
        while not heard.why:
            await asyncio.sleep(0.02)
        gpus.node(driver_error=0, version="600.10.01")
        while (await heard.samples.get()).driver_version != "600.10.01":
            pass

    assert set(heard.silences) == {0}
    await ended(task)


async def test_a_child_that_is_killed_is_replaced(gpus: Gpus) -> None:
    heard = Heard()
    task = asyncio.create_task(Nvml(heard, Settings(every_s=0.05, retry_s=0.05)).run())
    async with asyncio.timeout(DEADLINE_S):
        await heard.samples.get()
        (first,) = nvml_children()
        os.kill(first, signal.SIGKILL)
        while nvml_children() in (set(), {first}):
            await asyncio.sleep(0.02)

    await ended(task)


@pytest.mark.parametrize(
    ("persistent", "in_use", "goes_on"), [(1, False, True), (0, True, True), (0, False, False)]
)
async def test_gpus_that_a_sample_would_start_are_left_alone_while_nobody_uses_them(
    gpus: Gpus, persistent: int, in_use: bool, goes_on: bool
) -> None:
    heard = Heard()
    heard.in_use = in_use
    gpus.answer(5, persistent=persistent)
    task = asyncio.create_task(Nvml(heard, Settings(every_s=0.05)).run())
    async with asyncio.timeout(DEADLINE_S):
        await heard.samples.get()
        await asyncio.sleep(1.0)
        assert (not heard.samples.empty()) == goes_on
        heard.in_use = True  # a pod was given a GPU
        await heard.samples.get()

    await ended(task)


async def test_readings_come_with_the_sample_that_wants_them_and_in_the_same_session(gpus: Gpus) -> None:
    gpus.node(count=2)
    gpus.answer(0, busy_percent=93, used_bytes=60 * 2**30, power_mw=612_000, ecc_corrected=7)
    gpus.answer(1, busy_percent="none", mig=1, mig_devices=2, temperature_c="none", ecc_corrected="none")
    gpus.answer(1017, used_bytes=5 * 2**30)
    heard = Heard()
    task = asyncio.create_task(Nvml(heard, Settings(every_s=0.05)).run())
    async with asyncio.timeout(DEADLINE_S):
        assert [gpu.readings for gpu in (await heard.samples.get()).gpus] == [None, None]
        heard.readings = True
        while (sample := await heard.samples.get()).gpus[0].readings is None:
            pass
    await ended(task)

    memory: dict[str, Any] = {"memory_total_bytes": 80 * 2**30}
    clocks: dict[str, Any] = {"sm_clock_mhz": 1980, "memory_clock_mhz": 2619, "power_limit_mw": 700_000}
    assert [gpu.readings for gpu in sample.gpus] == [
        GpuReadings(
            busy_percent=93,
            memory_used_bytes=60 * 2**30,
            temperature_c=41,
            power_mw=612_000,
            corrected_ever=7,
            **memory,
            **clocks,
        ),
        GpuReadings(
            memory_used_bytes=0,
            power_mw=70_000,
            instances=(
                InstanceReadings(instance=7, memory_used_bytes=0, **memory),
                InstanceReadings(instance=8, memory_used_bytes=5 * 2**30, **memory),
            ),
            **memory,
            **clocks,
        ),
    ]
    assert gpus.times_begun - gpus.times_ended in (0, 1)


async def test_what_is_doubtful_is_looked_at_again_soon(gpus: Gpus) -> None:
    heard = Heard()
    heard.doubtful = True
    task = asyncio.create_task(Nvml(heard, Settings(every_s=600, confirm_s=0.05)).run())
    async with asyncio.timeout(DEADLINE_S):
        for _ in range(3):
            await heard.samples.get()

    await ended(task)
