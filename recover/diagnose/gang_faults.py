"""Diagnoses gangs that failed by themselves, when no hardware finding explains the failure. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from detectors.wire.contract import Fault, Finding, Origin, Severity
from detectors.wire.fitting import fitted, limit
from recover.api import Blame, Evidence, Incident, IncidentPhase, IncidentStatus, Suspect
from recover.diagnose.began_there import began_there_before
from recover.diagnose.boots import boots_after
from recover.diagnose.caught import about_gang, each
from recover.diagnose.coverage import why_not_covered
from recover.diagnose.diagnosis import JOB_FAILED, AffectedGang, Diagnosis, Loss, incident_name
from recover.diagnose.failed_unseen import failed_unseen, told_by_job
from recover.diagnose.first_loss import exit_words, told_by_log
from recover.diagnose.first_step import first_step_due, is_unknown, steps_are_readable
from recover.diagnose.mended import trains_on, trains_without
from recover.diagnose.neighbours import neighbours_fault
from recover.diagnose.pod_volumes import failed_volumes_of, volumes_of
from recover.diagnose.ranks import is_dead, last_stop_or_start, losses, stalled_at, without_surplus
from recover.diagnose.starts import departed, new_pods
from recover.diagnose.unread_ranks import unread_on
from recover.diagnose.verdicts import OUTSIDE, judged
from recover.model import Gang, Pod, PodPhase, World
from recover.model.actions import Failure
from recover.policy.settings import Timing

__all__ = ["GangState", "gang_faults", "gang_state"]

_EVIDENCE_MAX, _SUSPECTS_MAX = limit(IncidentStatus, "evidence"), limit(IncidentStatus, "suspects")
_WITH_VOLUMES_MAX, _VOLUMES_MAX = 8, 4
"""Number of losses for which bad volumes and boots are looked up, and number of these findings that become
evidence."""
_JUDGED = {Blame.APPLICATION, Blame.RESOURCES}
"""Blames that are possible only if the node was watched, or if the kernel's out-of-memory killer ended the
rank."""


class GangState(msgspec.Struct, frozen=True):
    """The state that a gang's own pods show at this moment."""

    gang: Gang
    pods: tuple[Pod, ...]
    losses: tuple[Loss, ...]
    dead: bool
    stalled_at: datetime | None
    first_step_due: datetime | None = None
    """Time by which the gang must have made its first step, if all its ranks run and none has made a step."""
    unknown_on: tuple[str, ...] = ()
    """Nodes whose agents read more than they publish, with ranks of a gang that may hang. These ranks may
    make steps, so the gang does not count as hanging although no other rank makes a step."""
    unread_on: tuple[str, ...] = ()
    """The same for nodes with ranks whose logs nobody reads (unread_ranks.py)."""
    is_ordinary: bool = False
    """Whether no rank is lost, the gang has not stalled as a whole, and no first step is awaited. Time alone
    does not change this state: it lasts until one of the objects changes from which it is read."""

    @property
    def is_unseen(self) -> bool:
        """Whether only the job shows a loss. A fault of a node does not explain such a loss, because such a
        fault would show in the pods."""
        return bool(self.losses) and self.losses[0].code == JOB_FAILED

    @property
    def suspicious(self) -> bool:
        """Whether something is wrong, but only time can tell whether the gang is dead. The next reconcile
        must come soon."""
        return bool(self.losses) and not self.dead

    @property
    def troubled_at(self) -> datetime | None:
        return min((loss.at for loss in self.losses), default=self.stalled_at)

    @property
    def born_at(self) -> datetime | None:
        """Time at which the oldest pod that shows the trouble was created; None if the time is unknown for
        one of these pods."""
        created = [loss.created for loss in self.losses] or [pod.created for pod in self.pods]
        known = [at for at in created if at is not None]
        return min(known) if known and len(known) == len(created) else None

    @property
    def failed_at(self) -> datetime | None:
        """The time of the trouble if it is certain, or None: `at` is only a guess for a loss whose time is
        unknown."""
        is_certain = all(loss.at == loss.reported_at and not loss.is_missed for loss in self.losses)
        return self.troubled_at if is_certain else None


