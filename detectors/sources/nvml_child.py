"""Asks NVML for the state of all GPUs each time a line comes in, and ends when its input ends. nvml.py runs
this module as a separate process, since a driver call may never return.

On a node with Iluvatar's library IXML and without NVML, the child asks IXML (ixml.py).
The answer is the sample, as JSON. Before each call the child writes the name of the call into a file in
memory (calls_file.py), so the parent knows which call hangs.
The child shuts NVML down between two samples: neither a reset of a GPU nor an unload of the driver succeeds
while any process has a device open.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from detectors.commands.extras import install
from detectors.sources import ixml, nvml_readings
from detectors.sources.calls_file import tell_call
from detectors.text.pci import parse_pci
from detectors.wire.contract import Device, NodeHealthStatus
from detectors.wire.fitting import fit
from detectors.wire.gpu_sample import READINGS_WANTED, GpuSample, Sample

__all__ = ["main", "sampled_here", "samples"]

_FATES = {15: "GPU_IS_LOST", 16: "RESET_REQUIRED"}
"""Errors that say that a GPU is lost or needs a reset. All others say only that a GPU does not report a
value."""
_CALLERS_OWN = frozenset({1, 2, 4, 7, 13, 20, 25})
"""Errors of the call and not of the GPU: uninitialized, invalid argument, no permission, too little room,
function not found, no memory, another version."""
_INVALID_ARGUMENT, _LIBRARY_NOT_FOUND, _FUNCTION_NOT_FOUND, _CORRUPTED_INFOROM = 2, 12, 13, 14
_RECOVERY_ACTION = 230
_LINK_ERRORS = (52, 59)
"""Fields for the replays of all NVLinks, and the recoveries."""
_UNCORRECTED, _VOLATILE, _AGGREGATE = 1, 0, 1
_LOCATIONS = {1: "L2 cache", 2: "device memory", 3: "register file", 7: "SRAM"}
"""Locations where ECC errors are counted, by NVML's numbers."""


def main() -> int:
    calls = int(sys.argv[1])
    for sample in samples(sys.stdin, lambda call: tell_call(calls, call)):
        print(msgspec.json.encode(sample).decode(), flush=True)
        if sample.error:
            return 1  # only a new process loads a library that was replaced
    return 0


def samples(asked: Iterable[str], announce: Callable[[str], None]) -> Iterator[Sample]:
    """Yields one sample for each line of `asked`. Errors of NVML do not raise; they are in the sample."""
    try:
        import pynvml  # noqa: PLC0415  only here: the package is optional
    except ImportError as error:
        yield Sample(error=f"nvidia-ml-py is not installed: {error}; {install('agent')} brings it")
        return
    _give_memory_back()
    nvml = _Nvml(pynvml, announce)
    for number, line in enumerate(asked):
        yield nvml.sample(checks_inforom=number == 0, reads_all=line.strip() == READINGS_WANTED)


def _give_memory_back() -> None:
    """Returns memory to the system. The import of pynvml leaves 10 MiB that were used and are free: half of
    the process."""
    with contextlib.suppress(OSError, AttributeError):  # another libc
        ctypes.CDLL(None).malloc_trim(0)


def sampled_here() -> Sample:
    """Returns a sample taken in this process, for a caller that may itself be lost."""
    return next(samples([""], lambda call: None))


