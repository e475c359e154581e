"""Folds evidence about the node itself: why it has booted, its clock, its pressure and its processes. Pure.

states.py makes findings from the observations. With the packaged rows all of these findings are notes; a row
of a user may have another severity.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from detectors.folds.chain import Chain
from detectors.folds.states import Folded, States
from detectors.rules.boot_records import Boot, reason_of
from detectors.rules.clock_drift import Answered, Drift
from detectors.rules.facts import Observation
from detectors.rules.host_pressure import HostSample, host_states
from detectors.rules.host_state_rows import BOOTS, CLOCK_DRIFT, NODE, HostStateRow, draft
from detectors.service.settings import Host as Settings
from detectors.wire.contract import Source

__all__ = ["HostFold"]


class HostFold:
    def __init__(self, settings: Settings, rows: Mapping[str, HostStateRow]) -> None:
        """Takes the rows by code."""
        self._settings = settings
        self._rows = rows
        self._drift = Drift()
        self._states = States(Source.HOST, code_prefix="", samples_to_end=1, unless_known=False)
        self._booted_before = False

    def earlier_boot(self) -> None:
        """Records that an earlier boot of the node is known."""
        self._booted_before = True

    def booted(self, chain: Chain, boot: Boot, at: datetime) -> Folded:
        """Makes the note about the boot, once in each boot. A note by an earlier run of the agent stays."""
        if any(chain.is_open(code, NODE) for code in BOOTS):
            return Folded()
        reason = reason_of(boot, is_known=self._booted_before)
        if reason is None:
            return Folded()
        one = Observation(draft=draft(self._rows[reason.code]), text=reason.text, since=min(boot.at, at))
        return self._states.fold(chain, [one], at)

    def clock_set(self) -> None:
        """Forgets what earlier answers showed about the node's clock."""
        self._drift = Drift()

    def answered(self, chain: Chain, answer: Answered, at: datetime) -> Folded:
        """Takes one answer of the API server."""
        self._drift = self._drift.with_answer(answer)
        text = self._drift.beyond(self._settings.clock_s) if self._settings.enabled else ""
        if not text and not self._drift.within(self._settings.clock_s):
            return Folded()
        ended_by = "the clocks may agree"
        one = Observation(draft=draft(self._rows[CLOCK_DRIFT]), text=text, ended_by=ended_by)
        return self._states.fold(chain, [one], at)

    def fold(self, chain: Chain, sample: HostSample, at: datetime) -> Folded:
        """Begins and ends findings from one sample of pressure and processes."""
        return self._states.fold(chain, self.observations(sample), at)

    def observations(self, sample: HostSample) -> list[Observation]:
        return [
            Observation(draft=draft(self._rows[one.code]), text=one.text, ended_by="it is below its limit")
            for one in host_states(sample, self._settings)
        ]