def gang_state(world: World, gang: Gang, timing: Timing, now: datetime) -> GangState:
    pods = new_pods(world, gang)
    there = without_surplus([*pods, *departed(world, gang, pods)], pods, gang)
    lost = losses(world, there, now)
    if gang.ends_by_success and any(pod.phase is PodPhase.SUCCEEDED for pod in pods):
        lost = [loss for loss in lost if loss.code != "deleted"]  # the framework ends the other ranks
    if not lost and (unseen := failed_unseen(world, gang, pods, now)) is not None:
        lost = [unseen]
    is_whole = not lost
    if trains_on(world, gang, pods, lost, timing) or trains_without(world, gang, pods, lost, now):
        lost = []
    stalled = stalled_at(world, pods) if not lost else None
    due = first_step_due(world, gang, pods, timing, now) if not lost and stalled is None else None
    may_hang = stalled is not None or due is not None
    unknown_on = tuple(sorted({pod.node for pod in pods if is_unknown(world, pod)})) if may_hang else ()
    is_silent = due is not None and now >= due and steps_are_readable(world, gang)
    unread = unread_on(world, pods, now) if stalled is not None else ()
    hangs = (stalled is not None or is_silent) and not unknown_on and not unread
    dead = is_dead(world, pods, lost, timing, now) or hangs
    is_ordinary = is_whole and not may_hang
    return GangState(gang, tuple(pods), tuple(lost), dead, stalled, due, unknown_on, unread, is_ordinary)


def gang_faults(
    world: World,
    states: Mapping[str, GangState],
    explained: frozenset[str],
    timing: Timing,
    now: datetime,
) -> tuple[list[Diagnosis], list[Failure]]:
    """Returns one diagnosis for each troubled gang that is not in `explained` (uids of gangs whose trouble a
    node's fault explains)."""
    open_ones = {
        i.spec.gang.uid: i
        for i in sorted(world.incidents.values(), key=lambda i: i.spec.detected_at)
        if i.spec.gang is not None and i.status.phase is IncidentPhase.OPEN
    }
    in_question = [s for uid, s in states.items() if uid not in explained and not s.suspicious]
    found, failures = each(
        in_question,
        lambda state: about_gang(state.gang),
        lambda state: _of_gang(world, state, open_ones.get(state.gang.ref.uid), timing, now),
    )
    return [diagnosis for diagnosis in found if diagnosis is not None], failures


def _of_gang(
    world: World, state: GangState, known: Incident | None, timing: Timing, now: datetime
) -> Diagnosis | None:
    own = _own_trouble(world, state, known, timing, now)
    return (
        None if own is None else _as_before(own, known, last_stop_or_start(world.history(state.gang.ref.uid)))
    )


def _own_trouble(
    world: World, state: GangState, known: Incident | None, timing: Timing, now: datetime
) -> Diagnosis | None:
    if state.is_unseen:
        return told_by_job(world, state.gang, state.losses[0], known, now)
    if state.losses:
        return _lost_ranks(world, state, known, timing, now)
    if state.stalled_at is not None:
        return _hang(world, state, now)
    due = state.first_step_due
    return _no_first_step(state, due, now) if due is not None and now >= due else None


def _as_before(found: Diagnosis, incident: Incident | None, began: datetime | None) -> Diagnosis:
    """Joins a later loss of the same attempt to the gang's open Incident. A loss of a later attempt is a new
    fault.

    A loss whose time is unknown seems to happen now at each reconcile; it is as old as its Incident.
    """
    if incident is None or found.detected_at < incident.spec.detected_at:
        return found
    if incident.status.superseded_by or (began is not None and incident.spec.detected_at <= began):
        return found
    known = found.name == incident.metadata.name
    summary, is_the_same = (
        incident.status.summary,
        (found.fault, found.blame) == (incident.fault, incident.status.blame),
    )
    return msgspec.structs.replace(
        found,
        name=incident.metadata.name,
        # The Incident already names the rank that was lost first, so its summary stays. The summary of a hang
        # may change: only later it may become known that the gang hangs.
        summary=summary if summary and is_the_same and found.fault is not Fault.HANG else found.summary,
        suspects=tuple(incident.status.suspects) if summary and is_the_same else found.suspects,
        detected_at=incident.spec.detected_at,
        seen_at=incident.spec.detected_at if known else found.seen_at,
    )


