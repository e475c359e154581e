"""Computes which taints a gang's ranks tolerate. Pure.

A job's template does not show all tolerations, because admission may add some to the pods alone. The plugin
ExtendedResourceToleration adds one for each extended resource that a pod requests (GKE taints all its GPU
nodes and relies on that), a RuntimeClass adds its own, and webhooks may add any.
An estimate of places must not say no where the scheduler could say yes, so a doubtful toleration counts.
Sources: kubernetes.io/docs/reference/access-authn-authz/admission-controllers,
cloud.google.com/kubernetes-engine/docs/how-to/gpus.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from detectors.wire.fitting import fit
from recover.api import RecoveryStatus, Toleration
from recover.model import Gang, Taint, World

__all__ = ["of_pods", "of_resources", "tolerates", "tolerates_all", "written"]

_COMPARING = frozenset({"Gt", "Lt"})
"""Operators that compare numbers, by the feature gate TaintTolerationComparisonOperators (Kubernetes 1.35
alpha). Nobody can see the gate, so such a toleration counts as one for any value of the taint."""


def of_pods(world: World, gang: Gang) -> list[Toleration]:
    """Returns the tolerations of the gang's pods that its templates lack. Pods that went away a moment ago
    count, too."""
    said = {_parts(one) for template in gang.templates.values() for one in template.tolerations}
    pods = [*world.pods(gang.ref.uid), *world.departed.get(gang.ref.uid, {}).values()]
    found = {_parts(msgspec.to_builtins(one)): one for pod in pods for one in pod.tolerations}
    return fit(RecoveryStatus, "tolerations", [found[parts] for parts in sorted(found.keys() - said)])


def _parts(toleration: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(str(toleration.get(part) or "") for part in ("key", "operator", "value", "effect"))


def of_resources(names: Iterable[str]) -> list[dict[str, str]]:
    """Returns the tolerations that admission may add for pods that request these extended resources."""
    return [{"key": name, "operator": "Exists", "effect": "NoSchedule"} for name in names]


def written(tolerations: Iterable[Toleration]) -> list[Mapping[str, object]]:
    """Returns the tolerations in the form of a pod template."""
    return [msgspec.to_builtins(one) for one in tolerations]


def tolerates_all(gang: Gang) -> bool:
    """Whether some ranks of the gang may come to a node that is cordoned or not ready, whatever its taints:
    the ranks of one template suffice. Such a node always has a taint with the effect NoSchedule."""
    tolerations = (one for template in gang.templates.values() for one in template.tolerations)
    return any(
        one.get("operator") == "Exists"
        and not one.get("key")
        and one.get("effect") in (None, "", "NoSchedule")
        for one in tolerations
    )


def tolerates(tolerations: Iterable[Mapping[str, object]], taint: Taint) -> bool:
    return any(_covers(one, taint) for one in tolerations)


def _covers(toleration: Mapping[str, object], taint: Taint) -> bool:
    if toleration.get("effect") not in (None, "", taint.effect):
        return False
    operator = toleration.get("operator")
    is_any = operator == "Exists"
    if not toleration.get("key"):
        return is_any
    if operator in _COMPARING:
        return toleration.get("key") == taint.key
    return toleration.get("key") == taint.key and (is_any or (toleration.get("value") or "") == taint.value)
