"""Decides the blame for the first lost rank of a gang that no hardware finding explains. Pure; for
gang_faults.py.

An application is blamed only if the sources that could have shown a node's fault were covered, and if its log
does not say that something below the application failed. Otherwise the blame goes to resources that are used
up, or to nobody. If the node of the first lost rank may be the cause (`doubts_node`), the restart prefers
other nodes.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from detectors.catalog.log_errors import Failed
from detectors.wire.contract import Fault
from recover.api import Blame
from recover.diagnose.coverage import looked_at, why_not_covered
from recover.diagnose.diagnosis import Loss
from recover.diagnose.first_loss import nobody_is_blamed, what_failed
from recover.diagnose.out_of_memory import OOM_KILLED, node_ran_out
from recover.diagnose.pod_volumes import failed_volumes, full_volumes
from recover.model import World

__all__ = ["OUTSIDE", "Verdict", "judged"]

OUTSIDE = {
    "deleted": "the pod was deleted",
    "node-gone": "the node is gone",
    "evicted": "the kubelet evicted the pod",
    "made-way": "the kubelet ended the pod, because the machine shut down or because the node needed "
    "room for a pod of higher priority",
    "not-admitted": "the kubelet refused the pod",
    "pod-deadline": "the kubelet ended the pod at the deadline that the job's pod template sets "
    "(activeDeadlineSeconds)",
}
"""Losses that the program did not cause."""
_NO_SUSPECTS = frozenset({"deleted", "evicted", "made-way", "pod-deadline"})
"""Losses that make no node a suspect. The removal of a pod says nothing about its node, nor does a deadline,
and a node that is under pressure, or that shuts down, takes no pods."""


class Verdict(msgspec.Struct, frozen=True):
    fault: Fault
    blame: Blame
    why: str
    error: str
    """The error by which attempts are counted."""
    doubts_node: bool = False
    """Whether the rank's node may be the cause."""
    why_not_covered: str = ""
    """Why the agent of that node could not see a fault there; empty if it could."""


def judged(world: World, first: Loss, now: datetime, *, covered: bool, beside: str) -> Verdict:
    """Returns the verdict on the first loss. `covered` says that this loss was judged before, while its node
    was watched. `beside` says why another program on the same GPU may have ended the rank, and is empty if
    none may have."""
    error = first.error or first.code
    if first.code in OUTSIDE:  # its log shows only how the program handled its end
        doubts = first.code not in _NO_SUSPECTS
        return Verdict(Fault.HOST, Blame.UNKNOWN, OUTSIDE[first.code], first.code, doubts)
    if first.propagated:  # all other losses are then propagated, too: the loss of the peer is not known yet
        return Verdict(Fault.UNKNOWN, Blame.UNKNOWN, nobody_is_blamed(first), error)
    if first.code == OOM_KILLED:
        return _out_of_memory(world, first)
    failed, meaning = what_failed(first.error)
    if beside and failed in (Failed.PROGRAM, Failed.DEVICE):
        return Verdict(Fault.UNKNOWN, Blame.UNKNOWN, beside, error)
    why_not = "" if covered else why_not_covered(world, first.node, first.at, now)
    if why_not:
        return Verdict(
            Fault.UNKNOWN, Blame.UNKNOWN, f"there is no culprit, because {why_not}", error, True, why_not
        )
    return _by_its_log(world, first, failed, meaning, error)


def _by_its_log(world: World, first: Loss, failed: Failed, meaning: str, error: str) -> Verdict:
    """Returns the verdict by the rank's log. If the log says nothing, the volumes of the pod decide."""
    where = world, first.node, first.pod_uid, first.at
    full = full_volumes(*where).words if failed is Failed.RESOURCES or not first.error else ""
    stuck = failed_volumes(*where) if failed is Failed.STORAGE or not (first.error or full) else None
    shown = f"; {stuck.words}" if stuck is not None and stuck.words else ""
    match failed:
        case Failed.RESOURCES:
            why = f"the log gives the cause: {meaning}" + (f"; {full}" if full else "")
            return Verdict(Fault.RESOURCES, Blame.RESOURCES, why, error)
        case Failed.STORAGE | Failed.DEVICE:
            why = (
                f"there is no culprit, because the log says that the {failed} below the program failed "
                f"({meaning}){shown}"
            )
            return Verdict(Fault.UNKNOWN, Blame.UNKNOWN, why, error, stuck is None or stuck.nodes < 2)
        case Failed.PROGRAM if full:
            why = f"the log does not give the cause, and {full}"
            return Verdict(Fault.RESOURCES, Blame.RESOURCES, why, error)
        case Failed.PROGRAM if stuck is not None and stuck.words:
            why = f"there is no culprit, because the log does not give the cause, and {stuck.words}"
            return Verdict(Fault.UNKNOWN, Blame.UNKNOWN, why, error, stuck.nodes < 2)
        case Failed.PROGRAM:
            return Verdict(Fault.APPLICATION, Blame.APPLICATION, looked_at(world, first.node), error)


def _out_of_memory(world: World, first: Loss) -> Verdict:
    """Returns the verdict for a rank that the kernel's out-of-memory killer ended. The kernel's report needs
    no other evidence: a program that uses up memory breaks no device."""
    if node_ran_out(world, first.node, first.at):
        why = "the kernel's out-of-memory killer ended the rank, because the node had no memory left"
        return Verdict(Fault.HOST, Blame.UNKNOWN, why, OOM_KILLED, True)
    why = "the kernel's out-of-memory killer ended the rank"
    return Verdict(Fault.RESOURCES, Blame.RESOURCES, why, OOM_KILLED)
