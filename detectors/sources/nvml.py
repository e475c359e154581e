"""Reads the inventory from NVML now and then, and lets go of the devices while a repair works on them.

A GPU is not reset while any process has it open, one that only reads its state included. So while the spec of
our NodeHealth names a step of a repair, no reading begins, one that is on its way is ended, and the status
answers only when no child of ours is left.
Source: NVIDIA, nvidia-smi, --gpu-reset: "monitoring application like other instance of nvidia-smi".
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Protocol

import structlog

from detectors.service.settings import Nvml as Settings
from detectors.sources.inventory import Inventory, InventoryError, from_nvml

__all__ = ["Nvml", "NvmlSink"]

_log = structlog.get_logger("nvml")

_STUCK_LOOK_S = 1.0


class NvmlSink(Protocol):
    def found(self, found: Inventory) -> None: ...

    def not_found(self) -> None:
        """What changes without notice, as the free memory, is not known now."""

    def let_go(self, step: str) -> None:
        """No process of ours has a device open, for this step of a repair; empty when that is over."""

    def covered(self) -> None: ...

    def blind(self, why: str) -> None: ...


class Nvml:
    def __init__(self, sink: NvmlSink, settings: Settings) -> None:
        self._sink = sink
        self._settings = settings
        self._step = ""
        self._given_up = ""
        """The step that took longer than we keep away."""
        self._changed = asyncio.Event()
        self._outlived: list[asyncio.subprocess.Process] = []
        """Children that did not end when they were killed."""

    def hands_off(self, step: str) -> None:
        """Which step of a repair needs the devices; empty where none does."""
        if step != self._step:
            self._step = step
            self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
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
            await asyncio.Event().wait()
        retry_s, told = settings.retry_s, ""
        while True:
            try:
                found = await from_nvml(settings.deadline_s, outlived=self._outlived)
            except (InventoryError, OSError) as error:
                self._sink.not_found()
                if str(error) != told:
                    told = str(error)
                    _log.error("NVML is blind", why=told, next_try_s=retry_s)
                self._sink.blind(told)
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, settings.refresh_s)
            else:
                self._sink.found(found)
                retry_s, told = settings.retry_s, ""
                self._sink.covered()
                await asyncio.sleep(settings.refresh_s)

    async def _keep_away(self, step: str) -> None:
        """Until the step changes, or has taken too long."""
        self._sink.not_found()
        while stuck := [child.pid for child in self._outlived if child.returncode is None]:
            self._sink.blind(f"asked to let go for repair {step}, but process {stuck[0]} hangs in the driver")
            if await self._changed_within(_STUCK_LOOK_S):
                return
        self._outlived.clear()
        _log.info("let go of the devices", step=step, at_most_s=self._settings.hands_off_max_s)
        self._sink.blind(f"let go for repair {step}")
        self._sink.let_go(step)
        if not await self._changed_within(self._settings.hands_off_max_s):
            _log.warning("the repair takes too long; the devices are read again", step=step)
            self._given_up = step
        self._sink.let_go("")

    async def _changed_within(self, timeout_s: float) -> bool:
        with contextlib.suppress(TimeoutError):  # wait_for may forget a cancellation (agent/publish.py)
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        return self._changed.is_set()
