"""Decides whether Rekindle may act on a gang or a node. Pure: reads labels and annotations of the job and its
namespace, the modes, and holds.

The job's value overrides that of its namespace. If label and annotation of one object disagree, the more
careful value counts. An unknown value counts as `observe`, since somebody meant to state something.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from detectors.text.printing import one_line
from detectors.wire.contract import key
from recover.model import Gang, NamespaceView, Node, World
from recover.model.modes import InForce, Mode, Standing, lowest

__all__ = [
    "AUTO_RECOVERY",
    "CHECKPOINT_ON_SIGTERM",
    "HOLD",
    "HOLD_REASON",
    "HOLD_UNTIL",
    "MANAGED",
    "MODE",
    "ON_TERMINAL",
    "WORDS",
    "Hold",
    "OptIn",
    "held",
    "hold_of_gang",
    "hold_of_node",
    "in_force_for",
    "in_force_on",
    "may_recreate",
    "may_write",
    "opt_in",
    "saves_on_sigterm",
    "within_mode",
    "word_of",
]

AUTO_RECOVERY = key("auto-recovery")
MODE = key("mode")
ON_TERMINAL = key("on-terminal")
CHECKPOINT_ON_SIGTERM = key("checkpoint-on-sigterm")
MANAGED = key("managed")
HOLD, HOLD_UNTIL, HOLD_REASON = key("hold"), key("hold-until"), key("hold-reason")
WORDS = frozenset({AUTO_RECOVERY, HOLD, HOLD_UNTIL, HOLD_REASON})
"""The labels and annotations of a job that this module reads, whatever the job's framework."""


class OptIn(StrEnum):
    ENABLED = "enabled"
    OBSERVE = "observe"
    DISABLED = "disabled"


_CAREFUL_FIRST = (OptIn.DISABLED, OptIn.OBSERVE, OptIn.ENABLED)


def opt_in(gang: Gang, namespace: NamespaceView | None) -> OptIn:
    """Returns the consent of the job's owner. Without any value, consent is disabled."""
    own = _word(gang.labels, gang.annotations)
    if own is not None:
        return own
    if namespace is not None:
        return _word(namespace.labels, namespace.annotations) or OptIn.DISABLED
    return OptIn.DISABLED


def _word(labels: Mapping[str, str], annotations: Mapping[str, str]) -> OptIn | None:
    said = {_parse(source[AUTO_RECOVERY]) for source in (labels, annotations) if AUTO_RECOVERY in source}
    return next((word for word in _CAREFUL_FIRST if word in said), None)


def _parse(value: str) -> OptIn:
    try:
        return OptIn(value.strip().lower())
    except ValueError:
        return OptIn.OBSERVE


def may_recreate(annotations: Mapping[str, str]) -> bool:
    """Whether the job may be deleted and created again if its framework would not start it again. Only the
    job's own annotation allows it: its owners must be prepared for a new uid."""
    return annotations.get(ON_TERMINAL, "").strip().lower() == "recreate"


def saves_on_sigterm(annotations: Mapping[str, str]) -> bool:
    """Whether the training saves a checkpoint when it receives SIGTERM, so that its stop requests one. The
    job states this by an annotation, since Rekindle cannot see it."""
    return annotations.get(CHECKPOINT_ON_SIGTERM, "").strip().lower() == "true"


def within_mode(mode: Mode, namespace: NamespaceView | None) -> Mode:
    """Returns the cluster's mode, lowered by the namespace. A namespace never raises the mode."""
    said = word_of(namespace) if namespace is not None else None
    return mode if said is None else min(mode, said)


def word_of(namespace: NamespaceView) -> Mode | None:
    """Returns the highest mode that the namespace's annotation allows. A value that is no mode lowers
    nothing; Rekindle reports it."""
    return next((mode for mode in Mode if mode == namespace.annotations.get(MODE)), None)


def in_force_on(world: World, node: Node, *, heeds_pause: bool = True) -> InForce:
    """Returns the cluster's mode, lowered by the node's pool and by a pause."""
    return _lowest(world, _pools(world, [node]), heeds_pause)


