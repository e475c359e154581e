"""Mutants that forget one way into the subjects of reconciles (recover/runtime/subject_index.py): each leaves
out a node or a gang that a decision would be about."""

from __future__ import annotations

from tests.mutants.model import Mutant, of

__all__ = ["WAYS"]

_CHANGES = of(
    "recover/runtime/changes.py",
    (
        "way: a report of a node",
        "        self.subject_index.report_changed(name, self.nodes.get(name), new)\n",
        "",
        "no finding of an agent is acted on",
    ),
    (
        "way: a report, to the gangs there",
        "        if _parts_about_pods(old) != _parts_about_pods(new) or not self._agents_are_pods:\n"
        "            self._touch_gangs_on(name)\n",
        "",
        "a hang is not seen",
    ),
    (
        "way: a node",
        "        self.subject_index.node_changed(name, old, new, self.health.get(name))\n",
        "",
        "a silent node stays in service",
    ),
    (
        "way: a node, renewed",
        "            self.subject_index.node_renewed(new)\n            return\n",
        "            return\n",
        "each write to the node fails for its old version",
    ),
    (
        "way: a node, to the gangs there",
        "        if old is None or new is None or old.ready is not new.ready:\n"
        "            self._touch_gangs_on(name)\n",
        "",
        "a gang with a rank on a silent node waits for ever",
    ),
    (
        "way: a node, to what it offers",
        "        self.node_groups.touch(name)\n",
        "",
        "a gang is started on nodes that are out of service",
    ),
    (
        "way: a pod, to what its node offers",
        "                self.node_groups.touch(pod.node)\n",
        "                pass\n",
        "a gang is started on a full cluster",
    ),
    (
        "way: a node that comes or goes, as an uncached node",
        "        self._note_whether_uncached(name)\n        is_ordinary = ",
        "        is_ordinary = ",
        "nobody asks whether a Node that is missing is gone",
    ),
    (
        "way: a pod, of an uncached node",
        "        for node in {pod.node for pod in (old, new) if pod is not None}:\n"
        "            self._note_whether_uncached(node)\n",
        "",
        "nobody asks whether a Node that is missing is gone",
    ),
    (
        "way: a node that is proven to be gone",
        "            self._touch_gangs_on(name)\n            self.wake.at_once()\n        return True\n",
        "            self.wake.at_once()\n        return True\n",
        "a gang with a rank on a deleted node waits for ever",
    ),
    (
        "way: recipes of people",
        "            for name, node in self.nodes.items():\n"
        "                self.subject_index.spec_may_change(name, node)\n",
        "            pass\n",
        "agents do not look for the lines of a new recipe",
    ),
    (
        "way: a job",
        "        for uid in {gang.part_of or gang.ref.uid for gang in (old, new) if gang is not None}:\n"
        "            self._touch_gang(uid)\n",
        "",
        "a job that opts in is not protected",
    ),
    (
        "way: a job, to its agents",
        "            for uid in {gang.ref.uid for gang in (old, new) if gang is not None}:\n"
        "                self._tell_agents_of(uid)\n",
        "            pass\n",
        "agents do not read the steps that a job names",
    ),
    (
        "way: a namespace",
        "                self._touch_gang(uid)\n                self._tell_agents_of(uid)\n",
        "                self._tell_agents_of(uid)\n",
        "a namespace that opts in is not protected",
    ),
    (
        "way: a namespace, to its agents",
        "                self._touch_gang(uid)\n                self._tell_agents_of(uid)\n",
        "                self._touch_gang(uid)\n",
        "agents leave out the pods of a namespace that opts in",
    ),
    (
        "way: a recovery",
        "            self._touch_gang(uid)\n            if old is None or new is None or old.spec.pace",
        "            if old is None or new is None or old.spec.pace",
        "a failure that a recovery has left behind is not judged",
    ),
    (
        "way: a recovery, to the agents of its gang",
        "            if old is None or new is None or old.spec.pace != new.spec.pace:\n"
        "                self._tell_agents_of(uid)\n",
        "",
        "agents do not learn how long the gang may be silent",
    ),
    (
        "way: an agent's pod",
        "            self.subject_index.sight_changed(node, self.nodes.get(node))\n",
        "",
        "nobody tells that an agent is missing",
    ),
    (
        "way: an agent's pod, to the gangs there",
        "                self._touch_gangs_on(node)\n                self.wake.at_once()  # whether",
        "                self.wake.at_once()  # whether",
        "a gang's failure is judged as if the agent did not report",
    ),
    (
        "way: a pod",
        "            self._touch_gang(pod.owner_uid)\n"
        "            self.subject_index.spec_may_change(pod.node,",
        "            self.subject_index.spec_may_change(pod.node,",
        "a rank that failed is not seen",
    ),
    (
        "way: a pod, to its agent",
        "            self.subject_index.spec_may_change(pod.node, self.nodes.get(pod.node))\n"
        "        self._wake_for(",
        "        self._wake_for(",
        "the agent does not read the steps of a new rank",
    ),
)

