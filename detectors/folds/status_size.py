"""Keeps a status within its size bound, and decides which pods have priority. Pure; agent/publish.py calls it
just before a write.

The least important parts are dropped first: bad rows of the user's catalogue except the first, tails of logs,
lines of recipes that another container shows as well, findings that only repeat others, evidence, all lines
of recipes, the text of errors, which pods have which devices (then any pod may have any device), the findings
that are not fatal, pods, and last the fatal findings. Logs are text of tenants: they must not crowd out
evidence from the hardware.
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
"""Maximum size in bytes; the rest of the object's bound is for its metadata."""

_FOLDED_MAX = 16
_WORTH = {Edge.STARTED: 0, Edge.ENDED: 1}


def best_first(pods: Iterable[PodProgress], priority_uids: Collection[str]) -> list[PodProgress]:
    """Returns the pods with the most important first; pods lose their places from the end. The pods whose
    uids are in `priority_uids` have devices, or the controller has named them: they are the ranks. Any tenant
    may fill the logs of the others, so each namespace gets its share, and each pod of a namespace."""
    best = sorted(pods, key=_worth, reverse=True)
    fair = in_turn(in_turn(best, lambda pod: pod.uid), lambda pod: (pod.namespace, pod.uid in priority_uids))
    return sorted(fair, key=lambda pod: pod.uid not in priority_uids)


def leaving_out(
    status: NodeHealthStatus, left_out: Collection[str], priority_uids: Collection[str]
) -> NodeHealthStatus:
    """Returns the status, with a mark that not everything about these pods (uids) is published: a reader must
    not conclude anything from missing data. If pods are left out, or the status has no room for more pods,
    the status also names the pods of which everything is published."""
    if not left_out and len(status.pods) < PODS_MAX:
        return status
    whole = status.whole_pods if status.pods_left_out else sorted(priority_uids)
    known = [uid for uid in whole if uid not in left_out][:PODS_MAX]
    is_cut = status.pods_left_out or bool(left_out)
    return msgspec.structs.replace(status, pods_left_out=is_cut, whole_pods=known)


def bounded(
    status: NodeHealthStatus, bytes_max: int = STATUS_BYTES_MAX, *, priority_uids: Collection[str] = ()
) -> NodeHealthStatus:
    """Returns `status` itself if it fits, otherwise a smaller one. Pods with the uids in `priority_uids` are
    dropped last."""
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
    order = best_first(status.pods, priority_uids)
    while order and not _fits(status, bytes_max):
        gone = order.pop()
        status = msgspec.structs.replace(status, pods=[pod for pod in status.pods if pod is not gone])
        status = leaving_out(status, {gone.uid}, priority_uids)
    if not _fits(status, bytes_max):
        status = msgspec.structs.replace(status, whole_pods=[])
    while len(status.findings) > 1 and not _fits(status, bytes_max):
        status = _fold_least(status)
    return status


def _fits(status: NodeHealthStatus, bytes_max: int) -> bool:
    return len(msgspec.json.encode(status)) <= bytes_max


def _shorter_tail(pod: PodProgress, bytes_max: int) -> PodProgress:
    """Keeps the end of the tail, since the last lines say the most."""
    data = pod.tail.encode()
    if len(data) <= bytes_max:
        return pod
    tail = data[len(data) - bytes_max :].decode("utf-8", "ignore")
    return msgspec.structs.replace(pod, tail=tail)


def _repeating(pods: list[PodProgress]) -> PodProgress | None:
    """Returns the latest container whose lines belong to recipes that another container of its namespace
    shows, too; None if there is none. The ranks of a gang mostly fail in one way, and the first rank that
    fails shows it."""
    told: set[tuple[str, str]] = set()
    repeating = None
    for pod in _telling(pods):
        tells = {(pod.namespace, line.signature) for line in pod.known_lines}
        if tells <= told:
            repeating = pod
        told |= tells
    return repeating


def _telling(pods: list[PodProgress]) -> list[PodProgress]:
    """Returns the containers with lines of recipes, ordered by the time of the first line."""
    return sorted((pod for pod in pods if pod.known_lines), key=lambda pod: pod.known_lines[0].at)


def _without_lines(status: NodeHealthStatus, telling: PodProgress) -> NodeHealthStatus:
    silent = msgspec.structs.replace(telling, known_lines=[])
    pods = [silent if pod is telling else pod for pod in status.pods]
    return msgspec.structs.replace(status, pods=pods)


def _shorter_evidence(finding: Finding, bytes_max: int) -> Finding:
    return msgspec.structs.replace(finding, evidence=cut(finding.evidence, bytes_max))


def _shorter_error(pod: PodProgress, bytes_max: int) -> PodProgress:
    """Shortens the text of the error and keeps its code, since decisions read the code."""
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
    """Returns the sort key by which pods keep their places. A running container without steps is the least
    important: it is mostly a service that has nothing to do with training."""
    return _WORTH.get(pod.edge, len(_WORTH)), pod.at