def in_force_for(world: World, gang: Gang, *, heeds_pause: bool = True) -> InForce:
    """Returns the cluster's mode, lowered by the gang's namespace and by the pool of each node with a rank of
    the gang: if a node must not be touched yet, the gang on it is not stopped either. A pause lowers the
    mode, too; with `heeds_pause=False` it does not, for the steps that a stopped gang needs to run again."""
    lowering = list(_namespace(world, gang.ref.namespace))
    if world.modes.pools:
        names = sorted({pod.node for pod in world.pods(gang.ref.uid)} & world.nodes.keys())
        lowering += _pools(world, [world.nodes[name] for name in names])
    return _lowest(world, lowering, heeds_pause)


def _lowest(world: World, lowering: Iterable[tuple[str, Standing]], heeds_pause: bool) -> InForce:
    modes = world.modes
    if not heeds_pause:
        return lowest(modes.cluster, lowering)
    return lowest(modes.cluster, lowering, modes.paused, modes.resumed)


def _pools(world: World, nodes: Iterable[Node]) -> Iterator[tuple[str, Standing]]:
    pools = {node.labels.get(world.pool_label) for node in nodes} & world.modes.pools.keys()
    for pool in sorted(pools, key=str):
        yield f"pool {pool}", world.modes.pools[str(pool)]


def _namespace(world: World, name: str) -> Iterator[tuple[str, Standing]]:
    """Yields what lowers the mode in the namespace. The annotation counts from the moment when it appears;
    its removal counts from the time that the modes record."""
    standing, view = world.modes.namespaces.get(name), world.namespaces.get(name)
    if standing is not None:
        yield f"namespace {name}", standing
    said = word_of(view) if view is not None else None
    if said is not None:
        yield f"namespace {name}", Standing(said)


class Hold(msgspec.Struct, frozen=True):
    """A hold that a person has put on an object."""

    until: datetime | None
    reason: str
    annotation: str
    """Name of the annotation that begins the hold."""

    def of(self, what: str) -> str:
        """Returns the hold as a sentence; `what` is the object's name."""
        end = f" until {self.until:%Y-%m-%d %H:%M} UTC" if self.until else ""
        return f"a person put a hold on {what}{end}" + (f": {self.reason}" if self.reason else "")


def hold_of_node(node: Node, now: datetime) -> str:
    """Returns why nobody may touch the node, as a sentence, or an empty string if nothing forbids it."""
    if node.labels.get(MANAGED) == "false":
        return f"{node.name} has the label {MANAGED}=false"
    hold = held(node.annotations, now)
    return hold.of(node.name) if hold is not None else ""


def hold_of_gang(gang: Gang, namespace: NamespaceView | None, now: datetime) -> str:
    """Returns why nobody may touch the gang, as a sentence, or an empty string. A hold on its namespace holds
    the gang, too."""
    for what, notes in (
        (str(gang.ref), gang.annotations),
        (f"namespace {gang.ref.namespace}", namespace.annotations if namespace else {}),
    ):
        if (hold := held(notes, now)) is not None:
            return hold.of(what)
    return ""


def held(annotations: Mapping[str, str], now: datetime) -> Hold | None:
    """Returns the hold in force on an object with these annotations, or None.

    `hold` with any value but `false` is a hold; `hold-until` (RFC 3339) ends it. `hold-until` is a hold
    without `hold`, too. A time that cannot be read, or that has no zone, does not end the hold: holding
    longer is the safe mistake.
    """
    says_hold = annotations.get(HOLD, "false").strip().lower() != "false"
    if not says_hold and HOLD_UNTIL not in annotations:
        return None
    until: datetime | None = None
    if HOLD_UNTIL in annotations:
        try:
            until = datetime.fromisoformat(annotations[HOLD_UNTIL])
        except ValueError:
            until = None
        if until is not None and until.tzinfo is None:
            until = None
        if until is not None and until <= now:
            return None
    return Hold(until, one_line(annotations.get(HOLD_REASON, "")), HOLD if says_hold else HOLD_UNTIL)


def may_write(gang: Gang, world: World, now: datetime) -> bool:
    """Whether Rekindle may write to the job. A job is left as it is if it has ended, if its owner has
    withdrawn consent, if a person has set a hold, or in mode observe."""
    namespace = world.namespaces.get(gang.ref.namespace)
    is_ours = opt_in(gang, namespace) is OptIn.ENABLED and in_force_for(world, gang).mode is not Mode.OBSERVE
    is_over = gang.deleting or gang.terminal is not None
    return is_ours and not is_over and not hold_of_gang(gang, namespace, now)
