"""Recognises the nodes, reports and gangs that need no decision until an object from which they are read
changes. Pure.

Most nodes are ready and have no finding, and most gangs train. The controller leaves these nodes and gangs
out of each reconcile (World.subjects), and examines them here after each change (runtime/subject_index.py):

| subject | is examined after a change of |
|---|---|
| node | the Node |
| report | the NodeHealth, or its Node |
| gang | the job, its parts, its pods, its recoveries; its namespace; |
| | Nodes, NodeHealths and agents where its pods are, and whether such a Node is proven to be gone |
| settings for an agent | the Node, its NodeHealth, pods there; labels and annotations of their jobs, their |
| | recoveries, and their namespaces; the log lines of people's recipes |
| coverage of an agent | the Node, its NodeHealth, its agent |
| name of a node that is not in the cache | the Node, pods that name it (subject_index.py) |

An object that becomes unreadable, or readable again, counts as changed. An object that was not examined yet
counts as unusual. Time alone never makes an ordinary object unusual. Time can make an unusual gang ordinary,
if agents are not pods: while the agent of one of its ranks is silent for too long, Rekindle does not wait for
the first step of the gang. The next report of that agent is a change, and the gang is examined again.
"""

from __future__ import annotations

from datetime import UTC, datetime

from detectors.wire.contract import NodeHealth
from recover.diagnose.coverage import unread_sources
from recover.diagnose.gang_faults import gang_state
from recover.diagnose.whole import runs
from recover.model import Gang, Node, World
from recover.policy.settings import Timing
from recover.triage.quarantine import is_tainted
from recover.triage.spare_node import spare_of

__all__ = ["is_ordinary_gang", "is_ordinary_node", "is_ordinary_report", "is_seen"]

_ANY_TIME = datetime.max.replace(tzinfo=UTC)
"""A time that changes no answer: whether an agent that is a pod reports does not depend on the time."""


def is_ordinary_node(node: Node) -> bool:
    """Whether the node is ready, no other controller has marked it, Rekindle has written nothing on it, and
    it is no spare. The taint is examined as well, because people may remove only the note of a quarantine, or
    write only the taint."""
    is_bare = node.quarantine is None and node.told is None and not node.signals and not is_tainted(node)
    return node.ready and is_bare and spare_of(node) is None


def is_ordinary_report(node: Node | None, health: NodeHealth) -> bool:
    """Whether the report has no finding and no line of a known issue, and no other controller has marked the
    node."""
    if health.status.findings or (node is not None and node.signals):
        return False
    return not any(pod.known_lines for pod in health.status.pods)


def is_ordinary_gang(world: World, gang: Gang, timing: Timing, now: datetime) -> bool:
    """Whether the job has no mark of a recovery and no active recovery, and its ranks train or the job is not
    meant to run."""
    if gang.mark is not None or world.active_recovery(gang.ref.uid) is not None:
        return False
    return not runs(world, gang) or gang_state(world, gang, timing, now).is_ordinary


def is_seen(world: World, node: Node) -> bool:
    """Whether an agent reports from the node and reads all of its sources. If agents are not pods, the answer
    depends on the time, so such nodes are never ordinary."""
    if not node.is_accelerated:
        return True
    return world.agents_are_pods and not any(unread_sources(world, node, _ANY_TIME))
