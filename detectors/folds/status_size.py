"""Keeps a status within its size bound, and says which pods come first. Pure; agent/publish.py asks just
before a write.

What is dropped first is what is missed least: bad rows of the user's catalogue but the first, tails of logs,
lines of recipes that another container shows as well, findings that only repeat others, evidence, all lines
of recipes, the words of errors, which pods hold which devices (all may, then), the findings that are not
fatal, pods, and last the fatal findings. Logs are tenants' own words: they must not crowd out what the
hardware says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

import msgspec

from detectors.folds.chain import least, repeats
from detectors.text.cutting import cut
from detectors.text.sharing import in_turn
from detectors.wire.contract import (
    OBJECT_BYTES_MAX,
    PODS_MAX,
    Finding,
    FoldedFindings,
    NodeHealthStatus,
    Severity,
)
from detectors.wire.sane import total
from detectors.wire.training import Edge, PodProgress

__all__ = ["STATUS_BYTES_MAX", "best_first", "bounded", "leaving_out"]

STATUS_BYTES_MAX = OBJECT_BYTES_MAX - 2048
"""Room is left for the object's metadata."""

_FOLDED_MAX = 16
_WORTH = {Edge.STARTED: 0, Edge.ENDED: 1}


def best_first(pods: Iterable[PodProgress], first: Collection[str]) -> list[PodProgress]:
    """In the order in which pods lose their places, from the end. Those of the uids in `first` hold devices,
    or the controller has named them: they are the ranks. Of the others, whose logs anybody may fill, each
    namespace gets its share, and each pod of a namespace."""
    best = sorted(pods, key=_worth, reverse=True)
    fair = in_turn(in_turn(best, lambda pod: pod.uid), lambda pod: (pod.namespace, pod.uid in first))
    return sorted(fair, key=lambda pod: pod.uid not in first)


def leaving_out(
    status: NodeHealthStatus, left_out: Collection[str], first: Collection[str]
) -> NodeHealthStatus:
    """The same status, which says that of these pods (uids) not everything is published: a reader must not
    take silence for an answer. Where there is no room left it names the whole pods, too."""
    if not left_out and len(status.pods) < PODS_MAX:
        return status
    whole = status.whole_pods if status.pods_left_out else sorted(first)
    known = [uid for uid in whole if uid not in left_out][:PODS_MAX]
    is_cut = status.pods_left_out or bool(left_out)
    return msgspec.structs.replace(status, pods_left_out=is_cut, whole_pods=known)


def bounded(
    status: NodeHealthStatus, bytes_max: int = STATUS_BYTES_MAX, *, first: Collection[str] = ()
) -> NodeHealthStatus:
    """`status` itself where it fits. Pods with the uids in `first` are the last to go."""
    if not _fits(status, bytes_max):
        status = msgspec.structs.replace(status, catalogue_problems=status.catalogue_problems[:1])
    for tail_bytes in (1024, 512, 256, 0):
        if _fits(status, bytes_max):
            return status
        status = msgspec.structs.replace(status, pods=[_shorter_tail(pod, tail_bytes) for pod in status.pods])
    while not _fits(status, bytes_max) and (repeating := _repeating(status.pods)) is not None:
        status = _without_lines(status, repeating)
    while repeats(status.findings) and not _fits(status, bytes_max):
        status = _fold_least(status)
    for evidence_bytes in (128, 64, 0):
        if _fits(status, bytes_max):
            return status
        status = msgspec.structs.replace(
            status, findings=[_shorter_evidence(finding, evidence_bytes) for finding in status.findings]
        )
    while not _fits(status, bytes_max) and (telling := _telling(status.pods)):
        status = _without_lines(status, telling[-1])
    for error_bytes in (64, 0):
        if _fits(status, bytes_max):
            return status
        pods = [_shorter_error(pod, error_bytes) for pod in status.pods]
        status = msgspec.structs.replace(status, pods=pods)
    if not _fits(status, bytes_max):
        devices = [msgspec.structs.replace(device, pods=[], instance_pods=[]) for device in status.devices]
        status = msgspec.structs.replace(status, devices=devices)
    while any(map(_may_go, status.findings)) and not _fits(status, bytes_max):
        status = _fold_least(status)
    order = best_first(status.pods, first)
    while order and not _fits(status, bytes_max):
        gone = order.pop()
        status = msgspec.structs.replace(status, pods=[pod for pod in status.pods if pod is not gone])
        status = leaving_out(status, {gone.uid}, first)
    if not _fits(status, bytes_max):
        status = msgspec.structs.replace(status, whole_pods=[])
    while len(status.findings) > 1 and not _fits(status, bytes_max):
        status = _fold_least(status)
    return status


def _fits(status: NodeHealthStatus, bytes_max: int) -> bool:
    return len(msgspec.json.encode(status)) <= bytes_max


def _shorter_tail(pod: PodProgress, bytes_max: int) -> PodProgress:
    """Keeps the end: it is the last lines that tell."""
    data = pod.tail.encode()
    if len(data) <= bytes_max:
        return pod
    tail = data[len(data) - bytes_max :].decode("utf-8", "ignore")
    return msgspec.structs.replace(pod, tail=tail)


def _repeating(pods: list[PodProgress]) -> PodProgress | None:
    """The latest container whose lines are of recipes that another one of its namespace shows, too: the ranks
    of a gang mostly fail in one way, and the first to do so tells it."""
    told: set[tuple[str, str]] = set()
    repeating = None
    for pod in _telling(pods):
        tells = {(pod.namespace, line.signature) for line in pod.known_lines}
        if tells <= told:
            repeating = pod
        told |= tells
    return repeating


def _telling(pods: list[PodProgress]) -> list[PodProgress]:
    """Those with lines of recipes; who told first, first."""
    return sorted((pod for pod in pods if pod.known_lines), key=lambda pod: pod.known_lines[0].at)


def _without_lines(status: NodeHealthStatus, telling: PodProgress) -> NodeHealthStatus:
    silent = msgspec.structs.replace(telling, known_lines=[])
    pods = [silent if pod is telling else pod for pod in status.pods]
    return msgspec.structs.replace(status, pods=pods)


def _shorter_evidence(finding: Finding, bytes_max: int) -> Finding:
    return msgspec.structs.replace(finding, evidence=cut(finding.evidence, bytes_max))


def _shorter_error(pod: PodProgress, bytes_max: int) -> PodProgress:
    """Its code stays: that is what decisions read."""
    error = pod.first_error
    if error is None:
        return pod
    shorter = msgspec.structs.replace(error, text=cut(error.text, bytes_max))
    return msgspec.structs.replace(pod, first_error=shorter)


def _may_go(finding: Finding) -> bool:
    return finding.cleared_at is not None or finding.severity is not Severity.FATAL


def _fold_least(status: NodeHealthStatus) -> NodeHealthStatus:
    gone = least(status.findings)
    folded = {entry.code: entry for entry in status.folded}
    before = folded.get(gone.code)
    folded[gone.code] = FoldedFindings(
        code=gone.code,
        count=total(gone.count, before.count if before else 0),
        last_seen=max(gone.last_seen, before.last_seen) if before else gone.last_seen,
    )
    kept = sorted(folded.values(), key=lambda entry: entry.last_seen)[-_FOLDED_MAX:]
    findings = [finding for finding in status.findings if finding is not gone]
    return msgspec.structs.replace(status, findings=findings, folded=kept)


def _worth(pod: PodProgress) -> tuple[int, datetime]:
    """A running container without steps is mostly a service that has nothing to do with training."""
    return _WORTH.get(pod.edge, len(_WORTH)), pod.at
