"""Repairs in virtual time: the effects of the steps' pods on a machine, and pods that obstruct a repair."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from chaos.cluster.containers import ContainerRun, Exit
from detectors.wire.step_report import Check, Outcome, ValidationReport, encode

__all__ = ["VISITOR", "StepPod", "Visitor"]

VISITOR = "stays-for-seconds"
"""Label on a pod that is a rank of no job. Its value is the number of seconds for which the pod stays."""

Reboots = Callable[[str], Awaitable[None]]


class StepPod:
    """The container of a step. One in four resets and validations fails; one in eight reboots never
    happens."""

    def __init__(self, draw: random.Random, reboots: Reboots) -> None:
        self._draw = draw
        self._reboots = reboots

    async def run(self, run: ContainerRun, say: Callable[[str], None]) -> Exit:
        kind = run.pod["metadata"]["labels"]["job-name"].split("-")[-2]
        is_good = self._draw.random() < 0.75
        await asyncio.sleep(self._draw.uniform(1.0, 60.0))
        if kind == "reboot":
            if self._draw.random() > 0.125:
                await self._reboots(run.node)
            await asyncio.Event().wait()  # the container is killed with its machine, or by its deadline
        if kind == "validate":
            return Exit(0 if is_good else 1, message=_report(is_good))
        return Exit(0 if is_good else 1)


def _report(is_good: bool) -> str:
    devices = Outcome.PASSED if is_good else Outcome.FAILED
    checks = (
        Check(name="devices", outcome=devices),
        Check(name="kernel-log", outcome=Outcome.PASSED),
        Check(name="nccl", outcome=Outcome.NOT_RUN, message="no GPU in a simulation"),
    )
    return encode(ValidationReport(checks=checks)).decode()


class Visitor:
    """A pod that is a rank of no job and stays for a while."""

    def __init__(self, stays_s: float) -> None:
        self._stays_s = stays_s

    async def run(self, run: ContainerRun, say: Callable[[str], None]) -> Exit:
        await asyncio.sleep(self._stays_s)
        return Exit(0)
