"""Tells why a scan has given no answer, if possible in the words of the API server, the scheduler or the
kubelet. Pure; for choose.py and scanned.py.

The gang's accelerators are idle meanwhile, so an obstacle that will not pass by itself ends the wait at once.
"""

from __future__ import annotations

from recover.model import Container, Pod, Refusal
from recover.recovery.scan_spec import MEMORY_LIMIT

__all__ = ["REQUEUE_S", "of_ended", "of_waiting", "refused", "unread"]

REQUEUE_S = 1.0
QUOTA_S = 5.0
"""Time for which a refusal by a quota counts as passing. A quota counts the gang's old pods until its
controller has seen them end."""
AGAIN_S = 5.0
"""Time after which a failed start counts as final. A pull that has failed once may have met a registry that
was busy for a moment."""

_NEVER_STARTS = frozenset({"InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError"})
_FAILED_ONCE = frozenset({"ErrImagePull", "ImagePullBackOff", "CreateContainerError", "RunContainerError"})
_NO_MOUNT = (
    "either the volume is not mounted (with ReadWriteOnce it may still be attached to another "
    "node), or the pod's sandbox does not start; to see which: kubectl events -n {0.namespace} "
    "--for pod/{0.name}"
)


def refused(refusal: Refusal, waited_s: float) -> str | None:
    """Returns why no scan can be created, or None if another try is worthwhile."""
    if refusal.may_pass or ("exceeded quota" in refusal.words and waited_s < QUOTA_S):
        return None
    return f"the API server refused the scan pod: {refusal.words}"


def of_waiting(scan: Pod, waited_s: float) -> str | None:
    """Returns why this scan will not begin, or None if it may still begin."""
    for container in scan.containers:
        reason = container.waiting.reason if container.waiting else ""
        if reason in _NEVER_STARTS or (reason in _FAILED_ONCE and waited_s >= AGAIN_S):
            return f"the scan pod cannot start: {_words(container)}"
    return None


def of_ended(scan: Pod) -> str:
    """Returns why a scan that has ended left no message."""
    for container in scan.containers:
        if container.reason == "OOMKilled":
            return f"the scan was killed: it needed more memory than its limit of {MEMORY_LIMIT} (OOMKilled)"
        if container.exit_code is not None:
            why = f", {container.reason}" if container.reason not in ("", "Error", "Completed") else ""
            return f"the scan ended with exit status {container.exit_code}{why} and left no result"
    return f"the scan pod ended before its container did: {scan.failure or 'no reason was given'}"


def unread(scan: Pod | None, refusal: Refusal | None) -> str:
    """Returns what is known about a scan at its deadline."""
    if scan is None:
        return (
            f"the API server refused the scan pod: {refusal.words}"
            if refusal
            else "the scan pod never appeared"
        )
    if scan.gated:
        return "the scan pod still has its scheduling gate"
    if not scan.node:
        return f"the scan pod found no node: {scan.unschedulable or 'no scheduler has processed the pod'}"
    waiting = next((c for c in scan.containers if c.waiting is not None), None)
    if waiting is not None and waiting.waiting is not None and waiting.waiting.reason != "ContainerCreating":
        return f"the scan pod on {scan.node} waits: {_words(waiting)}"
    if any(container.running for container in scan.containers):
        return f"the scan was still reading on {scan.node}"
    return f"the scan pod on {scan.node} has not started: {_NO_MOUNT.format(scan)}"


def _words(container: Container) -> str:
    assert container.waiting is not None
    return ": ".join(part for part in (container.waiting.reason, container.waiting.message) if part)
