"""One node's agent in virtual time. The production AgentCore gets the node's kernel lines and container logs,
and the agent writes its status with the patch that the production publisher builds.

`Machine` is what outlives the agent: the kernel's log of this boot, and the logs of its containers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import datetime
from functools import cache

import msgspec

from chaos.apiserver.client import Client
from detectors.agent.publish import NODE_HEALTHS, content, patch_body
from detectors.catalog.log_errors import LogErrorRow, packaged_log_errors
from detectors.catalog.signature_rows import SignatureRow, packaged_signatures
from detectors.client.kubeapi import ApiError, ReplyLost
from detectors.folds.core import AgentCore, Dirty
from detectors.folds.holders import Given, HeldDevices
from detectors.folds.status_size import bounded
from detectors.rules import KernelRules
from detectors.rules.fabric_ports import Port, PortSample
from detectors.rules.facts import KernelLine, PodRef
from detectors.service.settings import AgentSettings
from detectors.wire.contract import CoverageState, Device, DevicePod, NodeHealth, Source

__all__ = ["Agent", "Machine"]

PUBLISHING = msgspec.structs.replace(AgentSettings().publishing, idle_refresh_s=200.0)
"""Publishing settings. The controller's deadlines are shortened in a simulation, and so is the time within
which an agent writes."""
SETTINGS = msgspec.structs.replace(AgentSettings(), publishing=PUBLISHING)
RETRY_S = 1.0
_UP_S = 3600.0
"""Seconds since the boot that are long enough for links to be trained."""


class Machine(msgspec.Struct):
    """The memory of a node between two boots. Logs contain (text, time) for each container instance."""

    name: str
    boot_id: str
    kernel: list[KernelLine] = []
    logs: dict[PodRef, list[tuple[str, datetime]]] = {}
    ended: dict[PodRef, datetime] = {}
    ports: tuple[Port, ...] = ()
    """Ports of the node's network adapters. The agent does not sample ports if there are none."""
    next_sequence: int = 1
    """Number of the next kernel line. The first record of a boot, 0, is the kernel's banner."""

    def append_kernel(self, text: str, at: datetime) -> KernelLine:
        line = KernelLine(sequence=self.next_sequence, at=at, text=text)
        self.next_sequence += 1
        self.kernel.append(line)
        return line


