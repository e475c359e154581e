"""Turns the signals of other controllers on nodes into suspicions (for what_counts.py) and findings (for
set_aside.py). Pure.

A signal makes its node a suspect for as long as the signal exists. A signal that people have mapped to a
higher severity is also a finding of origin vendor, which began when the signal did: the finding acts once,
and the end of a quarantine answers it. A signal that comes and goes all the time would open an Incident each
time, so it counts once it has existed for a while. The resets and checks of Rekindle's repair work only for
NVIDIA's devices, so a person must repair what another vendor's plugin reports.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from detectors.wire.contract import Finding, Origin, Remedy, Severity, Subject, SubjectKind
from detectors.wire.fitting import fitted
from recover.model import Node, NodeSignal, SignalKind, World

__all__ = ["as_findings", "becomes_findings", "doubted_by_others", "doubts", "is_of_a_signal"]


_STANDS = timedelta(seconds=60)


def as_findings(node: Node, now: datetime) -> Iterator[Finding]:
    """Yields one finding for each signal that is more than a suspicion, and has existed for a minute or for
    its `settles_s`, whichever is longer."""
    for signal, since in _mapped(node):
        if now - since >= _stands(signal):
            yield fitted(
                Finding,
                id=f"{node.boot_id[:8]}-{signal.place}",
                code=signal.code,
                fault=signal.fault,
                origin=Origin.VENDOR,
                severity=signal.severity,
                subject=_subject(signal),
                boot_id=node.boot_id,
                first_seen=since,
                last_seen=since,
                remedy=Remedy.INSPECT if signal.kind is SignalKind.REPORT else Remedy.NONE,
                evidence=_words(signal),
            )


def is_of_a_signal(finding: str) -> bool:
    """Whether the finding with this id comes from a signal. Such a finding is over once the signal is
    gone."""
    return finding[8:].startswith(tuple(f"-{kind}-" for kind in SignalKind))


def becomes_findings(world: World) -> Iterator[datetime]:
    """Yields the times at which signals have existed, or will have existed, for long enough."""
    for node in world.signalling.values():
        for signal, since in _mapped(node):
            yield since + _stands(signal)


def _mapped(node: Node) -> Iterator[tuple[NodeSignal, datetime]]:
    for signal in node.signals:
        if signal.severity in (Severity.PENDING, Severity.FATAL) and signal.since is not None:
            yield signal, signal.since


def _stands(signal: NodeSignal) -> timedelta:
    return max(_STANDS, timedelta(seconds=signal.settles_s))


def _subject(signal: NodeSignal) -> Subject:
    if not signal.device:
        return Subject(kind=SubjectKind.NODE)
    return Subject(kind=SubjectKind.DEVICE, device=signal.device)


def doubted_by_others(world: World, now: datetime) -> dict[str, str]:
    """Returns the nodes with a signal that makes them suspects, and the code of the first such signal."""
    return {
        name: told[0].code for name, node in sorted(world.signalling.items()) if (told := doubts(node, now))
    }


def doubts(node: Node, now: datetime) -> list[NodeSignal]:
    """Returns the node's signals that are more than a note, and that have existed for as long as they need
    to."""
    return [
        signal
        for signal in node.signals
        if signal.severity is not Severity.INFO and _has_settled(signal, now)
    ]


def _has_settled(signal: NodeSignal, now: datetime) -> bool:
    if signal.is_announced:
        return signal.since is not None and now >= signal.since
    settles = timedelta(seconds=signal.settles_s)
    return not settles or signal.since is None or now - signal.since >= settles


def _words(signal: NodeSignal) -> str:
    reason = f" ({signal.reason})" if signal.reason else ""
    return f"{signal.kind} {signal.name}={signal.value}{reason}, by {signal.by}"
