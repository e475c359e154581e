"""A pynvml whose devices are defined by the test, with the names and shapes of nvidia-ml-py 13."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

__all__ = ["Gpu", "put_nvml"]


class NVMLError(Exception):
    @property
    def value(self) -> object:
        """The error's value. The real one is a number; here it is a text."""
        return self.args[0]


class NVMLError_LibraryNotFound(NVMLError):  # noqa: N801  NVIDIA's names
    pass


class NVMLError_NotSupported(NVMLError):  # noqa: N801
    pass


class NVMLError_FunctionNotFound(NVMLError):  # noqa: N801
    pass


class Gpu(msgspec.Struct, kw_only=True):
    """A GPU. None is a value that the device does not support, and `lost` is the error text of every call."""

    uuid: str = "GPU-38"
    pci: str = "00000000:38:00.0"
    lost: str = ""
    rows: tuple[int, int, int, int] | None = (0, 0, 0, 0)
    """Numbers of corrected, uncorrected, pending and failed rows."""
    pages_pending: int | None = None
    sram_exceeded: int | None = 0
    uncorrected: int | None = 0
    action: int | None = 0
    clocks: list[int] | None = []
    """Clock reasons, one sample after the other. The last one stays."""
    clock_looks: int = 0


def put_nvml(monkeypatch: pytest.MonkeyPatch, *gpus: Gpu, error: NVMLError | None = None) -> None:
    """Puts the fake in the place of the module that checks import. `error` is raised at nvmlInit."""
    fake = ModuleType("pynvml")

    def init() -> None:
        if error is not None:
            raise error

    def handle(index: int) -> Gpu:
        if gpus[index].lost:
            raise NVMLError(gpus[index].lost)
        return gpus[index]

    def telling(read: Callable[[Gpu], object]) -> Callable[..., object]:
        def call(gpu: Gpu, *args: object) -> object:
            if (value := read(gpu)) is None:
                raise NVMLError_NotSupported("Not Supported")
            return value

        return call

    def fields(gpu: Gpu, wanted: list[int]) -> list[SimpleNamespace]:
        value = SimpleNamespace(uiVal=gpu.action or 0)
        told = {230: 3 if gpu.action is None else 0}
        return [SimpleNamespace(nvmlReturn=told.get(field, 3), valueType=1, value=value) for field in wanted]

    def clocks(gpu: Gpu) -> int | None:
        if gpu.clocks is None:
            return None
        gpu.clock_looks += 1
        return gpu.clocks[min(gpu.clock_looks, len(gpu.clocks)) - 1] if gpu.clocks else 1

    class Sram(ctypes.Structure):
        _fields_ = (("bThresholdExceeded", ctypes.c_uint),)

    def sram(gpu: Gpu, status: Any) -> None:
        if gpu.sram_exceeded is None:
            raise NVMLError_NotSupported("Not Supported")
        status._obj.bThresholdExceeded = gpu.sram_exceeded

    names: dict[str, object] = {
        "c_nvmlEccSramErrorStatus_v1_t": Sram,
        "nvmlDeviceGetSramEccErrorStatus": sram,
        "NVMLError": NVMLError,
        "NVMLError_LibraryNotFound": NVMLError_LibraryNotFound,
        "NVMLError_NotSupported": NVMLError_NotSupported,
        "NVMLError_FunctionNotFound": NVMLError_FunctionNotFound,
        "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": 1,
        "NVML_VOLATILE_ECC": 0,
        "nvmlInit": init,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: "595.45.04",
        "nvmlDeviceGetCount": lambda: len(gpus),
        "nvmlDeviceGetHandleByIndex": handle,
        "nvmlDeviceGetUUID": lambda gpu: gpu.uuid,
        "nvmlDeviceGetPciInfo": lambda gpu: SimpleNamespace(busId=gpu.pci),
        "nvmlDeviceGetName": lambda gpu: "NVIDIA H100",
        "nvmlDeviceGetMaxMigDeviceCount": telling(lambda gpu: None),
        "nvmlDeviceGetMemoryInfo": telling(lambda gpu: None),
        "nvmlDeviceGetRemappedRows": telling(lambda gpu: gpu.rows),
        "nvmlDeviceGetRetiredPagesPendingStatus": telling(lambda gpu: gpu.pages_pending),
        "nvmlDeviceGetTotalEccErrors": telling(lambda gpu: gpu.uncorrected),
        "nvmlDeviceGetFieldValues": fields,
        "nvmlDeviceGetCurrentClocksEventReasons": telling(clocks),
    }
    for name, value in names.items():
        setattr(fake, name, value)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
