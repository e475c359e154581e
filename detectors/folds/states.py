"""Folds samples of a part of the node into findings. Pure.

Each part has its own module: gpu_states.py for GPUs, fabric.py for network ports, volumes.py for volumes of
pods, host.py for the node itself. A state opens a finding once it appears in as many samples in succession as
its row requires. The finding ends once samples show that the state is over. In between nothing is added to
the finding, so a state that lasts causes no writes, and the times of its finding do not change.
The number of subjects and codes bounds the memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

import msgspec

from detectors.folds.chain import Chain, Change
from detectors.rules.facts import Observation, Seen
from detectors.wire.contract import Severity, Source, Subject

__all__ = ["Folded", "States"]


class Folded(msgspec.Struct, frozen=True):
    """The changes that a sample has made."""

    is_edge: bool = False
    """Whether a change must be published at once."""
    is_count: bool = False
    """Whether anything has changed."""
    is_doubtful: bool = False
    """Whether something graver than a note must be seen again before it counts."""


class States:
    def __init__(
        self,
        source: Source,
        code_prefix: str | tuple[str, ...],
        *,
        samples_to_end: int,
        unless_known: bool,
        notes_at_once: bool = False,
    ) -> None:
        """Takes the rules for these states.

        `code_prefix`: one or more prefixes of the codes of these states; empty for any code. The end of a
        state does not end a finding that also has consequences of other codes. `unless_known`: a state opens
        no finding if another source has already reported as much about its device. `notes_at_once`: a note,
        too, is worth a write when it begins.
        """
        self._source = source
        self._code_prefix = code_prefix
        self._samples_to_end = samples_to_end
        self._unless_known = unless_known
        self._notes_at_once = notes_at_once
        self._times_in: Counter[tuple[str, Subject]] = Counter()
        self._times_out: Counter[tuple[str, Subject]] = Counter()

    def clear(self) -> None:
        """Forgets all earlier samples."""
        self._times_in.clear()
        self._times_out.clear()

    def fold(self, chain: Chain, observations: Iterable[Observation], at: datetime) -> Folded:
        """Folds the observations in their order. A state that a sample does not mention stays as it was."""
        is_edge = is_count = is_doubtful = False
        for one in observations:
            change = (
                self._seen_in_state(chain, one, at) if one.text else self._seen_out_of_state(chain, one, at)
            )
            is_note = one.draft.severity is Severity.INFO
            is_edge = is_edge or (change is Change.EDGE and (self._notes_at_once or not is_note))
            is_count = is_count or change is not Change.NOTHING
            is_doubtful = is_doubtful or (not is_note and 0 < self._times_in[_key(one)] < one.samples)
        return Folded(is_edge, is_count, is_doubtful)

    def _seen_in_state(self, chain: Chain, one: Observation, at: datetime) -> Change:
        key = _key(one)
        del self._times_out[key]
        self._times_in[key] += 1
        if self._times_in[key] < one.samples or (not one.is_event and self._is_known(chain, one)):
            return Change.NOTHING
        seen = Seen(sequence=0, at=at, text=one.text, source=self._source, since=one.since)
        return chain.add(one.draft, seen)

    def _is_known(self, chain: Chain, one: Observation) -> bool:
        is_open = chain.is_open(one.draft.code, one.draft.subject)
        return is_open or (self._unless_known and chain.knows(one.draft))

    def _seen_out_of_state(self, chain: Chain, one: Observation, at: datetime) -> Change:
        key = code, subject = _key(one)
        del self._times_in[key]
        if one.is_event or not chain.is_open(code, subject):
            return Change.NOTHING
        self._times_out[key] += 1
        if self._times_out[key] < self._samples_to_end:
            return Change.NOTHING
        del self._times_out[key]
        ended = chain.end(code, subject, at, one.ended_by, with_prefix=self._code_prefix)
        return Change.EDGE if ended else Change.NOTHING


def _key(one: Observation) -> tuple[str, Subject]:
    return one.draft.code, one.draft.subject