_GANG_INDEX = of(
    "recover/runtime/gang_index.py",
    (
        "way: a recovery of the job before",
        "                todo += [other for r in of_uid for other in (r.spec.gang.uid, r.gang_uid)]\n",
        "",
        "a job that was made anew has no history",
    ),
)

_FEW = of(
    "recover/runtime/subject_index.py",
    (
        "way: a report, to its agent",
        "        self.spec_may_change(name, node)\n        self.sight_changed(name, node)\n",
        "        self.sight_changed(name, node)\n",
        "a NodeHealth that was deleted is not made again",
    ),
    (
        "way: a report, to what is seen",
        "        self.spec_may_change(name, node)\n        self.sight_changed(name, node)\n",
        "        self.spec_may_change(name, node)\n",
        "nobody tells that a source is blind",
    ),
    (
        "way: a node, to its report",
        "        self.report_changed(name, new, health)\n\n    def node_renewed",
        "\n    def node_renewed",
        "another controller's word about a node leaves its report ordinary",
    ),
    (
        "way: the pods of the present start",
        "        self.new_pods_memo.pop(uid, None)\n",
        "",
        "a rank that failed is not among the pods",
    ),
    (
        "way: what is asked, and is not ordinary",
        "            if self._is_ordinary(what, name, world, now):\n"
        "                self._of(what).pop(name, None)\n",
        "            self._is_ordinary(what, name, world, now)\n            self._of(what).pop(name, None)\n",
        "whatever is asked about is left out",
    ),
    (
        "way: the sweep leaves out the gangs",
        "    return [*found, *((_What.GANG, uid) for uid in world.gangs)]\n",
        "    return found\n",
        "a gang that was missed once is missed for ever",
    ),
)

_ORDINARY = of(
    "recover/triage/ordinary.py",
    (
        "way: a node that is not ready",
        "    return node.ready and is_bare and spare_of(node) is None\n",
        "    return is_bare and spare_of(node) is None\n",
        "a silent node stays in service",
    ),
    (
        "way: a spare",
        "    return node.ready and is_bare and spare_of(node) is None\n",
        "    return node.ready and is_bare\n",
        "reserves are never let in",
    ),
    (
        "way: a node with our taint alone",
        "not node.signals and not is_tainted(node)",
        "not node.signals",
        "a gang leaves its degraded node for another degraded node",
    ),
    (
        "way: a node that we have taken out",
        "is_bare = node.quarantine is None and node.told is None and not node.signals",
        "is_bare = node.told is None and not node.signals",
        "no node ever returns",
    ),
    (
        "way: a node of which the condition tells",
        "is_bare = node.quarantine is None and node.told is None and not node.signals",
        "is_bare = node.quarantine is None and not node.signals",
        "the condition AcceleratorHealthy stays False for ever",
    ),
    (
        "way: a node with a signal",
        "is_bare = node.quarantine is None and node.told is None and not node.signals",
        "is_bare = node.quarantine is None and node.told is None",
        "what people have mapped to a finding is not acted on",
    ),
    (
        "way: the report of a node with a signal",
        "    if health.status.findings or (node is not None and node.signals):\n",
        "    if health.status.findings:\n",
        "what people have mapped to a finding is not acted on",
    ),
    (
        "way: a line of a known issue",
        "    return not any(pod.known_lines for pod in health.status.pods)\n",
        "    return True\n",
        "nobody is told of a known issue",
    ),
    (
        "way: a job with our mark",
        "    if gang.mark is not None or world.active_recovery(gang.ref.uid) is not None:\n",
        "    if world.active_recovery(gang.ref.uid) is not None:\n",
        "a job that a lost recovery has stopped stays stopped",
    ),
    (
        "way: a job under recovery",
        "    if gang.mark is not None or world.active_recovery(gang.ref.uid) is not None:\n",
        "    if gang.mark is not None:\n",
        "a second cause does not join the recovery",
    ),
)

WAYS: tuple[Mutant, ...] = (*_CHANGES, *_GANG_INDEX, *_FEW, *_ORDINARY)
