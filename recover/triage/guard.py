"""Decides whether Rekindle may quarantine a node, and whether it may stop and start a gang. Each refusal has
a reason. Pure; repair/waiting.py decides about resets and reboots, and reads the brakes here.

A quarantine must be within the budgets of the cluster, the node's pool, its domain, and the last hour. For
the cluster a number and a percentage are set, and the smaller limit counts; for a pool only a percentage, for
a domain and for an hour only a number. A percentage always allows one node. The budgets are derived from API
objects at each reconcile, so a restart of the controller forgets nothing. A Guard is a value: nodes that a
plan takes out of service count in the Guard that `after` returns, and the rest of the plan uses that Guard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

import msgspec

from recover.api import Phase, Recovery
from recover.api.marks import UNHEALTHY
from recover.api.reasons import Reason
from recover.diagnose.diagnosis import AffectedGang, Diagnosis
from recover.model import Gang, Node, World
from recover.model.left_stopped import is_left_stopped
from recover.model.left_stopped import words as left_stopped_words
from recover.model.modes import InForce, Mode
from recover.policy.consent import (
    OptIn,
    hold_of_gang,
    hold_of_node,
    in_force_for,
    in_force_on,
    may_recreate,
    opt_in,
)
from recover.policy.faults import QuarantineLevel
from recover.policy.settings import Budgets, Settings
from recover.triage.attempts import annotated, began
from recover.triage.better_places import BetterPlaces
from recover.triage.brake import Brake, in_force
from recover.triage.reserved import being_restarted

__all__ = [
    "Allowed",
    "Denied",
    "Guard",
    "Verdict",
    "is_out_of_service",
    "may_touch",
]


_ZERO_UUID = "00000000-0000-0000-0000-000000000000"
_NOT_FOUGHT = timedelta(days=1)
"""If somebody undoes a stop or start of a recovery, Rekindle does not stop the gang for this time. Perhaps
another controller did this: Rekindle would fight it at each fault. The time ends, because perhaps a person
did it, only once."""


class Allowed(msgspec.Struct, frozen=True):
    pass


class Denied(msgspec.Struct, frozen=True):
    """A refusal with its reason. `would` is set if only the mode forbids the action: the action is then
    described, not done."""

    reason: Reason
    message: str
    would: bool = False


Verdict = Allowed | Denied


class Guard(msgspec.Struct, frozen=True):
    """The limits that budgets, brakes, modes and people set, counted from one World."""

    world: World
    limits: Budgets
    window_s: float
    """Length of the window in which the recoveries of a gang count."""
    now: datetime
    out: frozenset[str]
    """Accelerator nodes that are out of service, and nodes whose quarantine is under way."""
    out_of: Mapping[tuple[str, str], int]
    """Number of the accelerator nodes in `out`, for each label and its value."""
    recent: frozenset[tuple[str, str]]
    """Incident and node of each quarantine of the last hour."""
    brakes: tuple[Brake, ...]
    restarted: frozenset[str]
    """Uids of the gangs that are being restarted, and have no place until they are started."""
    places: BetterPlaces

    @classmethod
    def of(cls, world: World, diagnoses: Iterable[Diagnosis], settings: Settings, now: datetime) -> Guard:
        nodes = world.subjects.nodes.values()
        quarantined = {n.name for n in nodes if n.is_accelerated and is_out_of_service(n)}
        under_way = {("", name) for name in set(world.being_quarantined) - quarantined}
        return cls(
            world=world,
            limits=settings.budgets,
            window_s=settings.timing.recovery_window_s,
            now=now,
            out=frozenset(quarantined | set(world.being_quarantined)),
            out_of=Counter(
                group
                for name in quarantined | set(world.being_quarantined)
                for group in _groups(world, name, settings.budgets)
            ),
            recent=frozenset(_recent_quarantines(world, now) | under_way),
            brakes=tuple(in_force(world, diagnoses, settings.budgets, now)),
            restarted=frozenset(being_restarted(world) | set(world.being_started)),
            places=BetterPlaces(world, now),
        )

    def after(self, node: str, incident: str) -> Guard:
        """Returns the Guard that applies once the node has left service for the Incident."""
        out_of = self.out_of
        if node not in self.out:
            out_of = Counter(out_of)
            out_of.update(_groups(self.world, node, self.limits))
        return msgspec.structs.replace(
            self, out=self.out | {node}, out_of=out_of, recent=self.recent | {(incident, node)}
        )

    def after_restart(self, gang: Gang) -> Guard:
        """Returns the Guard that applies once the restart of the gang is decided."""
        return msgspec.structs.replace(self, restarted=self.restarted | {gang.ref.uid})

    # --- nodes ---------------------------------------------------------------------------------------------

    def may_quarantine(self, node: Node, incident: str, seen_at: datetime, level: QuarantineLevel) -> Verdict:
        """Decides whether Rekindle may quarantine the node. Budgets count nodes that leave service: a node
        that only takes fewer pods (PreferNoSchedule) uses no budget."""
        mode = in_force_on(self.world, node)
        if seen_at < mode.would_act_since:
            return _stale(seen_at, mode)
        if mode.mode is Mode.OBSERVE:
            return _only_told(mode, f"would quarantine {node.name}")
        if why := hold_of_node(node, self.now):
            return Denied(Reason.HELD, why)
        if self.brakes:
            return Denied(Reason.FLEET_BRAKE, self.brakes[0].words)
        if level is not QuarantineLevel.CORDON:
            return Allowed()
        return self.may_cordon_degraded(node, incident)

    def may_cordon_degraded(self, node: Node, incident: str) -> Verdict:
        """Decides by the budgets alone. A repair asks this before it cordons a degraded node, which takes
        pods until then."""
        exhausted = self._exhausted(node, incident)
        return Denied(Reason.BUDGET_EXHAUSTED, exhausted) if exhausted else Allowed()

    def _exhausted(self, node: Node, incident: str) -> str:
        """Returns the first limit that another quarantine would break, in words; empty if there is none. A
        node that is in quarantine already and becomes worse counts once. A node counts once, too, if its
        Incident says that the node was taken out of service but the write to the node was never made."""
        limits, total, others = self.limits, self.world.accelerated(), self.out - {node.name}
        cluster = min(limits.quarantined_nodes_max, _share(total, limits.quarantined_percent_max))
        if len(others) + 1 > cluster:
            return f"{len(others)} of {total} nodes are quarantined; the limit is {cluster}"
        for what, label, percent in (
            ("pool", limits.pool_label, limits.pool_percent_max),
            ("domain", limits.domain_label, None),
        ):
            value = node.labels.get(label)
            if value is None or _names_no_fabric(value):
                continue
            peers = self.world.accelerated(label, value)
            limit = limits.domain_nodes_max if percent is None else _share(peers, percent)
            out = self.out_of.get((label, value), 0) - (node.is_accelerated and node.name in self.out)
            if out + 1 > limit:
                return f"{out} of {peers} nodes of {what} {value} are quarantined; the limit is {limit}"
        recent = len(self.recent - {(incident, node.name)})
        if recent + 1 > limits.quarantines_per_hour_max:
            many = f"{recent} quarantine{'' if recent == 1 else 's'}"
            return f"{many} in the last hour; the limit is {limits.quarantines_per_hour_max}"
        return ""

    # --- gangs ---------------------------------------------------------------------------------------------

    def may_restart(self, affected: AffectedGang, seen_at: datetime, off: str) -> Verdict:
        """Decides whether Rekindle may stop the gang now, because of a fault that was seen at `seen_at`, to
        move the gang off the node `off`. A gang's own failure counts as new, even if the fault that caused it
        is older than the mode in force."""
        gang, seen_at = affected.gang, max(seen_at, affected.failed_at or seen_at)
        touch = may_touch(self.world, gang, self.now, heeds_pause=not _is_down_by_us(self.world, affected))
        if isinstance(touch, Denied) and touch.reason is Reason.NOT_OPTED_IN:
            return touch
        # A gang that has failed before or during a pause, and is still down, is restarted after the pause.
        mode = in_force_for(self.world, gang, heeds_pause=not affected.dead)
        if seen_at < mode.would_act_since and not _is_younger(affected.born_at, mode):
            return _stale(seen_at, mode)
        if isinstance(touch, Denied):
            return touch
        if gang.suspended and gang.terminal is None and self.world.active_recovery(gang.ref.uid) is None:
            return Denied(Reason.HELD, _why_suspended(gang))
        if not affected.dead and self.brakes:
            return Denied(Reason.FLEET_BRAKE, self.brakes[0].words)
        if not affected.dead and affected.may_stay:
            free = self.places.room(gang, off, self.restarted)
            if not free.fits:
                where = (
                    f"{gang.ref} continues to train on its nodes, because no better place is free. Away "
                    f"from {off}"
                )
                return Denied(Reason.NO_CAPACITY, f"{where}, {free.words}")
        if not affected.dead and gang.done_ranks and not may_recreate(gang.annotations):
            ended = (
                f"Rekindle could not start {gang.ref} again, because ranks {gang.done_ranks} have completed"
            )
            return Denied(Reason.RANKS_ENDED, f"{ended}. The other ranks continue")
        return self._within_attempts(gang)

    def _within_attempts(self, gang: Gang) -> Verdict:
        history = self.world.history(gang.ref.uid)
        begins = self.now - timedelta(seconds=self.window_s)
        recent = [r for r in history if began(r) > begins]
        limit = annotated(gang.annotations, "max-recoveries", self.limits.recoveries_per_gang_max)
        if len(recent) >= limit:
            return Denied(
                Reason.BUDGET_EXHAUSTED,
                f"{gang.ref} had {len(recent)} recoveries in {self.window_s / 3600:g} h, and the "
                f"limit is {limit}",
            )
        return Allowed()


def _why_suspended(gang: Gang) -> str:
    if gang.mark is not None and is_left_stopped(gang):
        return left_stopped_words(gang, gang.mark)
    return f"{gang.suspend_writer or 'somebody'} has suspended {gang.ref}"


def is_out_of_service(node: Node) -> bool:
    """Whether our quarantine keeps pods off the node."""
    note = node.quarantine
    if note is None:
        return False
    return note.cordoned or any((t.key, t.effect) == (UNHEALTHY, "NoSchedule") for t in node.taints)


def _is_down_by_us(world: World, affected: AffectedGang) -> bool:
    """Whether a recovery has stopped the gang and still runs, and the gang has failed meanwhile: a pause must
    not leave the gang down."""
    running = world.active_recovery(affected.gang.ref.uid)
    return affected.dead and running is not None and running.status.phase is not Phase.PLANNED


def _is_younger(born_at: datetime | None, mode: InForce) -> bool:
    """Whether the failure is younger than the mode. A pod that was created since the mode was enabled has
    failed since then, whatever its node's clock says. Kubernetes writes whole seconds."""
    return born_at is not None and born_at >= mode.would_act_since.replace(microsecond=0)


