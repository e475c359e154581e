"""Tells what other controllers report about a node, and what Rekindle makes of it, for `rekindle why`.
Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from detectors.text.printing import one_line
from detectors.wire.contract import Severity
from recover.diagnose.kubelet_words import device_words
from recover.model import Node, NodeSignal, Pod
from recover.policy.settings import Placement
from recover.stories.words import FAULTS, Line, Tone, ago, some

__all__ = ["device_signals", "signals"]

_MEANT: dict[Severity, tuple[str, Tone]] = {
    Severity.INFO: ("a note, on which Rekindle does not act", Tone.PLAIN),
    Severity.SUSPECT: ("a suspicion: restarts prefer other nodes while the signal is there", Tone.WAITING),
    Severity.PENDING: ("your settings make this a degraded device", Tone.BAD),
    Severity.FATAL: ("your settings make this a fault", Tone.BAD),
}


def signals(node: Node | None, now: datetime) -> tuple[Line, ...]:
    return tuple(_line(one, now) for one in node.signals) if node is not None else ()


def device_signals(pods: Iterable[Pod], now: datetime) -> tuple[Line, ...]:
    """Returns what the node's kubelet reports about devices, in the status of these pods of the node."""
    meaning, tone = _MEANT[Severity.SUSPECT]
    return tuple(
        Line(
            one_line(
                f"its kubelet: device {one.subject.device} of {one.resource} is unhealthy"
                + (f" ({one.message})" if one.message else "")
                + f", held by {some(one.pods)}; {meaning}"
            ),
            tone,
        )
        for one in device_words(pods, now, Placement().suspicion_s)
    )


def _line(signal: NodeSignal, now: datetime) -> Line:
    since = f", {_when(signal, signal.since, now)}" if signal.since is not None else ""
    value = f"={signal.value}" if signal.value else ""
    reason = f" ({signal.reason})" if signal.reason else ""
    meaning, tone = _MEANT[signal.severity]
    if tone is Tone.BAD:
        meaning += f" of class {signal.fault} ({FAULTS[signal.fault]})"
    return Line(one_line(f"{signal.by}: {signal.kind} {signal.name}{value}{reason}{since}; {meaning}"), tone)


def _when(signal: NodeSignal, since: datetime, now: datetime) -> str:
    is_ahead = signal.is_announced and since > now
    return f"which counts from {since:%Y-%m-%d %H:%M} UTC on" if is_ahead else ago(since, now)
