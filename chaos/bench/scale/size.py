"""Computes the size of the cluster that a bench lays out, and spreads its ranks over gangs and nodes.
Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from chaos.bench.ours import PREFIX
from chaos.bench.throwaway import GPUS_PER_NODE

__all__ = ["Gang", "Rank", "Size", "sizes_of"]

GANG_RANKS = 200
"""Number of ranks of an ordinary gang."""
LARGE_RANKS = 2000
"""Maximum number of ranks of the one large gang, which has at most half of all ranks. If half of all ranks
are no more than GANG_RANKS, there is no large gang."""


class Rank(msgspec.Struct, frozen=True):
    name: str
    gang: str
    index: int
    node: str
    gpus: int


class Gang(msgspec.Struct, frozen=True):
    name: str
    ranks: tuple[Rank, ...]


class Size(msgspec.Struct, frozen=True):
    nodes: int
    pods: int
    """Number of all pods, including the ranks."""
    ranks: int

    @property
    def node_names(self) -> list[str]:
        return [f"{PREFIX}{number:05}" for number in range(1, self.nodes + 1)]

    @property
    def free(self) -> int:
        """Number of nodes without ranks, which are the last nodes. A fault there stops no gang, so the time
        of its cordon is measured alone."""
        return max(1, self.nodes // 5)

    @property
    def ranks_max(self) -> int:
        return min(self.pods, GPUS_PER_NODE * (self.nodes - self.free))

    @property
    def free_nodes(self) -> list[str]:
        return self.node_names[-self.free :]

    def gangs(self) -> list[Gang]:
        """Returns the gangs, the large one first; the last gang may be smaller than the others. Ranks fill
        the nodes in turn, so that neighbours of a gang share a node; the free nodes have no ranks."""
        nodes = self.node_names[: self.nodes - self.free]
        gpus = GPUS_PER_NODE // -(-self.ranks // len(nodes))
        found, placed = [], 0
        for number, ranks in enumerate(self._gang_sizes()):
            name = f"gang-{number:04}"
            places = (nodes[(placed + index) * len(nodes) // self.ranks] for index in range(ranks))
            found.append(
                Gang(
                    name,
                    tuple(
                        Rank(f"{name}-{index}", name, index, node, gpus) for index, node in enumerate(places)
                    ),
                )
            )
            placed += ranks
        return found

    def _gang_sizes(self) -> Iterator[int]:
        left = self.ranks
        large = min(LARGE_RANKS, left // 2)
        if large > GANG_RANKS:
            yield large
            left -= large
        while left:
            yield min(GANG_RANKS, left)
            left -= min(GANG_RANKS, left)

    def others(self) -> Iterator[tuple[str, str]]:
        """Yields the pods that belong to no gang, each with its node."""
        names = self.node_names
        for number in range(self.pods - self.ranks):
            yield f"other-{number:06}", names[number % self.nodes]


def sizes_of(nodes: Sequence[int], pods: int | None, ranks: int | None) -> list[Size]:
    """Returns one size for each number of nodes. The numbers of pods and ranks are those of the last size;
    the other sizes have proportionally fewer. By default a node has ten pods, and two of them are ranks."""
    last = nodes[-1]
    pods = 10 * last if pods is None else pods
    ranks = min(2 * last, pods) if ranks is None else ranks
    return [Size(n, max(1, pods * n // last), max(1, ranks * n // last)) for n in nodes]
