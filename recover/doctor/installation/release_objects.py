"""Fields of the release's own objects and of the objects around it. Pure.

inspect.py decodes the API server's answers into these types; unknown fields are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from recover.api import Requirement
from recover.k8s.pod_specs import ConditionView
from recover.recipes.placement import carries

__all__ = [
    "ApiKinds",
    "DaemonSet",
    "Deployment",
    "LeaseObject",
    "Meta",
    "NetworkPolicy",
    "OwnPod",
    "StatusWrite",
    "Version",
]


class _Camel(msgspec.Struct, frozen=True, rename="camel"):
    pass


class Managed(_Camel, frozen=True):
    manager: str = ""
    subresource: str = ""
    time: datetime | None = None
    """Time by the API server's clock, in whole seconds."""


class Meta(_Camel, frozen=True):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    managed_fields: list[Managed] = []


class Version(msgspec.Struct, frozen=True, order=True):
    """Version of an API server, such as `v1.36.3+k3s1`. GKE's minor version `30+` counts as 30."""

    major: int
    minor: int
    said: str = ""

    @classmethod
    def of(cls, text: str) -> Version | None:
        found = re.match(r"v?(\d+)\.(\d+)", text)
        return cls(int(found[1]), int(found[2]), text) if found else None

    def is_before(self, major: int, minor: int) -> bool:
        return (self.major, self.minor) < (major, minor)


class ApiKinds(msgspec.Struct, frozen=True):
    """Versions and kinds that the API server serves of one group. The preferred version comes first."""

    versions: tuple[str, ...] = ()
    plurals: frozenset[str] = frozenset()
    """Plurals of the kinds in the version that Rekindle uses."""


class _Replicas(_Camel, frozen=True):
    replicas: int = 0
    ready_replicas: int = 0
    conditions: list[ConditionView] = []


class _Container(_Camel, frozen=True):
    image: str = ""


class _Expression(_Camel, frozen=True):
    key: str = ""
    operator: str = ""
    values: list[str] = []


class _Term(_Camel, frozen=True):
    match_expressions: list[_Expression] = []
    match_fields: list[_Expression] = []


class _Selector(_Camel, frozen=True):
    node_selector_terms: list[_Term] = []


class _NodeAffinity(_Camel, frozen=True):
    required_during_scheduling_ignored_during_execution: _Selector | None = None


class _Affinity(_Camel, frozen=True):
    node_affinity: _NodeAffinity = _NodeAffinity()


class _PodSpec(_Camel, frozen=True):
    node_name: str = ""
    containers: list[_Container] = []
    node_selector: dict[str, str] = {}
    affinity: _Affinity = _Affinity()

    @property
    def terms(self) -> list[_Term]:
        """Returns the terms of the node affinity, of which a node must meet any one; one empty term if there
        is no affinity."""
        selector = self.affinity.node_affinity.required_during_scheduling_ignored_during_execution
        return selector.node_selector_terms if selector is not None else [_Term()]


class _Template(_Camel, frozen=True):
    metadata: Meta = Meta()
    spec: _PodSpec = _PodSpec()


class _DeploymentSpec(_Camel, frozen=True):
    replicas: int = 1
    template: _Template = _Template()


class Deployment(_Camel, frozen=True):
    metadata: Meta = Meta()
    spec: _DeploymentSpec = _DeploymentSpec()
    status: _Replicas = _Replicas()

    @property
    def image(self) -> str:
        containers = self.spec.template.spec.containers
        return containers[0].image if containers else ""


class _DaemonSetSpec(_Camel, frozen=True):
    template: _Template = _Template()


class _Scheduled(_Camel, frozen=True):
    desired_number_scheduled: int = 0
    number_ready: int = 0


class DaemonSet(_Camel, frozen=True):
    metadata: Meta = Meta()
    spec: _DaemonSetSpec = _DaemonSetSpec()
    status: _Scheduled = _Scheduled()

    @property
    def asked(self) -> tuple[tuple[Requirement, ...], ...]:
        """Returns the alternatives that the pod template requires of a node's labels. A node must meet all
        requirements of one alternative."""
        pod = self.spec.template.spec
        always = [Requirement(key=k, operator="In", values=[v]) for k, v in pod.node_selector.items()]
        return tuple(
            (
                *always,
                *(Requirement(key=e.key, operator=e.operator, values=e.values) for e in t.match_expressions),
            )
            for t in pod.terms
        )

    def wants(self, labels: Mapping[str, str]) -> bool:
        return any(carries(labels, term) for term in self.asked)