class _Nvml:
    """pynvml, with each call announced."""

    def __init__(self, pynvml: Any, announce: Callable[[str], None]) -> None:
        self._pynvml = pynvml
        self._announce = announce
        self._ixml: ixml.Ixml | None = None
        self.Error = pynvml.NVMLError

    @property
    def name(self) -> str:
        return "NVML" if self._ixml is None else "IXML"

    def sample(self, *, checks_inforom: bool, reads_all: bool) -> Sample:
        """Returns one sample. `checks_inforom`: validate the InfoROM, which is read from flash and takes
        time. `reads_all`: also read the values for dashboards."""
        try:
            self._begin()
        except self.Error as error:
            return Sample(error=f"{self.name}: {error}")
        except ixml.IxmlError as error:
            return Sample(error=f"IXML: {error}")
        try:
            version = _text(self.call("nvmlSystemGetDriverVersion"))
            count = int(self.call("nvmlDeviceGetCount"))
            reads = (*_READS, *[_inforom] * checks_inforom, *[_readings] * reads_all)
            gpus = tuple(self._gpu(index, reads) for index in range(count))
        except self.Error as error:
            return Sample(error=f"{self.name}: {error}")
        finally:
            with contextlib.suppress(self.Error):  # the driver was unloaded meanwhile
                self.call("nvmlShutdown")
        return Sample(
            driver_version=fit(NodeHealthStatus, "driver_version", version),
            gpus=gpus,
            is_by_ixml=self._ixml is not None,
        )

    def _begin(self) -> None:
        """Initializes NVML, or Iluvatar's library if the node has no NVML. Raises NVMLError or IxmlError."""
        try:
            self.call("nvmlInit")
        except self.Error as error:
            if error.value != _LIBRARY_NOT_FOUND or (found := ixml.loaded()) is None:
                raise
            self._ixml = self._pynvml.nvmlLib = found
            self.call("nvmlInit")

    def _gpu(self, index: int, reads: tuple[Read, ...]) -> GpuSample:
        try:
            handle = self.call("nvmlDeviceGetHandleByIndex", index)
        except self.Error as error:
            return GpuSample(index=index, refused=self._refusal(error.value))
        gpu = _Gpu(self, handle, index)
        told = {name: value for read in reads for name, value in read(gpu).items() if value is not None}
        return GpuSample(index=index, refused=gpu.fate, **told)

    def _refusal(self, value: int) -> str:
        """Returns NVML's name of the error; empty if it is not an error of the GPU."""
        if value in _CALLERS_OWN:
            return ""
        begin = "NVML_ERROR_"
        names = (name for name in dir(self._pynvml) if name.startswith(begin))
        found = (name for name in names if getattr(self._pynvml, name) == value)
        return next(found, f"{begin}{value}").removeprefix(begin)

    def call(self, name: str, *arguments: Any, of: int | None = None) -> Any:
        """Calls a function of NVML. Raises NVMLError, also if the package does not know the function."""
        self._announce(name if of is None else f"{name} of GPU {of}")
        function = getattr(self._pynvml, name, None)
        if function is None:
            raise self.Error(_FUNCTION_NOT_FOUND)
        return function(*arguments)

    def health(self, handle: Any, of: int) -> int | None:
        """Returns IXML's own verdict; None with NVML. Raises NVMLError."""
        if self._ixml is None:
            return None
        self._announce(f"{ixml.HEALTH} of GPU {of}")
        error, bits = self._ixml.health(handle)
        if error:
            raise self.Error(error)
        return bits

    def struct(self, name: str) -> Any:
        """Returns an empty struct for NVML to fill; None if the package does not know it."""
        made = getattr(self._pynvml, name, None)
        return None if made is None else made()

    def number(self, name: str) -> Any:
        """Returns a constant of the package; None if the package does not know it."""
        return getattr(self._pynvml, name, None)


class _Gpu:
    """One GPU, and the error that says whether it is lost or needs a reset."""

    def __init__(self, nvml: _Nvml, handle: Any, index: int) -> None:
        self.nvml = nvml
        self._handle = handle
        self._index = index
        self.fate = ""
        self.error = 0
        """NVML's number of the last error."""
        self.memory: Any = None
        """NVML's answer about its memory."""

    @property
    def memory_version(self) -> int | None:
        version: int | None = self.nvml.number("nvmlMemory_v2")
        return version

    def ask(self, name: str, *arguments: Any, part: Any = None) -> Any:
        """Asks about the GPU, or about a part of it; returns None if there is no answer. A GPU that is lost,
        or needs a reset, is asked nothing more."""
        handle = self._handle if part is None else part
        return self._answer(lambda: self.nvml.call(name, handle, *arguments, of=self._index))

    def health(self) -> int | None:
        bits: int | None = self._answer(lambda: self.nvml.health(self._handle, self._index))
        return bits

    def _answer(self, call: Callable[[], Any]) -> Any:
        if self.fate:
            return None
        try:
            return call()
        except self.nvml.Error as error:
            self.error = error.value
            self.fate = _FATES.get(error.value, "")
            return None

    def fill(self, name: str, struct: str) -> Any:
        """Returns a struct that NVML has filled; None if there is no answer."""
        empty = self.nvml.struct(struct)
        if empty is None or self.ask(name, ctypes.byref(empty)) is None:
            return None
        return empty

    def fields(self, *wanted: int) -> list[int | None]:
        """Returns the values of several fields. Each field has its own return code, and is None if it has no
        value."""
        answers = self.ask("nvmlDeviceGetFieldValues", list(wanted))
        if answers is None:
            return [None] * len(wanted)
        return [_value(answer) if answer.nvmlReturn == 0 else None for answer in answers]


Told = dict[str, Any]
Read = Callable[[_Gpu], Told]


def _identity(gpu: _Gpu) -> Told:
    pci = gpu.ask("nvmlDeviceGetPciInfo")
    address = parse_pci(_text(pci.busId)) if pci is not None else None
    uuid, model = gpu.ask("nvmlDeviceGetUUID"), gpu.ask("nvmlDeviceGetName")
    minor = gpu.ask("nvmlDeviceGetMinorNumber")
    return {
        "pci": f"{address}.0" if address else None,
        "uuid": fit(Device, "uuid", _text(uuid)) if uuid is not None else None,
        "model": fit(Device, "model", _text(model)) if model is not None else None,
        "minor": int(minor) if minor is not None else None,
    }


def _modes(gpu: _Gpu) -> Told:
    mig, persistent = gpu.ask("nvmlDeviceGetMigMode"), gpu.ask("nvmlDeviceGetPersistenceMode")
    return {
        "is_mig": bool(mig[0]) if mig is not None else None,
        "mig_changes": mig[0] != mig[1] if mig is not None else None,
        "mig_devices": _mig_devices(gpu) if mig is not None and mig[0] else None,
        "is_persistent": bool(persistent) if persistent is not None else None,
    }


