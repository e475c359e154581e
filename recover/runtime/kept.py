"""Decides what the caches of observe.py keep of Nodes, NodeHealths, pods and jobs. Pure, except for lookups
in the indexes of the observer, and for what a reader remembers.

A cluster contains far more objects than the decisions read, above all pods and Jobs of others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import msgspec

from detectors.wire.contract import NodeHealth
from detectors.wire.resource import Resource
from detectors.wire.training import Signature
from recover.api.marks import REPAIR_OF
from recover.k8s.kinds import JOBS
from recover.model import AgentPod, Bystander, Gang, Node, Pod, decode
from recover.model.agent_readiness import agent_pod, is_agent
from recover.model.modes import Mode
from recover.model.pod_glance import is_beside_the_gangs
from recover.policy.consent import AUTO_RECOVERY
from recover.policy.driver_work import work_labels
from recover.policy.node_signals import SignalCatalogue
from recover.policy.settings import Settings
from recover.repair.occupants import BACK_AFTER_A_REBOOT
from recover.runtime.pod_index import PodIndex, is_scan
from recover.workloads import WORKLOADS, Workload, outline_of
from recover.workloads.patches import asks_for_device

__all__ = ["Kept", "is_of_a_repair"]

GANG_KINDS = frozenset(w.resource.kind for w in WORKLOADS) - {JOBS.kind}
"""Kinds of owners whose pods belong to a gang, whatever resources they request."""
OUR_LABEL = ("app.kubernetes.io/name", "rekindle")
"""Label that the chart writes on all pods of the release."""


class Kept:
    """Reads the objects of each kind. Each method takes an object as JSON, and returns None for an object
    that no decision reads. Each raises the decoder's error for a malformed object.

    `recovered` contains the uids of the gangs with a Recovery. `reported` adds to a node what the device
    plugins report.
    """

    def __init__(
        self,
        settings: Settings,
        pods: PodIndex,
        recovered: Collection[str],
        reported: Callable[[Node], Node],
    ) -> None:
        self._settings = settings
        self._pods = pods
        self._recovered = recovered
        self._reported = reported
        self._signals = SignalCatalogue(settings.signals)
        self._signatures: list[Signature] = []

    def node(self, raw: bytes) -> Node:
        """Keeps all nodes, accelerated or not: if a node is missing from the cache, decisions can have its
        absence confirmed by a live read."""
        node = decode.node(raw, self._settings.accelerators, work_labels(), self._signals.read)
        return self._reported(node)

    def health(self, raw: bytes) -> NodeHealth:
        """Shares one list of signatures between all nodes, since all agents get the same signatures. That
        keeps the reports small and quick to compare."""
        health = decode.health(raw)
        if health.spec.signatures != self._signatures:
            self._signatures = health.spec.signatures
            return health
        spec = msgspec.structs.replace(health.spec, signatures=self._signatures)
        return msgspec.structs.replace(health, spec=spec)

    def pod(self, raw: bytes) -> Pod | Bystander | AgentPod | None:
        """Keeps ranks, scans, agents, the pods of repairs and, in mode repair, bystanders (`_beside`). Pods
        of gang kinds are kept even without accelerators, since a gang's leader may have none. Pods of Jobs
        are kept only with accelerators: a Job's pods are all alike, and most Jobs are no trainings. Pods of
        other owners that use accelerators are no gangs; for them the owner and the fields of the training
        containers are kept, too."""
        accelerators, ours = self._settings.accelerators, self._settings.namespace
        is_repair_mode = self._settings.mode is Mode.REPAIR
        if not is_repair_mode and is_beside_the_gangs(raw, accelerators, GANG_KINDS, ours):
            return None
        pod = self._told_to_end(decode.pod(raw, accelerators))
        if pod.namespace == self._settings.namespace and is_agent(pod.labels):
            return agent_pod(raw, pod)
        is_of_a_set = decode.JOBSET_UID in pod.labels and pod.owner_uid
        if is_scan(pod) or pod.owner_kind in GANG_KINDS or is_of_a_set:
            return pod
        if is_of_a_repair(pod.namespace, pod.labels, ours):
            return pod
        if not pod.may_hold_devices:
            return self._beside(pod)
        if pod.owner_kind == JOBS.kind:
            return pod
        uid = pod.owner_uid or pod.uid
        found = decode.outsider(raw)
        sibling = next(iter(self._pods.pods_of.get(uid, {}).values()), None)
        if sibling is not None and sibling.outsider == found:
            found = sibling.outsider  # replicas are alike: one copy serves all
        return msgspec.structs.replace(pod, outsider=found, owner_uid=uid)

    def _told_to_end(self, pod: Pod) -> Pod:
        """Keeps the time at which the rank was told to end. When a kubelet removes the ended pod, without
        grace, the API server may replace this time by that of the removal. With the later time, a rank that
        was deleted would look as if it had ended by itself before."""
        if pod.deleting_since is None:
            return pod
        before = self._pods.pods_of.get(pod.owner_uid, {}).get(pod.uid)
        if before is None or before.deleting_since is None:
            return pod
        return msgspec.structs.replace(pod, deleting_since=min(pod.deleting_since, before.deleting_since))

    def gang(self, workload: Workload, raw: bytes) -> Gang | None:
        """Keeps, among Jobs, those that may be trainings: a cluster may contain 100,000 others of 16 KB each.
        The template does not show devices that admission adds to the pods alone; the pods show them."""
        gang = workload.parse(raw)
        if gang.resource != JOBS or gang.part_of:
            return gang
        if is_of_a_repair(gang.ref.namespace, gang.labels, self._settings.namespace):
            return gang
        uid = gang.ref.uid
        is_known = gang.mark is not None or uid in self._pods.pods_of or uid in self._recovered
        says = AUTO_RECOVERY in gang.labels or AUTO_RECOVERY in gang.annotations
        containers = (c for template in gang.templates.values() for c in template.containers)
        return gang if is_known or says or any(map(asks_for_device, containers)) else None

    def outlined(self, resource: Resource, raw: bytes, why: str) -> Gang | None:
        """Keeps an outline of a job that cannot be read and that has the label or annotation `auto-recovery`.
        Nothing else shows the owner of the job why Rekindle will not act on it."""
        gang = outline_of(raw, resource, why)
        return gang if AUTO_RECOVERY in gang.labels or AUTO_RECOVERY in gang.annotations else None

    def _beside(self, pod: Pod) -> Bystander | None:
        """Keeps a pod that a reboot of its node would end. Rekindle reboots nothing in a lower mode, so
        nothing is kept then. Pods of the release are left out, because a reboot need not wait for the
        controller's own pod: the controller continues after its next start, and a controller that waited for
        its own pod would never reboot its node."""
        is_lost = bool(pod.node) and not pod.ended and pod.owner_kind not in BACK_AFTER_A_REBOOT
        is_ours = pod.namespace == self._settings.namespace and OUR_LABEL in pod.labels.items()
        if not is_lost or is_ours or self._settings.mode is not Mode.REPAIR:
            return None
        return Bystander(pod.namespace, pod.name, pod.uid, pod.node, pod.deleting_since is not None)


def is_of_a_repair(namespace: str, labels: Mapping[str, str], ours: str) -> bool:
    """Whether the object belongs to a repair. Anybody may write that label, but nobody else may write into
    `ours`, the release's namespace."""
    return REPAIR_OF in labels and namespace == ours
