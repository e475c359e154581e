"""The beginning of a simulation: its nodes, their racks and pools, their peculiarities, and the settings."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from recover.model.modes import Mode
from recover.policy.settings import Settings

__all__ = ["Setup"]


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    nodes: int = 6
    gpus_per_node: int = 1
    settings: Settings = Settings(mode=Mode.RECOVER)
    seed: int = 0
    heartbeat_s: float = 20.0
    tick_s: float = 10.0
    """Seconds between two passes in which an agent looks for stalls."""
    per_pool: int = 0
    """Number of consecutive nodes that share a pool. 0: no node has the label."""
    per_rack: int = 0
    """Number of consecutive nodes that share a rack. 0: no node has the label."""
    without_agent: tuple[str, ...] = ()
    clock_leads_s: Mapping[str, float] = {}
    """Seconds by which a node's clock is ahead of the API server's."""
    joining: tuple[str, ...] = ()
    """Nodes that are off, and unknown to the API, until somebody boots them."""

    @property
    def names(self) -> list[str]:
        return [f"n{number}" for number in range(1, self.nodes + 1)]

    def labels(self) -> dict[str, dict[str, str]]:
        """Returns the labels by node."""
        budgets = self.settings.budgets
        of_kind = ((budgets.pool_label, "pool", self.per_pool), (budgets.domain_label, "rack", self.per_rack))
        return {
            name: {label: f"{kind}-{index // size}" for label, kind, size in of_kind if size}
            for index, name in enumerate(self.names)
        }
