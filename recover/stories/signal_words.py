"""What other controllers say of a node, and what Rekindle makes of it, for `rekindle why`. Pure."""

from __future__ import annotations

from datetime import datetime

from detectors.text.printing import one_line
from detectors.wire.contract import Severity
from recover.model import Node, NodeSignal
from recover.stories.words import FAULTS, Line, Tone, ago

__all__ = ["signals"]

_MEANT: dict[Severity, tuple[str, Tone]] = {
    Severity.INFO: ("a note, never acted upon", Tone.PLAIN),
    Severity.SUSPECT: ("a suspicion: restarts prefer other nodes while it stands", Tone.WAITING),
    Severity.PENDING: ("by your settings a degraded device", Tone.BAD),
    Severity.FATAL: ("by your settings a fault", Tone.BAD),
}


def signals(node: Node | None, now: datetime) -> tuple[Line, ...]:
    return tuple(_line(one, now) for one in node.signals) if node is not None else ()


def _line(signal: NodeSignal, now: datetime) -> Line:
    since = f", {ago(signal.since, now)}" if signal.since is not None else ""
    value = f"={signal.value}" if signal.value else ""
    reason = f" ({signal.reason})" if signal.reason else ""
    meaning, tone = _MEANT[signal.severity]
    if tone is Tone.BAD:
        meaning += f" of class {signal.fault} ({FAULTS[signal.fault]})"
    return Line(one_line(f"{signal.by}: {signal.kind} {signal.name}{value}{reason}{since}; {meaning}"), tone)
