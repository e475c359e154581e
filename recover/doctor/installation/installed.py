"""What is known of an installation, as its checks see it. Pure.

look.py reads it as kubectl's user may; checks.py has the table of checks.
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
    Version,
    Written,
)
from recover.model import Gang, NamespaceView, Node
from recover.model.judged_recipes import JudgedRecipe
from recover.model.modes import Mode
from recover.policy.settings import Settings

__all__ = ["AGENT", "CONTROLLER", "SETTINGS", "Installation", "Part", "Right", "State"]

AGENT = "rekindle-agent"
CONTROLLER = "rekindle-controller"
SETTINGS = "rekindle-settings"
"""What the chart calls workloads, ServiceAccounts and the ConfigMap. The names are fixed."""


class Part(StrEnum):
    """What a check may need, and whoever asks may not be allowed to read."""

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
    """One thing that one of our accounts must be allowed to do."""

    account: str
    verb: str
    group: str
    resource: str
    """With its subresource, as `incidents/status`."""
    name: str = ""
    namespace: str = ""
    """Empty for everywhere."""

    @property
    def on(self) -> str:
        """As kubectl names it."""
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{resource} in {self.namespace}" if self.namespace else resource


class State(msgspec.Struct, frozen=True):
    """What the controller remembers of its mode."""

    mode: Mode
    since: datetime | None


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """What could not be read has its reason in `unread`; what is not there is None or empty."""

    namespace: str
    now: datetime
    """By the API server's clock, if it tells."""
    version: str
    """Of this command."""
    server: Version
    kinds: Mapping[str, ApiKinds] = {}
    """What the API server serves, by group: ours, and those of the frameworks."""
    definitions: Mapping[str, Mapping[str, Any]] = {}
    """Our CustomResourceDefinitions, by name."""
    own_definitions: Mapping[str, Mapping[str, Any]] = {}
    """The same as this version makes them."""
    controller: Deployment | None = None
    agents: DaemonSet | None = None
    pods: tuple[OwnPod, ...] = ()
    lease: LeaseObject | None = None
    lease_kept_in: str = ""
    state: State | None = None
    state_kept_in: str = ""
    settings: Settings | None = None
    """The controller's, as the release has them."""
    settings_problem: str = ""
    """Why they cannot be used."""
    denied: tuple[Right, ...] = ()
    """Of the rights that the chart gives, those that are not in force."""
    policies: Mapping[str, Mapping[str, Any]] = {}
    """Admission policies and bindings, by `Kind/name`."""
    own_policies: Mapping[str, Mapping[str, Any]] = {}
    """The same as this version's chart makes them."""
    nodes: Mapping[str, Node] = {}
    health: Mapping[str, NodeHealth] = {}
    clocks: tuple[Written, ...] = ()
    recipes: tuple[JudgedRecipe, ...] = ()
    namespaces: Mapping[str, NamespaceView] = {}
    gangs: tuple[Gang, ...] = ()
    others: Mapping[str, str] = {}
    """Frameworks and their queues that run here: name -> image of its controller."""
    network: tuple[NetworkPolicy, ...] = ()
    api_ports: tuple[int, ...] = ()
    """On which the API server listens, behind its Service."""
    unread: Mapping[Part, str] = {}

    @property
    def accelerated(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_accelerated]

    @property
    def release_version(self) -> str:
        """As the chart labels the controller."""
        labels = self.controller.metadata.labels if self.controller is not None else {}
        return labels.get("app.kubernetes.io/version", self.version)

    def pods_of(self, component: str) -> list[OwnPod]:
        return [pod for pod in self.pods if pod.component == component]

    def upgrade(self, *settings: str) -> str:
        """The command that brings the release to what it should be."""
        flags = "".join(f" --set {setting}" for setting in settings)
        return f"helm upgrade rekindle charts/rekindle -n {self.namespace} --reuse-values{flags}"
