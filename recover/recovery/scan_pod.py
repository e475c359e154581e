"""Builds the scan pod, which looks for the last complete checkpoint in the place where the gang's own ranks
would look. Pure.

The scan pod runs in the job's namespace with only the volume of the checkpoints (scan_spec.py). It only
reads, unless the job allows a repair. It is created with a scheduling gate when the gang is stopped, and the
gate is removed the moment the old pods have ended. Without gates, it is created only then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recover.api import CheckpointChoice, Recovery
from recover.api.marks import AVOIDED, EXCLUDED, SCAN_OF
from recover.checkpoints.annotation import REPAIR, parse_repair
from recover.checkpoints.scan_result import Repair
from recover.k8s.bodies import shortened
from recover.k8s.kinds import PODS
from recover.k8s.limits import LABEL_VALUE_CHARS_MAX
from recover.k8s.pod_specs import HOSTNAME
from recover.model import Gang, Pod, World
from recover.model.actions import Create, Delete, Patch
from recover.policy.settings import Settings
from recover.recovery.loading import unloadable
from recover.recovery.scan_place import Unscannable, location
from recover.recovery.scan_spec import command_of, spec_of

__all__ = [
    "create",
    "create_later",
    "is_outdated",
    "knew_too_little",
    "later_name",
    "may_write",
    "of_attempt",
    "release",
    "remove",
    "scan_label",
    "scan_name",
]

_GATE = "rekindle.dev/old-pods-ended"
_PLATFORM = ("kubernetes.io/os", "kubernetes.io/arch")
"""Labels that each kubelet writes on its node."""
_NO_INJECTION_LABELS = {
    "sidecar.istio.io/inject": "false",
    "kuma.io/sidecar-injection": "disabled",
    "admission.datadoghq.com/enabled": "false",
}
_NO_INJECTION = {
    "linkerd.io/inject": "disabled",
    "consul.hashicorp.com/connect-inject": "false",
    "dynatrace.com/inject": "false",
    "oneagent.dynatrace.com/inject": "false",
}
"""Labels and annotations by which the webhooks of service meshes and of monitoring leave a pod as it is. The
scan calls no service, and would never end beside a sidecar that continues to run. The policy of the chart
refuses a scan pod with a further container, volume or variable."""


def scan_name(recovery: Recovery) -> str:
    return f"{recovery.metadata.name}-scan-{recovery.status.attempt}"


def later_name(recovery: Recovery) -> str:
    """Returns the name of the scan after the resume, which is needed if only a newer checkpoint can prove
    progress."""
    return f"{scan_name(recovery)}-later"


def of_attempt(world: World, recovery: Recovery) -> list[Pod]:
    """Returns the existing scan pods of the recovery's present attempt."""
    names = (scan_name(recovery), later_name(recovery))
    found = (world.scans.get(f"{recovery.metadata.namespace}/{name}") for name in names)
    return [pod for pod in found if pod is not None]


def scan_label(recovery: Recovery) -> str:
    """Returns the value of the label that names the recovery of a scan pod."""
    return shortened(recovery.metadata.name, LABEL_VALUE_CHARS_MAX)


def create(
    recovery: Recovery, gang: Gang, world: World, settings: Settings, avoided: Sequence[str]
) -> Create | None:
    """Returns the creation of the scan pod of this attempt, with a scheduling gate if the API server supports
    gates. Returns None if nothing can be scanned. `avoided` has the hosts of broken nodes."""
    gates = [{"name": _GATE}] if settings.scheduling_gates else []
    allowed = _allowed(gang)
    name = scan_name(recovery)
    return _create(name, recovery, gang, world, settings, avoided, gates=gates, allowed=allowed)


def create_later(
    recovery: Recovery, gang: Gang, world: World, settings: Settings, avoided: Sequence[str]
) -> Create | None:
    """Returns the creation of a scan that runs beside the gang and changes no checkpoint. Returns None if
    nothing can be scanned."""
    return _create(later_name(recovery), recovery, gang, world, settings, avoided, gates=[], allowed=[])


