"""Lists what a person can do next about a node: steps for each reason why Rekindle did not act, as the node
is now. Pure.

Commands are in backticks and complete. No step is proposed that the state of the node makes pointless.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime

import msgspec

from detectors.text.printing import one_line
from detectors.wire.contract import Origin
from recover.api import ActionRecord, Incident, IncidentPhase
from recover.api.reasons import Reason
from recover.api.repair_state import RepairPhase
from recover.model import Node
from recover.policy.commands import cordon, promote, release_node
from recover.policy.consent import MANAGED, held
from recover.stories.around import Around
from recover.stories.words import FAULTS, generic_step, some
from recover.triage.quarantine import undone_by

__all__ = ["acted_on_again", "repair_steps", "steps_for_node", "take_out", "to_act"]


class _Case(msgspec.Struct, frozen=True):
    name: str
    node: Node | None
    said: str
    """The message of the record."""
    incident: Incident
    around: Around
    now: datetime


def steps_for_node(
    record: ActionRecord, incident: Incident, around: Around, now: datetime
) -> tuple[str, ...]:
    """Returns steps for an action on a node that was refused, or that would be taken in another mode."""
    case = _Case(
        record.target, around.nodes.get(record.target), one_line(record.message), incident, around, now
    )
    if around.lacks_node(case.name):
        return ()  # there is nothing left to act on
    return _steps(record.reason, case)


def repair_steps(incident: Incident, around: Around, now: datetime) -> tuple[str, ...]:
    """Returns steps for a repair that waits, or that was handed over to a person. A repair that was handed
    over waits for nothing, so its own instruction applies, until its Incident is closed."""
    repair, name = incident.status.repair, incident.spec.node
    if repair is None or not repair.reason or repair.phase is RepairPhase.RETURNED:
        return ()
    if around.lacks_node(name) or (not repair.active and incident.status.phase is IncidentPhase.CLOSED):
        return ()
    case = _Case(name, around.nodes.get(name), one_line(repair.message), incident, around, now)
    if not repair.active and repair.reason in (Reason.NODE_SILENT, Reason.PODS_OF_OTHERS):
        return tuple(_for_a_person(case))
    return _steps(repair.reason, case)


def _steps(reason: str, case: _Case) -> tuple[str, ...]:
    known = next((steps for one, steps in _BY_REASON.items() if one == reason), None)
    return tuple(known(case)) if known is not None else generic_step(reason)


def take_out(name: str, around: Around) -> Iterator[str]:
    """Yields how a person takes the node out of service, or that the node is cordoned already; nothing if the
    node is gone."""
    node = around.nodes.get(name)
    if node is not None and node.unschedulable:
        yield f"{name} is already cordoned: the scheduler places no new pods there."
    elif not around.lacks_node(name):
        yield f"To take {name} out of service now: `{cordon(name)}`."


def to_act(said: str, around: Around) -> str:
    """Returns how a person lets Rekindle act. `said` is the message of the record, which names the pool or
    namespace that lowers the mode."""
    lowered = re.search(r"\((pool|namespace) (\S+) is in mode", said)
    if lowered is None and around.release:
        return f"To let Rekindle act on new faults, set the mode to recover: `{promote(around.release)}`."
    if lowered is None:
        return (
            "To let Rekindle act on new faults, set the chart's value mode to recover: run `helm upgrade` "
            "with `--set mode=recover` for the Helm release of Rekindle."
        )
    return (
        f"To let Rekindle act on new faults, remove the lower mode of {lowered[1]} {lowered[2]} from the "
        "chart's value modes."
    )


def acted_on_again(incident: Incident, node: str) -> str:
    """Returns on which evidence Rekindle does not act, and in which case Rekindle acts."""
    codes = some(dict.fromkeys(e.code for e in incident.status.evidence if e.node == node), 3)
    what = f"{codes} on {node}" if codes else f"the fault of {node} ({FAULTS[incident.fault]})"
    is_a_line = bool(codes) and all(
        e.origin is Origin.KERNEL for e in incident.status.evidence if e.node == node
    )
    acts = (
        f"Rekindle acts if the kernel log of {node} shows {codes} again. If the new line comes within ten "
        "seconds of the last one, the agent takes it for a repetition, and may report it only ten minutes "
        "later."
        if is_a_line
        else "Rekindle acts if the fault occurs again or continues, as an agent reports within ten minutes."
    )
    return (
        f"Rekindle saw {what} at {incident.spec.detected_at:%Y-%m-%d %H:%M:%S} UTC, and does not act on this "
        f"evidence. {acts}"
    )


def _then_end_quarantine(case: _Case, first: str) -> Iterator[str]:
    if case.node is not None and case.node.quarantine is not None:
        yield f"{first}, then end its quarantine: `{undone_by(case.name, case.node.quarantine)}`."
    else:
        yield f"{first}."


def _observed(case: _Case) -> Iterator[str]:
    yield to_act(case.said, case.around)
    yield from take_out(case.name, case.around)


def _paused(case: _Case) -> Iterator[str]:
    yield (
        "`rekindle resume` ends the pause. Rekindle then acts on the fault if it occurs again or continues."
    )
    yield from take_out(case.name, case.around)


def _stale(case: _Case) -> Iterator[str]:
    yield acted_on_again(case.incident, case.name)
    if case.node is not None and held(case.node.annotations, case.now) is not None:
        yield (
            f"Until the hold on {case.name} ends, Rekindle does not quarantine the node, even for new "
            f"evidence: `{release_node(case.name)}` ends the hold."
        )
    yield from take_out(case.name, case.around)


def _held(case: _Case) -> Iterator[str]:
    node = case.node
    if node is None:
        yield f"When Rekindle may act on {case.name} again, remove the hold from the node."
        return
    if node.labels.get(MANAGED) == "false":
        yield f"When Rekindle may act on {node.name} again: `kubectl label node {node.name} {MANAGED}-`."
    if held(node.annotations, case.now) is not None:
        yield f"When Rekindle may act on {node.name} again: `{release_node(node.name)}`."
    yield from take_out(case.name, case.around)


def _no_budget(case: _Case) -> Iterator[str]:
    yield (
        "`rekindle status` lists the quarantined nodes. Uncordon each node that is healthy again, or "
        "raise the limit under budgets in the controller's settings."
    )
    yield from take_out(case.name, case.around)


def _brake(case: _Case) -> Iterator[str]:
    yield (
        "Look for the common cause: a driver, a network, or the detection itself. The brake ends "
        "when its window has passed."
    )
    yield from take_out(case.name, case.around)


def _blind(case: _Case) -> Iterator[str]:
    yield f"See which sources the agent cannot read: `rekindle why node/{case.name}`."
    yield from take_out(case.name, case.around)


def _refused(case: _Case) -> Iterator[str]:
    yield (
        f"The API server refused to change {case.name}: {case.said}. Change the policy, webhook or "
        "quota so that the API server accepts this write of the ServiceAccount rekindle-controller. "
        "Rekindle tries "
        "the write again."
    )
    yield from take_out(case.name, case.around)


def _no_spare(case: _Case) -> Iterator[str]:
    yield (
        "`rekindle status` shows the state of each spare. Rekindle uses the next spare that "
        "becomes free. To add a spare, put the label rekindle.dev/spare=true on a free node of the "
        "same pool."
    )


def _not_repaired(case: _Case) -> Iterator[str]:
    yield from _then_end_quarantine(
        case, f"Rekindle does not repair {case.name} in this mode. Repair the node by hand"
    )


def _occupied(case: _Case) -> Iterator[str]:
    yield (
        "Wait until the pods on the node end, or move them: `kubectl get pods -A -o wide "
        f"--field-selector spec.nodeName={case.name}` lists them. After repair.wait_for_others_s "
        "Rekindle hands the node over to a person."
    )


def _keeps_failing(case: _Case) -> Iterator[str]:
    yield from _then_end_quarantine(case, f"Have the hardware of {case.name} examined and repaired")


def _silent(case: _Case) -> Iterator[str]:
    if case.node is not None and case.node.ready:
        yield f"{case.name} is Ready again. The repair continues."
        return
    yield from _then_end_quarantine(
        case, f"Restart {case.name} from its console (`kubectl describe node {case.name}`)"
    )


def _for_a_person(case: _Case) -> Iterator[str]:
    if case.said:
        yield case.said if case.said.endswith((".", "!")) else f"{case.said}."
    if "kubectl " not in case.said:
        yield from _then_end_quarantine(case, f"Repair {case.name}")


_BY_REASON: dict[Reason, Callable[[_Case], Iterator[str]]] = {
    Reason.OBSERVE_MODE: _observed,
    Reason.PAUSED: _paused,
    Reason.STALE_EVIDENCE: _stale,
    Reason.HELD: _held,
    Reason.BUDGET_EXHAUSTED: _no_budget,
    Reason.FLEET_BRAKE: _brake,
    Reason.BLIND: _blind,
    Reason.WRITE_REFUSED: _refused,
    Reason.NO_SPARE: _no_spare,
    Reason.NOT_IN_REPAIR_MODE: _not_repaired,
    Reason.PODS_OF_OTHERS: _occupied,
    Reason.KEEPS_FAILING: _keeps_failing,
    Reason.NODE_SILENT: _silent,
    Reason.NEEDS_PERSON: _for_a_person,
    Reason.REPAIR_FAILED: _for_a_person,
    Reason.VALIDATION_FAILED: _for_a_person,
}