class Agent:
    """Runs from `run` until cancelled. The machine reports its events by the three methods named after
    them."""

    def __init__(
        self,
        machine: Machine,
        api: Client,
        now: Callable[[], datetime],
        *,
        tick_s: float,
    ) -> None:
        self._machine = machine
        self._api = api
        self._now = now
        self._tick_s = tick_s
        self._core = _core(machine.boot_id)
        self._reading = False
        self._wake = asyncio.Event()
        self._written = b""
        self._stored_at: datetime | None = None
        self._written_at = now()
        self._asked_at = now()
        self._last_sample = 0.0
        self._edges: deque[datetime] = deque(maxlen=PUBLISHING.burst_writes)

    # --- events of the machine ----------------------------------------------------------------------------

    def kernel_line(self, line: KernelLine) -> None:
        if self._reading:
            self._core.kernel_line(line)
            self._changed()

    def log_line(self, pod: PodRef, text: str, at: datetime) -> None:
        if self._reading:
            self._core.log_line(pod, text, at)
            self._changed()

    def container_ended(self, pod: PodRef, at: datetime) -> None:
        if self._reading:
            self._core.pod_ended(pod, at)
            self._changed()

    # --- the agent's loop ---------------------------------------------------------------------------------

    async def run(self) -> None:
        await self._begin()
        while True:
            self._core.tick(self._now())
            self._sample_ports()
            if self._owes_write():
                await self._spread()
                await self._write()
            elif self._is_due_to_ask():
                await self._send({})
            self._wake.clear()
            if self._core.dirty is not Dirty.EDGE:
                await self._pause()

    async def _begin(self) -> None:
        """Restores the state that an earlier run wrote, then reads what the machine has logged since."""
        stored = await self._send({})
        if stored is not None:
            self._core.restore(stored.status)
        now = self._now()
        device = Device(uuid=f"GPU-{self._machine.name}", pci="0000:18:00.0", model="H100", index=0)
        self._core.inventory([device], "595.45.04")
        for source in (Source.KMSG, Source.NVML, Source.LOGS):
            self._core.cover(source, CoverageState.COVERED, now)
        self._core.cover(Source.PODS, CoverageState.BLIND, now, why="no PodResources in a simulation")
        for line in self._machine.kernel:
            if line.sequence > self._core.sequence:
                self._core.kernel_line(line)
        for pod in self._machine.logs:
            self._read(pod)
        self._core.logs_scanned(now)
        self._reading = True

    def _read(self, pod: PodRef) -> None:
        for text, at in self._machine.logs.get(pod, []):
            self._core.log_line(pod, text, at)
        if pod in self._machine.ended:
            self._core.pod_ended(pod, self._machine.ended[pod])

    def _sample_ports(self) -> None:
        """Samples the ports at the moments of the node's clock at which all agents sample them. The agent
        reads the pods and their devices too: a lost link is a proof only under a pod that uses
        accelerators."""
        now = self._now()
        number = now.timestamp() // SETTINGS.fabric.every_s
        if not self._machine.ports or number == self._last_sample:
            return
        self._last_sample = number
        running = self._machine.logs.keys() - self._machine.ended.keys()
        held = [
            HeldDevices(
                DevicePod(uid=ref.uid, namespace=ref.namespace, name=ref.name),
                Given(ref.namespace, ref.name, {"nvidia.com/gpu": [f"GPU-{self._machine.name}"]}),
            )
            for ref in running
        ]
        self._core.pods_listed(held, frozenset(ref.uid for ref in running))
        self._core.ports(PortSample(self._machine.ports, up_s=_UP_S), now)

    def _changed(self) -> None:
        if self._core.dirty is Dirty.EDGE:
            self._wake.set()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._tick_s):
                await self._wake.wait()
        except TimeoutError:
            return

    def _owes_write(self) -> bool:
        if self._core.dirty is Dirty.COARSE and self._is_older_than(PUBLISHING.refresh_s):
            return True
        return self._core.dirty is Dirty.EDGE or self._is_too_old()

    def _is_too_old(self) -> bool:
        """Whether the last write is too old, by the rule of the publisher: the controller uses the age of an
        agent's last write as a sign of life."""
        return PUBLISHING.idle_refresh_s > 0 and self._is_older_than(PUBLISHING.idle_refresh_s)

    def _is_older_than(self, seconds: float) -> bool:
        return (self._now() - self._written_at).total_seconds() >= seconds

    def _is_due_to_ask(self) -> bool:
        now = self._now()
        return (now - self._asked_at).total_seconds() >= self._core.ask_every_s(now)

    async def _spread(self) -> None:
        """Waits before a write if necessary: a burst of edges is written at once, and a storm of edges is
        spread over time."""
        if len(self._edges) == self._edges.maxlen:
            rest_s = PUBLISHING.burst_window_s - (self._now() - self._edges[0]).total_seconds()
            await asyncio.sleep(max(0.0, rest_s))

    async def _write(self) -> None:
        status = bounded(self._core.status(self._now()), priority_uids=self._core.priority_pods)
        wanted = content(status)
        self._core.mark_written()
        if wanted == self._written and not self._is_too_old():
            return
        if await self._send(patch_body(status)) is None:
            self._core.mark_unwritten()
            await asyncio.sleep(RETRY_S)
            return
        self._written, self._written_at = wanted, self._now()
        self._edges.append(self._written_at)

    async def _send(self, body: dict[str, object]) -> NodeHealth | None:
        """Sends the patch. Returns None if it was refused, or if its outcome is unknown. The reply contains
        this node's spec."""
        self._asked_at = self._now()
        try:
            raw = await self._api.patch(NODE_HEALTHS, self._machine.name, body, subresource="status")
        except (ApiError, ReplyLost):
            return None
        reply = msgspec.json.decode(raw, type=NodeHealth)
        if not body and self._written and reply.status.observed_at != self._stored_at:
            self._written = b""  # as in the publisher: the object was created again
            self._core.mark_unwritten()
        self._stored_at = reply.status.observed_at
        for pod in self._core.spec(reply.spec):
            self._read(pod)
        self._hands_off(reply.spec.hands_off)
        return reply

    def _hands_off(self, step: str) -> None:
        """Reports NVML as blind during a repair step, and otherwise as covered. A simulation has no NVML that
        would have to end first."""
        self._core.devices_closed(step)
        state = CoverageState.BLIND if step else CoverageState.COVERED
        self._core.cover(Source.NVML, state, self._now(), why=f"let go for repair {step}" if step else "")


def _core(boot_id: str) -> AgentCore:
    rules, log_errors, recipes = _catalogues()
    return AgentCore(SETTINGS, boot_id=boot_id, kernel_rules=rules, log_errors=log_errors, recipes=recipes)


@cache
def _catalogues() -> tuple[KernelRules, tuple[LogErrorRow, ...], tuple[SignatureRow, ...]]:
    """Returns the catalogues, read once for all agents of all runs."""
    return KernelRules(), packaged_log_errors(), packaged_signatures()