def _lost_ranks(
    world: World, state: GangState, known: Incident | None, timing: Timing, now: datetime
) -> Diagnosis:
    gang, first = state.gang, state.losses[0]
    known_status = known.status if known is not None and _is_of(known, gang, first) else None
    # Whether this loss was judged before, while its node was watched. If the node's agent has ended since,
    # the verdict stays.
    covered = known_status is not None and known_status.blame in _JUDGED
    beside = neighbours_fault(world, gang, first, known_status, timing, now)
    found = judged(world, first, now, covered=covered, beside=beside)
    name = _name(gang, found.fault, first)
    is_again = found.fault is Fault.APPLICATION and began_there_before(world, gang, name, first, timing, now)
    why = f"the first lost rank ran there ({exit_words(first.code)})"
    why += ", and at the job's previous failure, too" if is_again else ""
    again = f", and the job's previous failure began on {first.node}, too" if is_again else ""
    rank = f"{first.pod} on {first.node or 'no node'}"
    return Diagnosis(
        name=name,
        fault=found.fault,
        severity=Severity.FATAL,
        detected_at=first.at,
        seen_at=first.at,
        summary=f"{gang.ref} lost {rank} first ({exit_words(first.code)}){again}; {found.why}",
        blame=found.blame,
        settled=True,
        gang=gang,
        evidence=tuple(_with_findings(world, state.losses)),
        suspects=(fitted(Suspect, node=first.node, score=0.3, why=why),)
        if (found.doubts_node or is_again) and first.node
        else (),
        affected=(AffectedGang(gang=gang, due=now, dead=True, born_at=state.born_at),),
        why_not_covered={first.node: found.why_not_covered} if found.why_not_covered else {},
        error=found.error,
    )


def _name(gang: Gang, fault: Fault, first: Loss) -> str:
    return incident_name(gang.ref.name, fault, first.pod_uid, str(first.restarts), first.code)


def _is_of(known: Incident, gang: Gang, first: Loss) -> bool:
    """Whether the Incident was opened for this loss."""
    return known.metadata.name == _name(gang, known.spec.fault, first)


def _evidence(loss: Loss) -> Evidence:
    return fitted(
        Evidence,
        at=loss.at,
        origin=Origin.KUBELET if loss.code in OUTSIDE else Origin.TENANT,
        code=loss.code,
        node=loss.node,
        pod=loss.pod,
        text="; ".join(filter(None, (_in_place(loss), told_by_log(loss)))),
    )


def _with_findings(world: World, losses: Sequence[Loss]) -> list[Evidence]:
    """Returns the evidence: the losses and, for the earliest losses, the bad volumes and the reason for a
    later boot of the node."""
    first = losses[:_WITH_VOLUMES_MAX]
    boots = {
        finding.id: _as_evidence(finding, loss.node, loss.pod)
        for loss in first
        for finding in boots_after(world, loss.node, loss.at)
    }
    volumes = [
        _as_evidence(finding, loss.node, loss.pod)
        for loss in first
        for finding in volumes_of(world, loss.node, loss.pod_uid, loss.at)
    ]
    shown = [*boots.values(), *volumes][:_VOLUMES_MAX]
    return [*map(_evidence, losses[: _EVIDENCE_MAX - len(shown)]), *shown]


def _as_evidence(finding: Finding, node: str, pod: str) -> Evidence:
    return fitted(
        Evidence,
        at=finding.first_seen,
        origin=finding.origin,
        code=finding.code,
        node=node,
        pod=pod,
        text=finding.evidence,
    )


def _in_place(loss: Loss) -> str:
    """Returns the words for a container that ended in a pod that still exists. In a pod with the restart
    policy `Never` the container has not been started again."""
    if not loss.in_place:
        return ""
    return "the container was started again in the same pod" if loss.restarts else "the pod still exists"