def may_touch(world: World, gang: Gang, now: datetime, *, heeds_pause: bool = True) -> Verdict:
    """Checks consent, mode, holds and other owners. The check is made when a recovery is opened, and again
    before each stop."""
    namespace = world.namespaces.get(gang.ref.namespace)
    consent = opt_in(gang, namespace)
    if consent is OptIn.DISABLED:
        return Denied(Reason.NOT_OPTED_IN, f"automatic recovery is not enabled for {gang.ref}")
    mode = in_force_for(world, gang, heeds_pause=heeds_pause)
    if consent is OptIn.OBSERVE:
        because = mode.because if mode.mode is Mode.OBSERVE else ""
        return Denied(Reason.OBSERVE_MODE, f"would restart {gang.ref}{because}", would=True)
    if mode.mode is Mode.OBSERVE:
        return _only_told(mode, f"would restart {gang.ref}")
    if why := hold_of_gang(gang, namespace, now):
        return Denied(Reason.HELD, why)
    if gang.unsupported:
        return Denied(Reason.UNSUPPORTED, f"{gang.ref}: {gang.unsupported}")
    if gang.foreign_owner:
        return Denied(Reason.FOREIGN_OWNER, f"{gang.foreign_owner} decides when {gang.ref} runs")
    fought = _fought(world, gang)
    if fought is not None and now < (until := fought.status.phases[-1].at + _NOT_FOUGHT):
        return Denied(
            Reason.FOREIGN_OWNER,
            f"somebody undid Recovery {fought.metadata.name}: {fought.status.message}. Rekindle decides "
            f"about the job again from {until:%Y-%m-%d %H:%M} UTC on, or as soon as you delete that Recovery",
        )
    terminal = gang.terminal
    # The time of a recovery counts towards the job's deadline, and no owner wants the job to end because of
    # that.
    is_recovering = world.active_recovery(gang.ref.uid) is not None
    is_late = not is_recovering and world.has_reached_deadline(gang)
    if is_late or (terminal is not None and terminal.succeeded):
        how = "has completed" if not is_late else "has reached its own deadline (activeDeadlineSeconds)"
        return Denied(Reason.TERMINAL_JOB, f"{gang.ref} {how}")
    if terminal is not None and not may_recreate(gang.annotations):
        return Denied(
            Reason.TERMINAL_JOB,
            "the framework's controller has marked the job as failed, and this is final "
            f"({terminal.reason or 'it gave no reason'})",
        )
    return Allowed()