def _create(
    name: str,
    recovery: Recovery,
    gang: Gang,
    world: World,
    settings: Settings,
    avoided: Sequence[str],
    *,
    gates: list[dict[str, str]],
    allowed: list[Repair],
) -> Create | None:
    try:
        place = location(gang)
    except Unscannable:
        return None
    exclude = unloadable(recovery, gang, world, settings)
    command = command_of(place, recovery, exclude, allowed, settings.timing.scan_deadline_s)
    notes = {EXCLUDED: _told(exclude), REPAIR: ",".join(allowed), AVOIDED: ",".join(avoided)}
    spec = {**spec_of(place, settings, command, writes=bool(allowed)), **_placed(avoided, recovery, world)}
    return Create(
        what="create-scan",
        resource=PODS,
        name=name,
        namespace=gang.ref.namespace,
        body={
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": gang.ref.namespace,
                "labels": {SCAN_OF: scan_label(recovery), **_NO_INJECTION_LABELS},
                "annotations": {**{note: text for note, text in notes.items() if text}, **_NO_INJECTION},
            },
            "spec": {**spec, "schedulingGates": gates},
        },
    )


def _placed(avoided: Sequence[str], recovery: Recovery, world: World) -> dict[str, Any]:
    """Returns the affinity that excludes broken nodes, and nodes on which our image may not run; empty if
    there are none. The image runs on the nodes of the gang, where the agents run. Nodes of another
    architecture, on which clouds like to run everything else, may have none of its files."""
    wanted = [{"key": HOSTNAME, "operator": "NotIn", "values": list(avoided)}] if avoided else []
    ranks_on = [world.nodes[name] for name in recovery.nodes_with_devices if name in world.nodes]
    for label in _PLATFORM:
        values = sorted({node.labels[label] for node in ranks_on if label in node.labels})
        if values:
            wanted.append({"key": label, "operator": "In", "values": values})
    if not wanted:
        return {}
    terms = {"nodeSelectorTerms": [{"matchExpressions": wanted}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def is_outdated(
    pod: Pod, recovery: Recovery, gang: Gang, world: World, settings: Settings, avoided: Sequence[str]
) -> bool:
    """Whether the waiting scan pod must be replaced: since its creation an agent has reported that a
    checkpoint did not load, or that a further node is broken."""
    excluded = pod.annotations.get(EXCLUDED, "") != _told(unloadable(recovery, gang, world, settings))
    known = set(pod.annotations.get(AVOIDED, "").split(","))
    return pod.gated and (excluded or not known.issuperset(avoided))


def knew_too_little(pod: Pod, choice: CheckpointChoice) -> bool:
    """Whether the scan chose a checkpoint for which an agent has reported only since then that it did not
    load."""
    told = pod.annotations.get(EXCLUDED, "").split(",")
    return choice.step in choice.excluded and str(choice.step) not in told


def _told(steps: list[int]) -> str:
    return ",".join(str(step) for step in steps)


def _allowed(gang: Gang) -> list[Repair]:
    """Returns the repairs that the job allows. An unknown word allows nothing; `rekindle why` reports it."""
    try:
        return sorted(parse_repair(gang.annotations.get(REPAIR, "")))
    except ValueError:
        return []


def release(pod: Pod) -> Patch:
    """Returns the patch that removes the gate, once the old pods have ended."""
    return Patch(
        what="release-scan",
        resource=PODS,
        name=pod.name,
        namespace=pod.namespace,
        uid=pod.uid,
        body={"spec": {"schedulingGates": None}},
    )


def may_write(pod: Pod) -> bool:
    """Whether the scan pod may change the checkpoints and has not ended: nothing else may begin to write
    there. Its gate proves nothing, because our view of the gate may be older than our own release."""
    return REPAIR in pod.annotations and not pod.ended


def remove(pod: Pod) -> Delete:
    """Returns the deletion of the scan pod. A scan pod that may write stays until its kubelet has reported
    its end."""
    grace_s = None if may_write(pod) else 0
    return Delete(
        what="remove-scan",
        resource=PODS,
        name=pod.name,
        namespace=pod.namespace,
        uid=pod.uid,
        grace_s=grace_s,
    )
