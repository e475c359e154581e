"""The nodes, reports and gangs that no decision is about, until one of the objects changes that they are read
from. Pure.

Most nodes are ready and without a finding, and most gangs train. The controller leaves them out of what it
goes through (World.subjects), and asks here again after each change (runtime/few.py):

| who | is asked again after a change of |
|---|---|
| node | the Node |
| report | the NodeHealth, or its Node |
| gang | the job, its parts, its pods, its recoveries; its namespace; |
| | Nodes, NodeHealths and agents where its pods are, and whether such a Node is proven to be gone |
| what an agent is told | the Node, its NodeHealth, pods there; labels and annotations of their jobs, and |
| | their namespaces; the log lines of people's recipes |
| what an agent sees | the Node, its NodeHealth, its agent |

That an object becomes unreadable, or is no longer, is a change of the object. Time alone makes nobody
unusual: only where agents are no pods, an agent that falls silent makes a gang ordinary that was not, and
what it writes next is a change. Whoever is not asked yet counts as out of the ordinary.
"""

from __future__ import annotations

from datetime import UTC, datetime

from detectors.wire.contract import NodeHealth
from recover.diagnose.coverage import unread_sources
from recover.diagnose.gang_faults import gang_state
from recover.diagnose.whole import runs
from recover.model import Gang, Node, World
from recover.policy.settings import Timing
from recover.triage.spare_node import spare_of

__all__ = ["is_ordinary_gang", "is_ordinary_node", "is_ordinary_report", "is_seen"]

_ANY_TIME = datetime.max.replace(tzinfo=UTC)
"""Whether an agent that is a pod reports does not depend on the time."""


def is_ordinary_node(node: Node) -> bool:
    """It is ready, nobody says anything of it, we have written nothing on it, and it is no spare."""
    is_bare = node.quarantine is None and node.told is None and not node.signals
    return node.ready and is_bare and spare_of(node) is None


def is_ordinary_report(node: Node | None, health: NodeHealth) -> bool:
    """It holds no finding, and no line of a known issue."""
    if health.status.findings or (node is not None and node.signals):
        return False
    return not any(pod.known_lines for pod in health.status.pods)


def is_ordinary_gang(world: World, gang: Gang, timing: Timing, now: datetime) -> bool:
    """No recovery has touched it, and its ranks train, or it is not to run at all."""
    if gang.mark is not None or world.active_recovery(gang.ref.uid) is not None:
        return False
    return not runs(world, gang) or gang_state(world, gang, timing, now).is_ordinary


def is_seen(world: World, node: Node) -> bool:
    """An agent reports from there, and reads all of its sources. Whether one reports that is no pod depends
    on the time, so such nodes are never ordinary."""
    if not node.is_accelerated:
        return True
    return world.agents_are_pods and not any(unread_sources(world, node, _ANY_TIME))