class _Waiting(_Camel, frozen=True):
    reason: str = ""
    message: str = ""


class _Ended(_Camel, frozen=True):
    reason: str = ""
    exit_code: int = 0
    message: str = ""


class _State(_Camel, frozen=True):
    waiting: _Waiting | None = None
    terminated: _Ended | None = None


class _ContainerStatus(_Camel, frozen=True):
    state: _State = _State()
    last_state: _State = _State()


class _PodStatus(_Camel, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[ConditionView] = []
    container_statuses: list[_ContainerStatus] = []


class OwnPod(_Camel, frozen=True):
    """A pod of the release."""

    metadata: Meta = Meta()
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()

    @property
    def component(self) -> str:
        return self.metadata.labels.get("app.kubernetes.io/component", "")

    @property
    def node(self) -> str:
        """Returns the node of the pod, even before the pod is scheduled: a DaemonSet's pod names its node in
        its affinity."""
        if self.spec.node_name:
            return self.spec.node_name
        return next((name for term in self.spec.terms for e in term.match_fields for name in e.values), "")

    @property
    def ready(self) -> bool:
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions)

    @property
    def trouble(self) -> str:
        """Returns why the pod is not ready, in the words of Kubernetes; empty if nobody reports a reason."""
        if self.status.reason:
            return f"{self.status.reason}: {self.status.message}"
        for container in self.status.container_statuses:
            waiting, before = container.state.waiting, container.last_state.terminated
            if waiting is not None and waiting.reason not in ("", "ContainerCreating", "PodInitializing"):
                ended = (
                    f"; before, it ended with {before.exit_code} ({before.reason})"
                    if before is not None
                    else ""
                )
                return f"{waiting.reason}: {waiting.message}{ended}"
        unplaced = next(
            (c for c in self.status.conditions if c.type == "PodScheduled" and c.status == "False"), None
        )
        return f"{unplaced.reason}: {unplaced.message}" if unplaced is not None else ""


class _LeaseSpec(_Camel, frozen=True):
    holder_identity: str = ""
    lease_duration_seconds: int = 15
    renew_time: datetime | None = None


class LeaseObject(_Camel, frozen=True):
    metadata: Meta = Meta()
    spec: _LeaseSpec = _LeaseSpec()

    @property
    def renewed_at(self) -> datetime | None:
        """Returns the time of the last renewal: by the API server's clock if the API server has recorded it,
        otherwise by the holder's clock. By the API server's clock every write of the Lease counts."""
        times = [one.time for one in self.metadata.managed_fields if one.time is not None]
        return max(times, default=self.spec.renew_time)


class StatusWrite(msgspec.Struct, frozen=True):
    """One write with its time by two clocks: the writer's, and the API server's in whole seconds."""

    by: str
    theirs: datetime
    servers: datetime

    @property
    def ahead_s(self) -> float:
        """Returns the seconds by which the writer's clock is ahead, negative if it is behind. The API server
        drops fractions of a second, so the first second by which the writer is ahead does not count."""
        ahead_s = (self.theirs - self.servers).total_seconds()
        return min(ahead_s, 0.0) if ahead_s < 1 else ahead_s - 1


class _EgressPort(_Camel, frozen=True):
    port: int | str | None = None
    end_port: int | None = None

    def allows(self, number: int) -> bool:
        """Whether the rule allows the port. A named port counts as the right port."""
        if not isinstance(self.port, int):
            return True
        return self.port <= number <= (self.end_port or self.port)


class _Egress(_Camel, frozen=True):
    ports: list[_EgressPort] = []

    def allows(self, number: int) -> bool:
        return not self.ports or any(port.allows(number) for port in self.ports)


class _LabelSelector(_Camel, frozen=True):
    match_labels: dict[str, str] = {}
    match_expressions: list[Any] = []


class _NetworkSpec(_Camel, frozen=True):
    pod_selector: _LabelSelector = _LabelSelector()
    policy_types: list[str] = []
    egress: list[_Egress] = []


class NetworkPolicy(_Camel, frozen=True):
    metadata: Meta = Meta()
    spec: _NetworkSpec = _NetworkSpec()

    def limits(self, labels: Mapping[str, str]) -> bool:
        """Whether the policy limits what a pod with these labels may reach. Match expressions count as
        matching."""
        selected = self.spec.pod_selector.match_labels.items() <= labels.items()
        return selected and "Egress" in self.spec.policy_types