def _no_first_step(state: GangState, due: datetime, now: datetime) -> Diagnosis:
    """Returns a hang if steps were read after the gang's last recovery and no agent leaves out its ranks;
    otherwise only a notice, for which the gang is not stopped."""
    gang = state.gang
    if state.dead:
        why = "none has made its first step yet. Rekindle read steps of the job before, so the job hangs"
    elif state.unknown_on:
        why = f"Rekindle knows of no step; {_unknown(state)}"
    else:
        why = (
            "none has made its first step yet. Either the job hangs, or its log shows no steps "
            "that Rekindle can read (see rekindle doctor)"
        )
    return Diagnosis(
        name=incident_name(gang.ref.name, Fault.HANG, gang.ref.uid, due.isoformat()),
        fault=Fault.HANG,
        severity=Severity.FATAL if state.dead else Severity.PENDING,
        detected_at=due,
        seen_at=due,
        summary=f"{gang.ref}: all {gang.size} ranks run and {why}",
        blame=Blame.UNKNOWN,
        settled=True,
        gang=gang,
        evidence=(fitted(Evidence, at=due, origin=Origin.TENANT, code="no-first-step"),),
        affected=(
            AffectedGang(gang=gang, due=now if state.dead else None, dead=state.dead, born_at=state.born_at),
        ),
    )


def _unknown(state: GangState) -> str:
    """Returns why Rekindle does not act on a gang that may hang."""
    cannot = "Rekindle cannot tell whether the job hangs, and does not restart the job"
    if not state.unknown_on:
        return (
            f"{cannot}: nobody reads the logs of its ranks on {_some(state.unread_on)}, and the other ranks "
            "may have printed only their first steps. See why no agent reports from there, or restart the "
            "job if its logs show no progress"
        )
    return (
        f"{cannot}: too many containers print logs on {_some(state.unknown_on)}, so the agent leaves out "
        "pods there. Keep pods without devices off these nodes, or restart the job if its logs show no "
        "progress"
    )


def _some(nodes: Sequence[str]) -> str:
    more = len(nodes) - 3
    return ", ".join(nodes[:3]) + (f" and {more} more nodes" if more > 0 else "")


def _hang(world: World, state: GangState, now: datetime) -> Diagnosis:
    gang, at = state.gang, state.stalled_at or now
    seen_at = min(at, now)  # a node's clock may run ahead
    used = sorted({p.node for p in state.pods if p.node})
    unseen = [(node, why) for node in used if (why := why_not_covered(world, node, at, now))][:_SUSPECTS_MAX]
    told = failed_volumes_of(world, [(p.node, p.uid) for p in state.pods], at)
    silent = [(pod, trouble) for pod, trouble in zip(state.pods, told, strict=True) if trouble.findings]
    waits = max((told for _, told in silent), key=lambda told: told.nodes, default=None)
    if state.dead and waits is not None:
        why = f"no rank has made a step within the time limit, and {waits.words}; no node is the culprit"
    elif state.dead:
        why = "no rank has made a step within the time limit; Rekindle has found no culprit"
    else:
        why = f"Rekindle knows of no step within the time limit; {_unknown(state)}"
    return Diagnosis(
        name=incident_name(gang.ref.name, Fault.HANG, gang.ref.uid, at.isoformat()),
        fault=Fault.HANG,
        severity=Severity.FATAL if state.dead else Severity.PENDING,
        detected_at=seen_at,
        seen_at=seen_at,
        summary=f"{gang.ref}: {why}",
        blame=Blame.UNKNOWN,
        settled=True,
        gang=gang,
        evidence=(
            fitted(Evidence, at=at, origin=Origin.TENANT, code="stalled"),
            *[_as_evidence(told.findings[0], pod.node, pod.name) for pod, told in silent][:_VOLUMES_MAX],
        ),
        suspects=tuple(fitted(Suspect, node=n, score=0.3, why="the agent is blind") for n, _ in unseen),
        affected=(
            AffectedGang(gang=gang, due=now if state.dead else None, dead=state.dead, born_at=state.born_at),
        ),
        why_not_covered=dict(unseen),
    )
