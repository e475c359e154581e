"""Makes an installation that is all right, for tests that break one thing of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from detectors import __version__
from detectors.wire.contract import Coverage, CoverageState, NodeHealth, NodeHealthStatus, ObjectMeta, Source
from recover.api.crds import manifests
from recover.doctor.case import Finding
from recover.doctor.installation import shipped
from recover.doctor.installation.installed import Installation, State
from recover.doctor.installation.release_objects import (
    ApiKinds,
    DaemonSet,
    Deployment,
    LeaseObject,
    OwnPod,
    Version,
)
from recover.doctor.installation.told import InstallationReport, examined
from recover.model import NamespaceView, Node
from recover.model.modes import Mode
from recover.policy.settings import Settings

__all__ = [
    "LABEL",
    "NAMESPACE",
    "NOW",
    "agent",
    "blind",
    "changed",
    "controller",
    "deployment",
    "found",
    "health",
    "healthy",
    "lease",
    "node",
    "only",
    "reported",
]

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NAMESPACE = "rekindle-system"
LABEL = "nvidia.com/gpu.present"
DEFINITIONS = {body["metadata"]["name"]: body for body in manifests()}


def healthy(nodes: int = 2) -> Installation:
    """Returns an installation in mode recover, with nodes n1, n2, ..."""
    names = [f"n{number}" for number in range(1, nodes + 1)]
    settings = Settings(mode=Mode.RECOVER)
    policies = shipped.policies(NAMESPACE, settings)
    return Installation(
        namespace=NAMESPACE,
        now=NOW,
        version=__version__,
        server=Version(1, 36, "v1.36.3"),
        kinds={
            "rekindle.dev": ApiKinds(
                ("v1alpha1",), frozenset({"nodehealths", "incidents", "recoveries", "recipes"})
            )
        },
        definitions=DEFINITIONS,
        own_definitions=DEFINITIONS,
        controller=deployment(ready=2),
        agents=daemonset(),
        pods=(controller("c1"), controller("c2"), *(agent(name) for name in names)),
        lease=lease("c1", NOW - timedelta(seconds=1)),
        lease_kept_in=f"{NAMESPACE}/rekindle-controller",
        state=State(Mode.RECOVER, NOW - timedelta(days=1)),
        state_kept_in=f"{NAMESPACE}/rekindle-state",
        settings=settings,
        policies=policies,
        own_policies=policies,
        nodes={name: node(name) for name in names},
        health={name: health(name) for name in names},
        namespaces={NAMESPACE: NamespaceView(NAMESPACE)},
        api_ports=(6443,),
    )


def changed(**fields: Any) -> Installation:
    return msgspec.structs.replace(healthy(), **fields)


def found(seen: Installation) -> list[Finding]:
    return list(reported(seen).findings)


def reported(seen: Installation) -> InstallationReport:
    return examined(seen)


def only(seen: Installation) -> Finding:
    (finding,) = found(seen)
    return finding


def deployment(*, ready: int, replicas: int = 2, message: str = "") -> Deployment:
    failure = {"type": "ReplicaFailure", "status": "True", "message": message}
    return msgspec.convert(
        {
            "metadata": {"labels": {"app.kubernetes.io/version": __version__}},
            "spec": {"replicas": replicas},
            "status": {"readyReplicas": ready, "conditions": [failure] if message else []},
        },
        Deployment,
    )


def daemonset(*labels: str) -> DaemonSet:
    terms = [{"matchExpressions": [{"key": one, "operator": "Exists"}]} for one in labels or (LABEL,)]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    template = {"spec": {"nodeSelector": {"os": "linux"}, "affinity": {"nodeAffinity": required}}}
    return msgspec.convert({"spec": {"template": template}}, DaemonSet)


def controller(name: str, **status: Any) -> OwnPod:
    return pod("controller", name, "", **status)


def agent(on: str, **status: Any) -> OwnPod:
    return pod("agent", f"agent-{on}", on, **status)


def pod(component: str, name: str, on: str, **status: Any) -> OwnPod:
    """Returns a pod of Rekindle, which is ready unless a status is given."""
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    labels = {"app.kubernetes.io/name": "rekindle", "app.kubernetes.io/component": component}
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
            "spec": {"nodeName": on},
            "status": status or ready,
        },
        OwnPod,
    )


def lease(holder: str, renewed: datetime | None, *, by_server: datetime | None = None) -> LeaseObject:
    managed = [{"manager": "rekindle", "time": by_server.isoformat()}] if by_server is not None else []
    spec = {"holderIdentity": holder, "renewTime": renewed.isoformat() if renewed is not None else None}
    return msgspec.convert({"metadata": {"managedFields": managed}, "spec": spec}, LeaseObject)


def node(name: str, labels: Mapping[str, str] = {}, *, accelerated: bool = True) -> Node:
    given = {"os": "linux", LABEL: "true", **labels}
    return Node(name, f"uid-{name}", "1", labels=given, is_accelerated=accelerated)


def health(name: str, *, version: str = __version__, **why: str) -> NodeHealth:
    """Returns a NodeHealth in which every source is covered except the sources with a reason in `why`."""
    coverage = [
        Coverage(
            source=source,
            state=CoverageState.BLIND if source in why else CoverageState.COVERED,
            since=NOW,
            why=why.get(source, ""),
        )
        for source in Source
    ]
    status = NodeHealthStatus(agent_version=version, observed_at=NOW, coverage=coverage)
    return NodeHealth(metadata=ObjectMeta(name=name), status=status)


def blind(nodes: int, **why: str) -> Installation:
    """Returns an installation in which this number of nodes are blind in the same way. `@` in a reason
    becomes the number of the node."""
    told = {
        f"n{number}": health(
            f"n{number}", **{key: text.replace("@", str(number)) for key, text in why.items()}
        )
        for number in range(1, nodes + 1)
    }
    return msgspec.structs.replace(healthy(nodes), health=told)