def _mig_devices(gpu: _Gpu) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for place in range(gpu.ask("nvmlDeviceGetMaxMigDeviceCount") or 0):
        handle = gpu.ask("nvmlDeviceGetMigDeviceHandleByIndex", place)
        uuid = gpu.ask("nvmlDeviceGetUUID", part=handle) if handle is not None else None
        if uuid is not None:
            instance = gpu.ask("nvmlDeviceGetGpuInstanceId", part=handle)
            found[_text(uuid)] = int(instance) if instance is not None else None
    return found


def _memory(gpu: _Gpu) -> Told:
    gpu.memory = nvml_readings.memory_of(gpu)
    return {"free_bytes": int(gpu.memory.free) if gpu.memory is not None else None}


def _defects(gpu: _Gpu) -> Told:
    rows = gpu.ask("nvmlDeviceGetRemappedRows")
    pages = gpu.ask("nvmlDeviceGetRetiredPagesPendingStatus") if rows is None else None
    sram = gpu.fill("nvmlDeviceGetSramEccErrorStatus", "c_nvmlEccSramErrorStatus_v1_t")
    return {
        "rows_pending": bool(rows[2]) if rows is not None else None,
        "rows_failed": bool(rows[3]) if rows is not None else None,
        "pages_pending": bool(pages) if pages is not None else None,
        "sram_exceeded": bool(sram.bThresholdExceeded) if sram is not None else None,
    }


def _ecc(gpu: _Gpu) -> Told:
    """Counts ECC errors by location if the GPU reports locations. Errors of the total that no location
    reports are counted, too: a location that is not asked, or fails to answer once, neither hides an error
    nor makes one look new."""
    total = gpu.ask("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _VOLATILE)
    if total is None:
        return {}
    ever = gpu.ask("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _AGGREGATE)
    counts = {name: _errors_at(gpu, number) for number, name in _LOCATIONS.items()} if total else {}
    by_location = {name: count for name, count in counts.items() if count}
    rest = "other memory" if by_location else "all its memory"
    by_location[rest] = total - sum(by_location.values())
    return {
        "uncorrected": {name: count for name, count in by_location.items() if count > 0},
        "uncorrected_ever": ever,
    }


def _errors_at(gpu: _Gpu, location: int) -> int:
    return gpu.ask("nvmlDeviceGetMemoryErrorCounter", _UNCORRECTED, _VOLATILE, location) or 0


def _verdict_and_links(gpu: _Gpu) -> Told:
    action, *errors = gpu.fields(_RECOVERY_ACTION, *_LINK_ERRORS)
    known = [count for count in errors if count is not None]
    return {"recovery_action": action, "link_errors": sum(known) if known else None, "links": _links(gpu)}


def _links(gpu: _Gpu) -> tuple[bool | None, ...] | None:
    """Returns the state of each NVLink; None if the GPU has none. A link number beyond the last is an invalid
    argument, and so are all higher numbers."""
    found: list[bool | None] = []
    for link in range(gpu.nvml.number("NVML_NVLINK_MAX_LINKS") or 0):
        state = gpu.ask("nvmlDeviceGetNvLinkState", link)
        if state is None and (link == 0 or gpu.fate):
            return None
        if state is None and gpu.error == _INVALID_ARGUMENT:
            break
        found.append(bool(state) if state is not None else None)
    while found and found[-1] is None:
        found.pop()
    return tuple(found)


def _fabric(gpu: _Gpu) -> Told:
    info = gpu.fill("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t")
    if info is None or not info.state:
        return {}
    return {"fabric_state": info.state, "fabric_status": info.status, "fabric_health": info.healthMask}


def _speed(gpu: _Gpu) -> Told:
    return {
        "slowdowns": gpu.ask("nvmlDeviceGetCurrentClocksEventReasons"),
        "margin_c": gpu.ask("nvmlDeviceGetMarginTemperature"),
        "pcie_width": gpu.ask("nvmlDeviceGetCurrPcieLinkWidth"),
        "pcie_width_max": gpu.ask("nvmlDeviceGetMaxPcieLinkWidth"),
        "replays": gpu.ask("nvmlDeviceGetPcieReplayCounter"),
    }


def _health(gpu: _Gpu) -> Told:
    return {"health_bits": gpu.health()}


def _inforom(gpu: _Gpu) -> Told:
    gpu.error = 0
    gpu.ask("nvmlDeviceValidateInforom")  # the call returns nothing
    return {"is_inforom_bad": None if gpu.fate else gpu.error == _CORRUPTED_INFOROM}


def _readings(gpu: _Gpu) -> Told:
    return {"readings": nvml_readings.read(gpu, gpu.memory)}


_READS: tuple[Read, ...] = (
    _identity,
    _modes,
    _memory,
    _defects,
    _ecc,
    _verdict_and_links,
    _fabric,
    _speed,
    _health,
)


def _value(field: Any) -> int:
    """Returns the value by the type that NVML reports for it."""
    names = {1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
    return int(getattr(field.value, names.get(field.valueType, "uiVal")))


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


if __name__ == "__main__":
    sys.exit(main())
