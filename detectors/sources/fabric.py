"""Takes samples of the ports of the node's RDMA adapters in /sys, every few seconds.

The source reads adapters of InfiniBand and RoCE on the PCI bus. It leaves out virtual functions, since they
come and go with pods, and devices without their own adapter (Soft-RoCE, scalable functions). An EFA adapter
has ports that are always active, so only its counters show the state of the network.
For most of these files the driver asks the adapter's firmware. If the firmware has died, a reader waits for a
minute. Therefore a separate thread reads, and the source reports a missing answer.
Sources: Linux, Documentation/ABI/stable/sysfs-class-infiniband, Documentation/ABI/testing/sysfs-class-net,
drivers/infiniband/hw/efa/efa_verbs.c (names of EFA's counters).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Protocol

import msgspec
import structlog

from detectors.rules.fabric_ports import ETHERNET, Port, PortSample
from detectors.service.settings import Fabric as Settings
from detectors.sources.small_files import text_of
from detectors.text.pci import parse_pci

__all__ = ["Fabric", "FabricReader", "FabricSink"]

_log = structlog.get_logger("fabric")

_FILE_BYTES_MAX = 256
_IFF_UP = 1
_ERRORS = (
    "counters/symbol_error",
    "counters/local_link_integrity_errors",
    "hw_counters/impaired_remote_conn_events",
    "hw_counters/unresponsive_remote_events",
)
"""Counters of errors. The first two are InfiniBand's, the others EFA's. EFA's retransmissions are missing on
purpose: a busy network has thousands."""


class FabricSink(Protocol):
    def sampled(self, sample: PortSample) -> None: ...

    def covered(self) -> None: ...

    def blind(self, why: str) -> None: ...


class Fabric:
    def __init__(self, host_root: Path, sink: FabricSink, settings: Settings) -> None:
        self._reader = FabricReader(host_root)
        self._sink = sink
        self._settings = settings
        self._told = ""

    async def run(self) -> None:
        """Runs until cancelled. All agents take their samples at the same times of their clocks. If a switch
        fails under many nodes, all agents report that within a moment, so the failure looks like the single
        event that it is."""
        if not self._settings.enabled:
            self._sink.blind("switched off by the setting fabric.enabled")
            return
        every_s = self._settings.every_s
        while True:
            await self._sample()
            await asyncio.sleep(every_s - time.time() % every_s)

    async def _sample(self) -> None:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[PortSample | OSError] = loop.create_future()

        def give(found: PortSample | OSError) -> None:
            if not answer.done():
                answer.set_result(found)

        def read() -> None:
            try:
                found: PortSample | OSError = self._reader.read()
            except OSError as error:
                found = error
            with contextlib.suppress(RuntimeError):  # the agent has ended meanwhile
                loop.call_soon_threadsafe(give, found)

        # No thread pool: the end of the process would wait for its threads, and one may hang.
        threading.Thread(target=read, name="fabric", daemon=True).start()
        done, _ = await asyncio.wait({answer}, timeout=self._settings.deadline_s)
        if not done:
            limit_s = self._settings.deadline_s
            self._blind(f"no answer within {limit_s:g} s: the firmware of an adapter may hang")
            await answer  # one reader at a time
            return
        found = answer.result()
        if isinstance(found, OSError):
            self._blind(f"{found.filename}: {found.strerror}")
            return
        self._told = ""
        self._sink.sampled(found)
        self._sink.covered()

    def _blind(self, why: str) -> None:
        if why != self._told:
            self._told = why
            _log.error("the ports of the network are not read", why=why)
        self._sink.blind(why)


class FabricReader:
    """Reads the ports, and remembers which adapters it has seen, to report adapters that are gone."""

    def __init__(self, host_root: Path) -> None:
        self._class = str(host_root / "sys/class")
        self._bus = str(host_root / "sys/bus/pci/devices")
        self._seen: set[str] = set()

    def read(self) -> PortSample:
        """Returns a sample. Raises `OSError` if the node's device classes cannot be listed. A node without
        RDMA has no class `infiniband`. A file that cannot be read does not prevent the reading of others."""
        os.stat(self._class)
        folder = f"{self._class}/infiniband"
        try:
            names = sorted(os.listdir(folder))
        except FileNotFoundError:
            names = []
        ports: list[Port] = []
        present = set()
        for name in names:
            pci = _function(f"{folder}/{name}")
            if pci:
                present.add(pci)
                ports += _ports(f"{folder}/{name}", name, pci)
        missing = self._seen - present
        self._seen |= present
        gone = {pci for pci in missing if not os.path.lexists(f"{self._bus}/{pci}")}
        has_bus = not gone or os.path.isdir(self._bus)
        return PortSample(tuple(ports), frozenset(gone if has_bus else ()), _up_s())


def _function(device: str) -> str:
    """Returns the physical PCI function of an RDMA device; empty if it has none."""
    try:
        pci = os.path.basename(os.readlink(f"{device}/device"))
    except OSError:
        return ""
    if parse_pci(pci) is None or os.path.lexists(f"{device}/device/physfn"):
        return ""
    return pci


def _ports(device: str, name: str, pci: str) -> list[Port]:
    numbers = sorted(int(entry) for entry in _listed(f"{device}/ports") if entry.isdecimal())
    model, registration = _text(f"{device}/board_id"), _registration(device)
    return [_port(device, name, pci, number, model, registration) for number in numbers]


def _registration(device: str) -> int:
    """Returns the inode of the device, which changes with each registration; 0 if the device has just
    gone."""
    try:
        return os.stat(device).st_ino
    except OSError:
        return 0


def _port(device: str, name: str, pci: str, number: int, model: str, registration: int) -> Port:
    at = f"{device}/ports/{number}"
    port = Port(
        device=name,
        number=number,
        pci=pci,
        state=_leading(f"{at}/state"),
        phys_state=_leading(f"{at}/phys_state"),
        link_layer=_text(f"{at}/link_layer"),
        rate_gbps=_rate(f"{at}/rate"),
        model=model,
        registration=registration,
    )
    if port.link_layer == ETHERNET:
        return _with_netdev(port, _netdev(device, number))
    errors = [count for file in _ERRORS if (count := _number(f"{at}/{file}")) is not None]
    return msgspec.structs.replace(
        port, downs=_number(f"{at}/counters/link_downed"), errors=sum(errors) if errors else None
    )


def _with_netdev(port: Port, netdev: str) -> Port:
    if not netdev:
        return port
    flags, carrier = _text(f"{netdev}/flags"), _text(f"{netdev}/carrier")
    return msgspec.structs.replace(
        port,
        is_up=bool(int(flags, 16) & _IFF_UP) if _is_hex(flags) else None,
        has_carrier=carrier == "1" if carrier in ("0", "1") else None,
        downs=_number(f"{netdev}/carrier_down_count"),
    )


def _netdev(device: str, number: int) -> str:
    """Returns the network device of a port; empty if it is in a pod, or if it cannot be distinguished from
    others. In switchdev mode the folder also lists the devices of virtual functions, and only the physical
    ones have a name such as `p0`."""
    folder = f"{device}/device/net"
    found = [f"{folder}/{name}" for name in _listed(folder)]
    if len(found) > 1:
        found = [netdev for netdev in found if _is_physical(_text(f"{netdev}/phys_port_name"))]
    if len(found) > 1:
        found = [netdev for netdev in found if _number(f"{netdev}/dev_port") == number - 1]
    return found[0] if len(found) == 1 else ""


def _is_physical(port_name: str) -> bool:
    """Whether the name is that of a physical port. Most drivers give ports no name."""
    return not port_name or (port_name[:1] == "p" and port_name[1:].isdecimal())


def _up_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _text(path: str) -> str:
    return text_of(path, _FILE_BYTES_MAX)


def _leading(path: str) -> int | None:
    """Reads a number: `4: ACTIVE` -> 4. Returns None if there is none."""
    return _decimal(_text(path).partition(":")[0])


def _number(path: str) -> int | None:
    return _decimal(_text(path))


def _decimal(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 20 else None


def _rate(path: str) -> float | None:
    """Reads a rate in Gb/s: `400 Gb/sec (4X NDR)` -> 400. Returns None if there is none."""
    number, _, unit = _text(path).partition(" ")
    whole, _, part = number.partition(".")
    is_rate = unit.startswith("Gb/sec") and _decimal(whole) is not None and (not part or part.isdecimal())
    return float(number) if is_rate else None


def _is_hex(text: str) -> bool:
    return text.startswith("0x") and 2 < len(text) <= 18 and set(text[2:]) <= set("0123456789abcdefABCDEF")
