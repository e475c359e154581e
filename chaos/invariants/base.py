"""The interface of a check."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from chaos.invariants.facts import Facts
from chaos.invariants.write import Write

__all__ = ["Check"]


class Check(ABC):
    """One rule about what the controller must not do. A check may remember what earlier writes have shown."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    @abstractmethod
    def violations(self, write: Write) -> Iterator[str]:
        """Yields a sentence for each way in which this write breaks the rule. The method is called for every
        write, by any writer, in the order of the writes."""
