"""Checks that apply once the faults have stopped and the run is at rest: no gang waits beside places where it
could train, and no broken GPU is left where new work is placed. The checks compare with the truth, and not
with the controller's own reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

from chaos.apiserver.kinds import Object
from chaos.controllers.placement import GPU, devices_of_node, devices_of_pod
from chaos.invariants.budgets import over_limit
from chaos.simulate.world import Simulation
from chaos.simulated.jobs import Gang
from chaos.simulated.lines import Harm
from chaos.simulated.reading import (
    RECREATES,
    REPAIR_OVER,
    has_completed,
    has_consented,
    has_failed,
    has_own_volume,
    is_closed,
    is_cordoned,
    is_fenced,
    is_suspended,
    lives,
    node_of,
    repair_phase,
    takes_pods,
)
from chaos.simulated.truth import HardwareFault, Life
from detectors.client.kubeapi import ApiError
from recover.api import Act, IncidentPhase, Outcome
from recover.api.reasons import Reason
from recover.diagnose.goes_on import SETTLED
from recover.k8s.kinds import INCIDENTS, NODES, PODS
from recover.model.modes import Mode

__all__ = ["is_unseen", "job_of", "left_in_service", "silent_repairs", "wrongly_waiting"]

_NOTICED_S = 120.0
"""Maximum time from the last step of a gang until the controller notices its hang."""
_STEPS_THAT_PROVE = 2
"""Number of steps that prove training. One number in a log is no proof, so a hang after one step looks like a
log without steps."""


def wrongly_waiting(sim: Simulation, key: str) -> str:
    """Returns why a gang that does not train should train. Returns an empty string if a true cause prevents
    it."""
    gang = sim.gangs[key]
    job = job_of(sim, key)
    if job is None or has_completed(job) or not has_consented(job) or sim.settings.mode is Mode.OBSERVE:
        return ""
    places = free_places(sim, gang)
    free = sum(places.values())
    if free < gang.job.ranks or _stands_rightly(sim, key, job):
        return ""
    where = ", ".join(name for name, count in places.items() if count)
    last = next(reversed(sim.recoveries(key)), None)
    said = (
        f"{last.status.phase} {last.status.reason}: {last.status.message}" if last is not None else "nothing"
    )
    return (
        f"{key} does not run, although {free} places are free for its {gang.job.ranks} ranks ({where}). "
        f"The last Recovery: {said}"
    )


def _stands_rightly(sim: Simulation, key: str, job: Object) -> str:
    """Returns a cause, by the truth, for which neither people nor the controller may start this gang."""
    gang, last = sim.gangs[key], next(reversed(sim.recoveries(key)), None)
    reason = last.status.reason if last is not None else ""
    if sim.truth.paused_since is not None and not is_suspended(job):
        return "it has failed in a pause"
    if has_failed(job) and job["metadata"].get("annotations", {}).get(RECREATES) != "recreate":
        return "the framework's controller has marked the job as failed"
    if reason in (Reason.FOREIGN_OWNER, Reason.HELD) and key in sim.truth.decided_by_people:
        return "people decide when it runs"
    if key in sim.truth.decided_by_people and is_suspended(job) and last is None:
        return "people have suspended it"
    if reason == Reason.CRASH_LOOP and gang.failures >= sim.settings.budgets.attempts_per_cause_max:
        return "its program fails again and again"
    if reason == Reason.CRASH_LOOP and last is not None and last.status.last_step is None:
        return "nobody reads its steps, so nobody knows that it makes any between its failures"
    if reason in (Reason.CRASH_LOOP, Reason.NO_STEPS) and (gang.silent or gang.crashes_at_start):
        return "its program cannot train"
    if reason == Reason.KNOWN_ISSUE and gang.blames_program:
        return "only its owner can correct it"
    if _unfenced(sim, gang):
        return "what runs on a dead node may still write"
    life = sim.truth.lives.get(job["metadata"]["uid"])
    if last is None and life is not None and _failed_before(life, sim.truth.acting_since):
        return "it failed before the mode began"
    if is_unseen(sim, key):
        return "nobody sees that it hangs"
    return ""


def free_places(sim: Simulation, gang: Gang) -> dict[str, int]:
    """Returns the GPUs that this gang could use, by node: free GPUs and its own, on sound nodes that take
    pods."""
    own = {pod["metadata"]["uid"] for pod in sim.pods(gang.job.key)}
    used: Counter[str] = Counter()
    for pod in sim.cluster.store.objects(PODS):
        if lives(pod) and pod["metadata"]["uid"] not in own:
            used[node_of(pod)] += devices_of_pod(pod)[GPU]
    return {
        name: devices_of_node(node)[GPU] - used[name]
        for node in sim.cluster.store.objects(NODES)
        if (name := node["metadata"]["name"]) in sim.machines and takes_pods(node)
        if not sim.truth.harms(name, node["status"]["nodeInfo"]["bootID"], Harm.FATAL)
    }


def left_in_service(sim: Simulation) -> Iterator[str]:
    """Yields broken nodes that take new pods although no reason justifies that."""
    if sim.settings.mode is Mode.OBSERVE or sim.truth.paused_since is not None:
        return
    nodes = sim.cluster.store.objects(NODES)
    for node in nodes:
        name = node["metadata"]["name"]
        if name not in sim.agents or is_cordoned(node) or is_closed(node):
            continue
        released = sim.invariants.facts.endings.ended_at(node)
        found = sim.truth.harms(name, node["status"]["nodeInfo"]["bootID"], Harm.FATAL)
        behind = timedelta(seconds=min(0.0, sim.setup.clock_leads_s.get(name, 0.0)))
        # The node's own clock decides whether a fault is older than the mode.
        since = max(sim.truth.acting_since, sim.truth.began_at)
        faults = list(_shown_since(since - behind, found))
        if released is not None:
            faults = _not_answered(released, faults)
        if faults and not _is_left_for_a_reason(sim, node, nodes):
            yield f"{name} takes new pods, and has had {faults[0].line[:40]!r} since {faults[0].at:%H:%M:%S}"


def silent_repairs(sim: Simulation) -> Iterator[str]:
    """Yields repairs that are not over and state no reason for waiting."""
    for incident in sim.cluster.store.objects(INCIDENTS):
        phase = repair_phase(incident)
        if phase and phase not in REPAIR_OVER and not incident["status"]["repair"].get("reason"):
            yield f"the repair of {incident['spec']['node']} is {phase} and says nothing"


def _shown_since(since: datetime, faults: list[HardwareFault]) -> Iterator[HardwareFault]:
    """Yields the faults that are new since `since`. A line that came before, and repeats without a pause, is
    one fault with the earlier lines for a moment."""
    begun: dict[str, HardwareFault] = {}
    last: dict[str, HardwareFault] = {}
    for fault in sorted(faults, key=lambda fault: fault.at):
        before = last.get(fault.line)
        if before is None or fault.at - before.at > SETTLED:
            begun[fault.line] = fault
        last[fault.line] = fault
        if max(begun[fault.line].at, fault.at - SETTLED) >= since:
            yield fault


def _not_answered(released: datetime, faults: list[HardwareFault]) -> list[HardwareFault]:
    """Returns the faults that a release does not answer. A line that the person had seen may go on for a
    moment after the release."""
    seen = {fault.line for fault in faults if fault.at <= released}
    return [
        fault for fault in faults if fault.at > released + (SETTLED if fault.line in seen else timedelta(0))
    ]


def _is_left_for_a_reason(sim: Simulation, node: Object, nodes: list[Object]) -> bool:
    """Whether a limit, a brake or a hold that an Incident names prevents the quarantine. In each case an open
    Incident must name the node."""
    name = node["metadata"]["name"]
    opened = [i for i in sim.incidents() if i.status.phase is IncidentPhase.OPEN]
    if not any(name in (i.spec.node, i.status.blamed_node, *i.status.members) for i in opened):
        return False
    out = [n for n in nodes if is_closed(n)]
    limits, recent = sim.settings.budgets, sim.invariants.facts.taken_out_within_the_hour(sim.clock.now())
    if any(over_limit(node, nodes, [*out, node], limits)) or recent >= limits.quarantines_per_hour_max:
        return True
    records = [
        record
        for incident in sim.incidents()
        for record in incident.status.actions
        if (record.action, record.target, record.outcome) == (Act.QUARANTINE_NODE, name, Outcome.REFUSED)
    ]
    if any(name in incident.status.members for incident in opened):
        return True
    return any(record.reason in (Reason.FLEET_BRAKE, Reason.HELD) for record in records)


def job_of(sim: Simulation, key: str) -> Object | None:
    """Returns None if the job is gone."""
    about = sim.gangs[key].job
    try:
        return sim.cluster.store.read(sim.resource(key), about.name, about.namespace).body
    except ApiError:
        return None


def _unfenced(sim: Simulation, gang: Gang) -> bool:
    """Whether a pod of the gang with its own volume is on a machine that is off, and nothing proves that the
    machine is off."""
    by_name = {node["metadata"]["name"]: node for node in sim.cluster.store.objects(NODES)}
    left = [pod for pod in sim.pods(gang.job.key) if node_of(pod) and node_of(pod) not in sim.machines]
    return any(
        has_own_volume(pod) and not ((node := by_name.get(node_of(pod))) and is_fenced(node, pod))
        for pod in left
    )


def _failed_before(life: Life, at: datetime) -> bool:
    """Whether the gang's last step is older than `at` plus the time in which a hang is noticed."""
    return life.stepped_at is not None and life.stepped_at < at + timedelta(seconds=_NOTICED_S)


def is_unseen(sim: Simulation, key: str) -> bool:
    """Whether the controller cannot know that the gang does not train. The gang hangs, or lost a rank and got
    another one while no controller ran, and no agent reads the steps of all its ranks; or the gang hangs
    before an agent has read two steps."""
    pods = sim.pods(key)
    hangs = sim.gangs[key].training.hanging & {pod["metadata"]["uid"] for pod in pods}
    created = {datetime.fromisoformat(pod["metadata"]["creationTimestamp"]) for pod in pods}
    is_replaced = len(created) > 1 and max(created) <= sim.controller_began
    if hangs and sim.gangs[key].step < _STEPS_THAT_PROVE:
        return True
    return bool(hangs or is_replaced) and not all(node_of(pod) in sim.agents for pod in pods)
