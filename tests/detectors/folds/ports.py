"""A node whose ports are sampled every 15 seconds, for tests of conclusions from the samples."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import cache

import msgspec

from detectors.catalog.log_errors import LogErrorRow, packaged_log_errors
from detectors.catalog.signature_rows import SignatureRow, packaged_signatures
from detectors.catalog.tables import UserRows
from detectors.folds.core import AgentCore
from detectors.folds.holders import Given, HeldDevices
from detectors.rules import KernelRules
from detectors.rules.fabric_ports import Port, PortSample
from detectors.rules.fabric_rows import FABRIC, FabricRow, fabric_rows
from detectors.rules.facts import PodRef
from detectors.service.settings import AgentSettings
from detectors.wire.contract import DevicePod, Severity

__all__ = [
    "ACTIVE",
    "ARMED",
    "DISABLED",
    "HIDDEN",
    "INIT",
    "OFF",
    "POLLING",
    "UNPLUGGED",
    "Node",
    "agent",
    "ib",
    "roce",
]

LOOK_S = 15.0
BOOTED = datetime(2026, 11, 23, 8, tzinfo=UTC)

ACTIVE = {"state": 4, "phys_state": 5, "is_up": True, "has_carrier": True}
ARMED = ACTIVE | {"state": 3}
INIT = ACTIVE | {"state": 2}
POLLING = {"state": 1, "phys_state": 2}
DISABLED = {"state": 1, "phys_state": 3}
UNPLUGGED = {"state": 1, "phys_state": 3, "is_up": True, "has_carrier": False}
"""State of a RoCE port whose link is lost."""
OFF = {"state": 1, "phys_state": 3, "is_up": False, "has_carrier": None}
"""State of a RoCE port that is switched off."""
HIDDEN = {"state": 1, "phys_state": 3, "is_up": None, "has_carrier": None, "downs": None}
"""State of a RoCE port whose network device is in a pod."""


def ib(number: int = 0, **facts: object) -> Port:
    return _port(number, "InfiniBand", {"errors": 0, "rate_gbps": 400.0} | facts)


def roce(number: int = 0, **facts: object) -> Port:
    return _port(number, "Ethernet", {"rate_gbps": 200.0} | facts)


def _port(number: int, layer: str, facts: dict[str, object]) -> Port:
    port = Port(device=f"mlx5_{number}", number=1, pci=f"0000:{0x0D + number:02x}:00.0", link_layer=layer)
    return msgspec.structs.replace(port, **({"downs": 0, "model": "MT_0838"} | ACTIVE | facts))


@cache
def _catalogues() -> tuple[KernelRules, tuple[LogErrorRow, ...], tuple[SignatureRow, ...]]:
    """Returns the catalogues, read once: reading them takes longer than hours of samples."""
    return KernelRules(), packaged_log_errors(), packaged_signatures()


def agent(*rows: FabricRow) -> AgentCore:
    """Returns the agent's core. `rows` are a user's rows, in addition to the packaged ones."""
    rules, errors, recipes = _catalogues()
    return AgentCore(
        AgentSettings(),
        boot_id="boot",
        kernel_rules=rules,
        port_rows=fabric_rows(UserRows({FABRIC.name: rows})),
        log_errors=errors,
        recipes=recipes,
    )


class Node:
    """A node, and the conclusions of the agent's core from one sample after the other."""

    def __init__(self, *, up_s: float = 3600.0, core: AgentCore | None = None) -> None:
        self.core = core or agent()
        self.now = BOOTED + timedelta(seconds=up_s)
        self.writes = 0
        self.core.mark_written()

    def sample(
        self, *ports: Port, times: int = 1, minutes: float = 0.0, gone: Iterable[str] = ()
    ) -> list[str]:
        """Takes the given number of samples, or as many as fit into the time. Returns the codes that are open
        after them."""
        for _ in range(max(times, int(minutes * 60 / LOOK_S))):
            self.now += timedelta(seconds=LOOK_S)
            up_s = (self.now - BOOTED).total_seconds()
            self.writes += self.core.ports(PortSample(ports, frozenset(gone), up_s), self.now)
        return self.open()

    def open(self, least: Severity = Severity.INFO) -> list[str]:
        order = list(Severity)
        return sorted(
            finding.code
            for finding in self.core.findings
            if finding.cleared_at is None and order.index(finding.severity) >= order.index(least)
        )

    def loud(self) -> list[str]:
        """Returns the codes of all findings above a note that were ever made."""
        return [finding.code for finding in self.core.findings if finding.severity is not Severity.INFO]

    def rank(self, uid: str = "rank-0", *others: str) -> None:
        """Lets these pods use accelerators."""
        held = [
            HeldDevices(
                DevicePod(uid=one, namespace="ml", name=one),
                Given("ml", one, {"nvidia.com/gpu": [f"GPU-{one}"]}),
            )
            for one in (uid, *others)
        ]
        self.core.pods_listed(held, frozenset((uid, *others)))

    def line(self, text: str, container: str, uid: str = "rank-0") -> None:
        self.core.log_line(PodRef("ml", uid, uid, container), text, self.now)

    def step(self, number: int, uid: str = "rank-0") -> None:
        self.core.log_line(PodRef("ml", uid, uid, "main"), f"step {number} loss 1.0", self.now)

    def ends(self, uid: str = "rank-0", container: str = "main") -> None:
        self.core.pod_ended(PodRef("ml", uid, uid, container), self.now)

    def leaves(self, *stay: str) -> None:
        """Lets all pods except these leave the node."""
        self.core.pods_listed([], frozenset(stay))

    def clock_set(self, **by: float) -> None:
        step = timedelta(**by)
        self.now += step
        self.core.clock_set(step, self.now)

    def pods_change(self) -> None:
        self.core.pods_changed(self.now)
