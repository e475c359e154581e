"""Mutants of room for a gang, of the count of its attempts, and of spare nodes."""

from __future__ import annotations

from tests.mutants.model import Mutant, of

__all__ = ["PLACES"]

_CAPACITY = of(
    "recover/triage/capacity.py",
    (
        "nodes that are not ready have room",
        '    if not node.ready:\n        return "not ready"\n',
        "",
        "a gang is started that does not fit",
    ),
    (
        "quarantined nodes have room",
        "if node.unschedulable and not rules.tolerates(_UNSCHEDULABLE):",
        "if node.unschedulable and rules.tolerates(_UNSCHEDULABLE):",
        "a gang is started that does not fit",
    ),
)

_OFFERS = of(
    "recover/triage/offers.py",
    (
        "what others use is free",
        "left=tuple(n - taken for n, taken",
        "left=tuple(n for n, taken",
        "a gang is started on a full cluster",
    ),
    (
        "a gang's own places count as taken",
        "if uid not in there and name not in self._freed:",
        "if name not in self._freed:",
        "on a full cluster a stopped gang waits for its own old places",
    ),
)

_AGAIN = of(
    "recover/recovery/again.py",
    (
        "pods keep an affinity that is outdated",
        "    why = _bad_place(found, pods) or _needless(ctx, found, pods)\n",
        "    why = _bad_place(found, pods)\n",
        "a gang waits for good beside a node that is sound again",
    ),
    (
        "waiting in vain counts as a failure",
        "    return is_at_once and not any(pod.unschedulable for pod in pods)\n",
        "    return True\n",
        "lack of room ends as a crash loop",
    ),
)

_PAST_CORDON = of(
    "recover/recovery/past_cordon.py",
    (
        "a rank on a node that was already cordoned stays there",
        "    if found is None or not _may_stop(ctx):\n",
        "    if True:\n",
        "after an outage of the API server a gang trains on the GPU that has just failed",
    ),
    (
        "a gang that has no other place leaves the cordoned node",
        "    return fits_without(ctx, avoidance(ctx, ctx.status).required)\n",
        "    return True\n",
        "a gang that trains is stopped and waits",
    ),
)

_ATTEMPTS = of(
    "recover/triage/attempts.py",
    (
        "all causes count together",
        "count += is_counted and bool(_keys(one, attempt) & wanted)",
        "count += is_counted",
        "four GPUs that die on four nodes end as a crash loop",
    ),
    (
        "progress does not reset the count",
        "if step is not None and before is not None and step > before:",
        "if step is not None and before is not None and step < 0:",
        "a job that fails once a day is given up on the fourth",
    ),
)

_SPARES = of(
    "recover/triage/spares.py",
    (
        "every spare is let in for one node",
        "            free.remove(found)\n",
        "",
        "one spare is meant for two nodes",
    ),
    (
        "a broken spare is let in",
        "return takes_pods and not open_findings(node, world.health.get(node.name), answers(node), now)",
        "return takes_pods",
        "a gang moves from one broken node to another",
    ),
    (
        "a spare stays in when its node is back",
        "        if name in needs and name not in serving and not out.has(spare.node):",
        "        if name not in serving and not out.has(spare.node):",
        "reserves are used up for good",
    ),
)

PLACES: tuple[Mutant, ...] = (
    *_CAPACITY,
    *_OFFERS,
    *_AGAIN,
    *_PAST_CORDON,
    *_ATTEMPTS,
    *_SPARES,
)