def _fought(world: World, gang: Gang) -> Recovery | None:
    """Returns the gang's last recovery, if somebody undid its stop or start."""
    history = world.history(gang.ref.uid)
    if not history:
        return None
    last = history[-1].status
    return history[-1] if (last.phase, last.reason) == (Phase.ESCALATED, Reason.FOREIGN_OWNER) else None


def _groups(world: World, name: str, limits: Budgets) -> Iterator[tuple[str, str]]:
    """Yields the pool and the domain of an accelerator node."""
    node = world.nodes.get(name)
    if node is not None and node.is_accelerated:
        for label in {limits.pool_label, limits.domain_label}:
            value = node.labels.get(label)
            if value is not None and not _names_no_fabric(value):
                yield label, value


def _names_no_fabric(value: str) -> bool:
    """Whether the value of the domain's label is the one of GPUs without a fabric of their own: their driver
    reports a cluster id of zeros, so all such nodes of a Kubernetes cluster would be one domain."""
    return value.startswith(_ZERO_UUID)


def _share(total: int, percent: float) -> int:
    return max(1, int(total * percent / 100))


def _only_told(mode: InForce, would: str) -> Denied:
    reason = Reason.PAUSED if mode.paused is not None else Reason.OBSERVE_MODE
    return Denied(reason, f"{would}{mode.because}", would=True)


