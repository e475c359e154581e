"""The node itself over time: why it has booted. Pure.

states.py makes findings of it. All of them are notes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from detectors.folds.chain import Chain
from detectors.folds.states import Looked, States
from detectors.rules.boot_records import Boot, reason_of
from detectors.rules.facts import Observation
from detectors.rules.host_rows import BOOTS, NODE, HostStateRow, draft
from detectors.wire.contract import Source

__all__ = ["HostFold"]

_FAMILY = ""


class HostFold:
    def __init__(self, rows: Mapping[str, HostStateRow]) -> None:
        """`rows`: by code."""
        self._rows = rows
        self._states = States(Source.HOST, _FAMILY, looks_to_end=1, unless_known=False)
        self._booted_before = False

    def earlier_boot(self) -> None:
        """An earlier boot of the node is known."""
        self._booted_before = True

    def booted(self, chain: Chain, boot: Boot, at: datetime) -> Looked:
        """Once in each boot. What an earlier run of the agent said of it stays."""
        if any(chain.is_open(code, NODE) for code in BOOTS):
            return Looked()
        reason = reason_of(boot, is_known=self._booted_before)
        if reason is None:
            return Looked()
        one = Observation(draft=draft(self._rows[reason.code]), text=reason.text, since=min(boot.at, at))
        return self._states.fold(chain, [one], at)
