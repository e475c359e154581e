"""Reads the objects of an installation and its surroundings, as an Installation. I/O only.

The Installation names the parts that may not be read, and the checks that need these parts are not made.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime

import msgspec

from detectors import __version__
from detectors.client.kubeapi import KubeApi
from detectors.text.strict import BadValueError, convert
from detectors.wire.contract import GROUP, VERSION, NodeHealth
from detectors.wire.resource import Resource
from recover.api.crds import manifests
from recover.doctor.installation import shipped
from recover.doctor.installation.installed import AGENT, CONTROLLER, SETTINGS, Installation, Part, State
from recover.doctor.installation.reader import Reader
from recover.doctor.installation.release_objects import (
    ApiKinds,
    DaemonSet,
    Deployment,
    LeaseObject,
    Meta,
    NetworkPolicy,
    OwnPod,
    StatusWrite,
    Version,
)
from recover.doctor.installation.rules import definitions, denied, policies
from recover.k8s.kinds import CONFIGMAPS, LEASES, NAMESPACES, NODEHEALTHS, NODES, PODS, RECIPES
from recover.kube.lease import LEASE
from recover.model import Gang, decode
from recover.model.modes import Mode
from recover.policy.settings import Settings
from recover.recipes.load import built_in
from recover.recipes.objects import seen as seen_recipe
from recover.recipes.objects import settle
from recover.runtime.mode_keeper import STATE
from recover.snapshot.read import CannotTell
from recover.stories.words import some
from recover.workloads import WORKLOADS
from recover.workloads.base import Operator

__all__ = ["FRAMEWORKS", "NotInstalled", "look"]

_DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
_DAEMONSETS = Resource("apps", "v1", "daemonsets", "DaemonSet")
_NETWORK = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
_OURS = "app.kubernetes.io/name=rekindle"
_API_SERVERS = "kubernetes.io/service-name=kubernetes"
FRAMEWORKS = {
    **{w.resource.group: w.operator for w in WORKLOADS if w.operator is not None},
    "kueue.x-k8s.io": Operator("Kueue", "kueue-controller-manager"),
}
"""For each API group of a framework or a queue, the controller of its objects."""


class NotInstalled(Exception):
    """The cluster has nothing of Rekindle."""


async def look(api: KubeApi, namespace: str = "") -> Installation:
    """Reads the release in that namespace, or, without a namespace, the release that the cluster has. Raises
    CannotTell, NotInstalled."""
    reader = Reader(api)
    server, kinds = await _server(reader), await _kinds(reader)
    where = await _found(reader, kinds, namespace)
    settings, problem = await _settings(reader, where)
    health = await reader.every(Part.HEALTH, NODEHEALTHS, _health) or []
    accelerators = (settings or Settings()).accelerators
    nodes = await reader.every(Part.NODES, NODES, lambda raw: decode.node(raw, accelerators))
    namespaces = await reader.every(Part.NAMESPACES, NAMESPACES, decode.namespace)
    recipes = await reader.every(Part.RECIPES, RECIPES, seen_recipe)
    own_definitions = {body["metadata"]["name"]: body for body in manifests()}
    return Installation(
        namespace=where,
        version=__version__,
        server=server,
        kinds=kinds,
        own_definitions=own_definitions,
        definitions=await definitions(reader, own_definitions),
        controller=await reader.one(Part.CONTROLLER, _DEPLOYMENTS, CONTROLLER, Deployment, where),
        agents=await reader.one(Part.AGENTS, _DAEMONSETS, AGENT, DaemonSet, where),
        pods=tuple(await reader.every(Part.PODS, PODS, _pod, namespace=where, labels=_OURS) or ()),
        lease=await reader.one(Part.LEASE, LEASES, LEASE, LeaseObject, where),
        lease_kept_in=f"{where}/{LEASE}",
        state=_state(await reader.one(Part.STATE, CONFIGMAPS, STATE, _ConfigMap, where)),
        state_kept_in=f"{where}/{STATE}",
        settings=settings,
        settings_problem=problem,
        denied=await denied(reader, where, settings),
        own_policies=shipped.policies(where, settings),
        policies=await policies(reader, server),
        nodes={node.name: node for node in nodes or ()},
        health={one.metadata.name: one for one, _ in health},
        clocks=tuple(written for _, written in health if written is not None),
        recipes=settle(built_in(), recipes or []).judged,
        namespaces={one.name: one for one in namespaces or ()},
        gangs=await _gangs(reader),
        others=await _others(reader, kinds),
        network=tuple(await reader.every(Part.NETWORK, _NETWORK, _network, namespace=where) or ()),
        api_ports=await _api_ports(reader),
        unread=reader.unread,
        now=reader.now(),
    )


# --- the API server, and where the release is -------------------------------------------------------------


class _VersionInfo(msgspec.Struct, rename="camel"):
    git_version: str = ""


async def _server(reader: Reader) -> Version:
    told = await reader.answer("/version", _VersionInfo)
    found = Version.of(told.git_version) if told is not None else None
    if found is None:
        raise CannotTell(
            "/version does not answer with a version: check that the address is a Kubernetes API server"
        )
    return found


class _GroupVersion(msgspec.Struct):
    version: str


class _Group(msgspec.Struct):
    versions: list[_GroupVersion] = []


class _Named(msgspec.Struct):
    name: str


class _Resources(msgspec.Struct):
    resources: list[_Named] = []


async def _kinds(reader: Reader) -> dict[str, ApiKinds]:
    """Returns what the API server serves of Rekindle's group and of the frameworks' groups. A group that is
    not served is left out."""
    found = {}
    for group in (GROUP, *FRAMEWORKS):
        told = await reader.answer(f"/apis/{group}", _Group)
        if told is not None:
            ours = await reader.answer(f"/apis/{GROUP}/{VERSION}", _Resources) if group == GROUP else None
            plurals = [one.name for one in ours.resources] if ours is not None else []
            found[group] = ApiKinds(tuple(one.version for one in told.versions), frozenset(plurals))
    return found


async def _found(reader: Reader, kinds: Mapping[str, ApiKinds], asked: str) -> str:
    """Returns the namespace of the release: the given one, or the one that has the release, or the default
    one if the account may not list the whole cluster. Raises CannotTell if the release is in another
    namespace than the given one or in several, and NotInstalled if there is none."""
    listed = [
        await reader.every(None, kind, lambda raw: _meta(raw).namespace, labels=_OURS)
        for kind in (_DEPLOYMENTS, _DAEMONSETS)
    ]
    spaces = sorted({space for found in listed for space in found or ()})
    if asked and spaces and asked not in spaces:
        raise CannotTell(
            f"namespace {asked} has no release of Rekindle; the release of this cluster is in namespace "
            f"{some(spaces)}"
        )
    if len(spaces) > 1 and not asked:
        raise CannotTell(
            f"there are releases in {some(spaces)}, and a cluster can have only one; choose one with -n"
        )
    if not spaces and None not in listed:
        if holder := await _leader(reader, asked or Settings().namespace):
            raise CannotTell(
                f"controller {holder} leads, and this cluster has no release of the chart: the controller "
                "was started by hand, so there is no release to check. `rekindle doctor NAMESPACE/JOB` "
                "checks a job"
            )
        left = "; only its CRDs are installed" if GROUP in kinds else ""
        raise NotInstalled(f"Rekindle is not installed in this cluster{left}")
    if asked:
        return asked
    return spaces[0] if spaces else Settings().namespace


async def _leader(reader: Reader, namespace: str) -> str:
    """Returns the controller that holds the Lease; empty if there is no Lease, or nobody has renewed it in
    time."""
    lease = await reader.one(Part.LEASE, LEASES, LEASE, LeaseObject, namespace)
    if lease is None or lease.renewed_at is None:
        return ""
    age_s = (datetime.now(UTC) - lease.renewed_at).total_seconds()
    return lease.spec.holder_identity if age_s <= 2 * lease.spec.lease_duration_seconds else ""


# --- the release ------------------------------------------------------------------------------------------


class _Object(msgspec.Struct):
    metadata: Meta


def _meta(raw: bytes) -> Meta:
    return msgspec.json.decode(raw, type=_Object).metadata


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] = {}


async def _settings(reader: Reader, namespace: str) -> tuple[Settings | None, str]:
    """Returns the controller's settings, or the problem with them; neither if there is no ConfigMap, or if it
    cannot be read."""
    found = await reader.one(Part.SETTINGS, CONFIGMAPS, SETTINGS, _ConfigMap, namespace)
    if found is None:
        return None, ""
    try:
        data = tomllib.loads(found.data.get("controller.toml", ""))
        return convert(data, Settings, file="controller.toml"), ""
    except tomllib.TOMLDecodeError as error:
        return None, f"controller.toml: not valid TOML: {error}"
    except BadValueError as error:
        return None, str(error)


def _state(found: _ConfigMap | None) -> State | None:
    with suppress(KeyError, ValueError):
        if found is not None:
            return State(Mode(found.data["mode"]), datetime.fromisoformat(found.data["since"]))
    return None


def _pod(raw: bytes) -> OwnPod:
    return msgspec.json.decode(raw, type=OwnPod)


def _network(raw: bytes) -> NetworkPolicy:
    return msgspec.json.decode(raw, type=NetworkPolicy)


# --- surroundings of the release --------------------------------------------------------------------------


def _health(raw: bytes) -> tuple[NodeHealth, StatusWrite | None]:
    """Returns the NodeHealth with the last write of its status; None for the write if the API server has not
    recorded its time."""
    health, meta = decode.health(raw), _meta(raw)
    times = [one.time for one in meta.managed_fields if one.subresource == "status" and one.time is not None]
    theirs = health.status.observed_at
    if theirs is None or not times:
        return health, None
    return health, StatusWrite(f"node {meta.name}", theirs, max(times))


class _Port(msgspec.Struct):
    port: int | None = None


class _Slice(msgspec.Struct):
    ports: list[_Port] = []


async def _api_ports(reader: Reader) -> tuple[int, ...]:
    """Returns the ports on which the API server listens, behind its Service."""

    def ports(raw: bytes) -> Iterable[int]:
        return [one.port for one in msgspec.json.decode(raw, type=_Slice).ports if one.port is not None]

    slices = await reader.every(Part.NETWORK, _SLICES, ports, namespace="default", labels=_API_SERVERS)
    return tuple(sorted({port for found in slices or () for port in found}))


async def _gangs(reader: Reader) -> tuple[Gang, ...]:
    lists = [await reader.every(Part.JOBS, w.resource, w.parse) for w in WORKLOADS]
    return tuple(gang for gangs in lists for gang in gangs or () if not gang.part_of)


class _Deployments(msgspec.Struct):
    items: list[Deployment] = []


async def _others(reader: Reader, kinds: Mapping[str, ApiKinds]) -> dict[str, str]:
    """Returns, for each framework that is served, the image of its controller; empty if that is not known."""
    found = {}
    for group, operator in FRAMEWORKS.items():
        if group in kinds:
            asked = {"fieldSelector": f"metadata.name={operator.deployment}"}
            answer = await reader.answer(_DEPLOYMENTS.path(), _Deployments, params=asked)
            images = [one.image for one in answer.items] if answer is not None else []
            found[operator.name] = images[0] if images else ""
    return found