def _stale(seen_at: datetime, mode: InForce) -> Denied:
    """Refuses to act on what was seen before the mode was raised, in the cluster, a node pool or a namespace,
    or before a pause ended."""
    since, name = mode.would_act_since, Mode.RECOVER if mode.paused else min(mode.mode, Mode.RECOVER)
    began = f"mode {name} was enabled at {since:%Y-%m-%d %H:%M:%S} UTC"
    if mode.resumed is not None and since == mode.resumed:
        began = f"the pause ended at {since:%Y-%m-%d %H:%M:%S} UTC"
    return Denied(
        Reason.STALE_EVIDENCE, f"Rekindle saw the fault at {seen_at:%Y-%m-%d %H:%M:%S} UTC, before {began}"
    )


def _recent_quarantines(world: World, now: datetime) -> set[tuple[str, str]]:
    """Returns the Incident and node of each recent quarantine, from the Incidents, and from the annotations
    of nodes whose Incident is not written yet."""
    hour_ago = now - timedelta(hours=1)
    done = {
        (name, incident.spec.node)
        for name, incident in world.incidents.items()
        if incident.status.cordoned_at is not None and incident.status.cordoned_at > hour_ago
    }
    marked = {
        (node.quarantine.incident, node.name)
        for node in world.subjects.nodes.values()
        if node.quarantine is not None and is_out_of_service(node) and node.quarantine.at > hour_ago
    }
    return done | marked
