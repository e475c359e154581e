"""Model of an installation, as its checks see it. Pure.

inspect.py builds the model with the permissions of kubectl's user; all_checks.py has the table of checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from detectors.wire.contract import NodeHealth
from recover.doctor.installation.release_objects import (
    ApiKinds,
    DaemonSet,
    Deployment,
    LeaseObject,
    NetworkPolicy,
    OwnPod,
    StatusWrite,
    Version,
)
from recover.model import Gang, NamespaceView, Node
from recover.model.judged_recipes import JudgedRecipe
from recover.model.modes import Mode
from recover.policy.settings import Settings

__all__ = ["AGENT", "CONTROLLER", "SETTINGS", "Installation", "Part", "Right", "State"]

AGENT = "rekindle-agent"
CONTROLLER = "rekindle-controller"
SETTINGS = "rekindle-settings"
"""Names of the workloads, ServiceAccounts and the ConfigMap in the chart. These names are fixed."""


class Part(StrEnum):
    """Data that a check may need, and that the person may have no permission to read."""

    DEFINITIONS = "definitions"
    CONTROLLER = "controller"
    AGENTS = "agents"
    PODS = "pods"
    LEASE = "lease"
    STATE = "state"
    SETTINGS = "settings"
    RIGHTS = "rights"
    POLICIES = "policies"
    ENVIRONMENT = "environment"
    NODES = "nodes"
    HEALTH = "health"
    RECIPES = "recipes"
    NAMESPACES = "namespaces"
    JOBS = "jobs"
    NETWORK = "network"


class Right(msgspec.Struct, frozen=True, kw_only=True):
    """One permission that an account of Rekindle must have."""

    account: str
    verb: str
    group: str
    resource: str
    """Plural of the resource, with its subresource if there is one, as in `incidents/status`."""
    name: str = ""
    namespace: str = ""
    """The namespace of the permission; empty for all namespaces."""

    @property
    def on(self) -> str:
        """Returns the resource as kubectl names it."""
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{resource} in {self.namespace}" if self.namespace else resource


class State(msgspec.Struct, frozen=True):
    """The mode that the controller has recorded."""

    mode: Mode
    since: datetime | None


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """One release and its surroundings. `unread` has the reason for each part that could not be read; an
    object that does not exist is None or empty."""

    namespace: str
    now: datetime
    """Time by the API server's clock, if it reports the time."""
    version: str
    """Version of this command."""
    server: Version
    kinds: Mapping[str, ApiKinds] = {}
    """Kinds that the API server serves, by group: Rekindle's group, and the frameworks' groups."""
    definitions: Mapping[str, Mapping[str, Any]] = {}
    """Rekindle's CustomResourceDefinitions in the cluster, by name."""
    own_definitions: Mapping[str, Mapping[str, Any]] = {}
    """Rekindle's CustomResourceDefinitions as this version generates them, by name."""
    controller: Deployment | None = None
    agents: DaemonSet | None = None
    pods: tuple[OwnPod, ...] = ()
    lease: LeaseObject | None = None
    lease_kept_in: str = ""
    state: State | None = None
    state_kept_in: str = ""
    settings: Settings | None = None
    """Settings of the controller in the release."""
    settings_problem: str = ""
    """Reason why the settings cannot be used."""
    denied: tuple[Right, ...] = ()
    """Permissions that the chart grants and the API server denies."""
    policies: Mapping[str, Mapping[str, Any]] = {}
    """Admission policies and bindings in the cluster, by `Kind/name`."""
    own_policies: Mapping[str, Mapping[str, Any]] = {}
    """Admission policies and bindings of this version's chart, by `Kind/name`."""
    nodes: Mapping[str, Node] = {}
    health: Mapping[str, NodeHealth] = {}
    clocks: tuple[StatusWrite, ...] = ()
    """The last write of the status of each NodeHealth."""
    recipes: tuple[JudgedRecipe, ...] = ()
    namespaces: Mapping[str, NamespaceView] = {}
    gangs: tuple[Gang, ...] = ()
    others: Mapping[str, str] = {}
    """Frameworks and queues that run in the cluster, by name, with the image of the controller."""
    network: tuple[NetworkPolicy, ...] = ()
    api_ports: tuple[int, ...] = ()
    """Ports on which the API server listens, behind its Service."""
    unread: Mapping[Part, str] = {}

    @property
    def accelerated(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_accelerated]

    @property
    def release_version(self) -> str:
        """Returns the version with which the chart labels the controller."""
        labels = self.controller.metadata.labels if self.controller is not None else {}
        return labels.get("app.kubernetes.io/version", self.version)

    def pods_of(self, component: str) -> list[OwnPod]:
        return [pod for pod in self.pods if pod.component == component]

    def upgrade(self, *settings: str) -> str:
        """Returns the command that corrects the release."""
        flags = "".join(f" --set {setting}" for setting in settings)
        return f"helm upgrade rekindle charts/rekindle -n {self.namespace} --reuse-values{flags}"
