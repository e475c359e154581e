"""Asks NVML at an interval for the state of all GPUs, in a child process that may be lost, and closes the
devices while a repair works on them.

After a GSP timeout a driver call can hang permanently, and a process that is stuck in such a call is immune
to SIGKILL. So the agent itself makes no driver call; it reports a child that does not answer, and does not
wait for it.
A GPU cannot be reset while any process has it open, even a process that only reads its state. So while the
spec of our NodeHealth names a step of a repair, no reading begins, and a reading in progress is ended. The
status confirms the step only when no child of the agent is left.
Source: NVIDIA, nvidia-smi, --gpu-reset: "monitoring application like other instance of nvidia-smi".
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Protocol

import msgspec
import structlog

from detectors.service.settings import Nvml as Settings
from detectors.sources.child import LastingChild, SilentError
from detectors.wire.gpu_sample import READINGS_WANTED, Sample

__all__ = ["Nvml", "NvmlError", "NvmlSink", "sampled_once"]

_log = structlog.get_logger("nvml")

_MODULE = "detectors.sources.nvml_child"
_STUCK_LOOK_S = 1.0
_STUCK_MAX = 3
"""Number of children that hang in the driver at which no further child is started."""


class NvmlError(Exception):
    """NVML gave no sample. The message says why."""

    def __init__(self, why: str, *, is_silence: bool = False) -> None:
        super().__init__(why)
        self.is_silence = is_silence
        """Whether NVML neither answered nor failed, for example because the driver hangs."""


class NvmlSink(Protocol):
    def sampled(self, sample: Sample) -> bool:
        """Takes a sample. Returns whether the next sample should come soon."""

    def wants_readings(self) -> bool:
        """Whether the next sample should also read the values for dashboards."""

    def is_in_use(self) -> bool:
        """Whether any pod of this node has a device."""

    def values_unknown(self) -> None:
        """Records that values that change without notice, such as the free memory, are not known now."""

    def silent(self, times: int, why: str) -> None:
        """Records that the driver gave no answer, `times` times in succession."""

    def devices_closed(self, step: str) -> None:
        """Records that no process of the agent has a device open, for this step of a repair; empty when the
        step is over."""

    def covered(self) -> None: ...

    def blind(self, why: str) -> None: ...


async def sampled_once(deadline_s: float) -> Sample:
    """Returns one sample, taken by a child that ends afterwards. Raises `NvmlError`, or `OSError` if no child
    can be started."""
    child = LastingChild(_MODULE, outlived=[], tells_calls=True)
    try:
        return await _sampled(child, deadline_s)
    finally:
        await child.end()


async def _sampled(child: LastingChild, deadline_s: float, question: str = "") -> Sample:
    """Asks the child for one sample. `deadline_s` is for each call of NVML. Raises `NvmlError` or
    `OSError`."""
    try:
        sample = msgspec.json.decode(await child.ask(deadline_s, question.encode()), type=Sample)
    except SilentError as error:
        why = f"NVML gave no answer within {deadline_s:g} s in {error}: the driver may hang"
        raise NvmlError(why, is_silence=True) from None
    except (EOFError, msgspec.MsgspecError) as error:
        raise NvmlError(f"the process that asks NVML: {error}") from error
    if sample.error:
        raise NvmlError(sample.error)
    return sample


class Nvml:
    def __init__(self, sink: NvmlSink, settings: Settings) -> None:
        self._sink = sink
        self._settings = settings
        self._step = ""
        self._given_up = ""
        """The step that took longer than the agent keeps the devices closed."""
        self._changed = asyncio.Event()
        self.asked = asyncio.Event()
        """Set once the first try has ended, successfully or not."""
        self._outlived: list[asyncio.subprocess.Process] = []
        """Children that did not end when they were killed."""

    def close_devices_for(self, step: str) -> None:
        """Takes the step of a repair that needs the devices closed; empty if there is none."""
        if step != self._step:
            self._step = step
            self._changed.set()

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            self._changed.clear()
            if self._step and self._step != self._given_up:
                await self._keep_away(self._step)
            else:
                await self._read_until_changed()

    async def _read_until_changed(self) -> None:
        reading = asyncio.create_task(self._read_on(), name="inventory")
        changed = asyncio.create_task(self._changed.wait(), name="hands_off")
        try:
            done, _ = await asyncio.wait({reading, changed}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (reading, changed):
                task.cancel()
            await asyncio.wait({reading, changed})

    async def _read_on(self) -> None:
        settings = self._settings
        if not settings.enabled:
            self._sink.blind("switched off by the setting nvml.enabled")
            self.asked.set()
            await asyncio.Event().wait()
        child = LastingChild(_MODULE, outlived=self._outlived, tells_calls=True)
        retry_s, told, silences = settings.retry_s, "", 0
        try:
            while True:
                try:
                    sample = await self._ask(child)
                except (NvmlError, OSError) as error:
                    await child.end()
                    if str(error) != told:
                        told = str(error)
                        _log.error("NVML is blind", why=told, next_try_s=retry_s)
                    self._sink.values_unknown()
                    self._sink.blind(told)
                    silences = silences + 1 if isinstance(error, NvmlError) and error.is_silence else 0
                    self._sink.silent(silences, told)
                    self.asked.set()
                    await asyncio.sleep(retry_s)
                    retry_s = min(2 * retry_s, settings.refresh_s)
                else:
                    retry_s, told, silences = settings.retry_s, "", 0
                    is_doubtful = self._sink.sampled(sample)
                    self._sink.covered()
                    self.asked.set()
                    await self._pause(sample, is_doubtful=is_doubtful)
        finally:
            await child.end()

    async def _ask(self, child: LastingChild) -> Sample:
        """Returns a sample. Raises `NvmlError` or `OSError`."""
        stuck = [one.pid for one in self._outlived if one.returncode is None]
        if len(stuck) >= _STUCK_MAX:
            pids = ", ".join(map(str, stuck))
            raise NvmlError(f"processes {pids} hang in the driver and cannot be ended", is_silence=True)
        question = READINGS_WANTED if self._sink.wants_readings() else ""
        return await _sampled(child, self._settings.deadline_s, question)

    async def _pause(self, sample: Sample, *, is_doubtful: bool) -> None:
        """Waits until the next sample. A GPU that nobody uses, and that the driver does not keep ready, would
        have to be started for each sample, so its samples are rarer."""
        settings = self._settings
        if is_doubtful:
            await asyncio.sleep(settings.confirm_s)
            return
        is_costly = any(gpu.is_persistent is False for gpu in sample.gpus)
        waited_s = 0.0
        while waited_s == 0 or (is_costly and waited_s < settings.refresh_s and not self._sink.is_in_use()):
            await asyncio.sleep(settings.every_s)
            waited_s += settings.every_s

    async def _keep_away(self, step: str) -> None:
        """Keeps the devices closed until the step changes, or has taken too long."""
        self._sink.values_unknown()
        while stuck := [child.pid for child in self._outlived if child.returncode is None]:
            self._sink.blind(f"repair {step} needs the devices, but process {stuck[0]} hangs in the driver")
            if await self._changed_within(_STUCK_LOOK_S):
                return
        self._outlived.clear()
        _log.info("let go of the devices", step=step, at_most_s=self._settings.hands_off_max_s)
        self._sink.blind(f"the agent has closed the devices for repair {step}")
        self._sink.devices_closed(step)
        if not await self._changed_within(self._settings.hands_off_max_s):
            _log.warning("the repair takes too long; the devices are read again", step=step)
            self._given_up = step
        self._sink.devices_closed("")

    async def _changed_within(self, timeout_s: float) -> bool:
        with contextlib.suppress(TimeoutError):  # wait_for may lose a cancellation (agent/publish.py).
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        return self._changed.is_set()
