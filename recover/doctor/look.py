"""Reads one job and its surroundings from the API, as a Case. I/O only.

The Case names the parts that could not be read, and the checks that need these parts are not made. If the job
itself cannot be read, there is no Case.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from detectors.client.kubeapi import ApiError, ReplyLost
from detectors.text.strict import BadValueError
from detectors.wire.resource import Resource
from recover.api.recipe_spec import Recipe
from recover.doctor.case import NOT_ALLOWED, NOT_ANSWERED, Case, Part
from recover.doctor.saves import claim_of
from recover.k8s.kinds import CONFIGMAPS, NAMESPACES, NODEHEALTHS, NODES, RECIPES
from recover.kube.cluster import Cluster
from recover.model import Gang, Pod, PodPhase
from recover.model.modes import Mode, Modes
from recover.policy.settings import Settings
from recover.recipes.load import built_in
from recover.recipes.objects import seen, settle
from recover.runtime.mode_keeper import STATE, kept_modes
from recover.snapshot.agents_seen import release_namespace
from recover.snapshot.find import NotFound, find, namespace_of
from recover.snapshot.read import CannotTell, Snapshot, pods_of, read, unanswered
from recover.workloads import workload_of
from recover.workloads.as_written import Written

__all__ = ["look"]

_SETTINGS = Settings()
_CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
_POLICIES = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingadmissionpolicies",
    "MutatingAdmissionPolicy",
    namespaced=False,
)
_ENVIRONMENT = "rekindle-environment"
"""The chart's policy that lets new pods read the environment."""


class _State(msgspec.Struct, frozen=True):
    data: dict[str, str]


class _ClaimSpec(msgspec.Struct, frozen=True, rename="camel"):
    access_modes: list[str] = []


class _Claim(msgspec.Struct, frozen=True):
    spec: _ClaimSpec = _ClaimSpec()


async def look(
    cluster: Cluster, asked: str, namespace: str, now: datetime, default_namespace: str = ""
) -> tuple[Case, list[str]]:
    """Returns the job that the person named, and notes on what could not be read. `default_namespace` is the
    namespace that the kubeconfig names. Raises CannotTell, NotFound."""
    snapshot = await read(cluster, namespace=namespace, instead=namespace_of(asked) or default_namespace)
    job = find(asked, snapshot, namespace, command="doctor", default_namespace=default_namespace)
    if isinstance(job, str):
        raise NotFound(f"{job} is a node: expected a job. For the node: `rekindle why node/{job}`")
    if job.gang is None:
        raise NotFound(
            f"{job.ref} cannot be checked. {job.absence.of(job.ref)} Its recoveries: "
            f"rekindle why -n {job.ref.namespace} {job.ref.kind.lower()}/{job.ref.name}"
        )
    try:
        return await _around(cluster, job.gang, snapshot, now)
    except ReplyLost as error:
        raise unanswered(error) from error


async def _around(cluster: Cluster, gang: Gang, snapshot: Snapshot, now: datetime) -> tuple[Case, list[str]]:
    unread = _hidden(gang, snapshot)
    release = await release_namespace(cluster) or _SETTINGS.namespace
    modes = await _modes(cluster, release, unread)
    notes = list(snapshot.notes)
    case = Case(
        gang=gang,
        spec=await _spec(cluster, gang),
        recipes=await _recipes(cluster, notes),
        now=now,
        mode=modes.cluster.mode if modes is not None else Mode.OBSERVE,
        mode_kept_in=f"{release}/{STATE}",
        modes=modes,
        namespace=snapshot.namespaces.get(gang.ref.namespace),
        nodes=snapshot.nodes,
        health=snapshot.health,
        pods=await _pods(cluster, gang, unread),
        claim=f"{gang.ref.namespace}/{claim_of(gang)}",
        access_modes=await _access_modes(cluster, gang, unread),
        adds_environment=await _has_policy(cluster),
        unread=unread,
    )
    return case, notes


def _hidden(gang: Gang, snapshot: Snapshot) -> dict[Part, str]:
    """Returns the parts that the snapshot could not read, each with the reason."""
    lists = {Part.NODES: NODES, Part.HEALTH: NODEHEALTHS, Part.NAMESPACE: NAMESPACES}
    unread = {
        part: f"{NOT_ALLOWED} read {resource.plural}"
        for part, resource in lists.items()
        if resource.plural in snapshot.hidden
    }
    if gang.ref.namespace in snapshot.namespaces:
        unread.pop(Part.NAMESPACE, None)  # the namespace was read by its name
    else:
        unread.setdefault(Part.NAMESPACE, f"the namespace {gang.ref.namespace} was not found")
    return unread


async def _spec(cluster: Cluster, gang: Gang) -> Written:
    """Returns the job as its owner wrote it. Raises NotFound, CannotTell."""
    try:
        raw = await cluster.get(gang.resource, gang.ref.name, gang.ref.namespace)
        return workload_of(gang).written(msgspec.json.decode(raw), str(gang.ref), "")
    except ApiError as error:
        if error.not_found:
            raise NotFound(f"somebody has just deleted {gang.ref}") from error
        raise CannotTell(f"{gang.ref} cannot be read: {error}") from error
    except BadValueError as error:
        raise CannotTell(str(error)) from error


async def _modes(cluster: Cluster, namespace: str, unread: dict[Part, str]) -> Modes | None:
    kept_in = f"ConfigMap {namespace}/{STATE}"
    try:
        raw = await cluster.get(CONFIGMAPS, STATE, namespace)
        return kept_modes(msgspec.json.decode(raw, type=_State).data)
    except ApiError as error:
        unread[Part.MODE] = _unread(error, kept_in, "no controller of that namespace has led so far")
    except KeyError as error:
        unread[Part.MODE] = f"{kept_in}: data.{error.args[0]} is missing"
    except ValueError as error:
        unread[Part.MODE] = f"{kept_in}: {error}"
    return None


def _unread(error: ApiError, what: str, missing: str = "") -> str:
    """Returns why an object could not be read. A missing permission, a missing object or kind (with what that
    means), and a failing API server have different texts."""
    if error.not_found:
        return f"there is no {what}" + (f": {missing}" if missing else "")
    if error.status in (401, 403):
        return f"{NOT_ALLOWED} read {what} ({error.message})"
    return f"{NOT_ANSWERED} {what} ({error})"


async def _pods(cluster: Cluster, gang: Gang, unread: dict[Part, str]) -> tuple[Pod, ...]:
    """Returns the gang's pods that have not ended."""
    try:
        found = await pods_of(cluster, gang)
    except ApiError as error:
        unread[Part.RUNNING] = _unread(error, f"the pods of {gang.ref.namespace}")
        return ()
    mine = tuple(pod for pod in found if not pod.ended)
    if not any(pod.phase is PodPhase.RUNNING for pod in mine):
        unread[Part.RUNNING] = "no pod of the job runs"
    return mine


async def _access_modes(cluster: Cluster, gang: Gang, unread: dict[Part, str]) -> tuple[str, ...] | None:
    """Returns the access modes of the claim with the checkpoints; None if there is no such claim."""
    claim = claim_of(gang)
    if not claim:
        unread[Part.CLAIM] = "the checkpoints are not on a volume claim that this command knows"
        return ()
    try:
        raw = await cluster.get(_CLAIMS, claim, gang.ref.namespace)
        return tuple(msgspec.json.decode(raw, type=_Claim).spec.access_modes)
    except ApiError as error:
        if error.not_found:
            return None
        unread[Part.CLAIM] = _unread(error, f"PersistentVolumeClaim {claim}")
    except msgspec.MsgspecError as error:
        unread[Part.CLAIM] = f"PersistentVolumeClaim {claim}: {error}"
    return ()


async def _has_policy(cluster: Cluster) -> bool | None:
    try:
        await cluster.get(_POLICIES, _ENVIRONMENT)
    except ApiError as error:
        return False if error.not_found else None
    return True


async def _recipes(cluster: Cluster, notes: list[str]) -> Mapping[str, Recipe]:
    """Returns the built-in recipes and people's own recipes, as the controller uses them."""
    try:
        answer = await cluster.list(RECIPES)
        return settle(built_in(), [seen(bytes(raw)) for raw in answer.items]).recipes
    except ApiError as error:
        notes.append(
            "this command used only the packaged recipes: "
            f"{_unread(error, 'recipes.rekindle.dev', 'CRD missing')}"
        )
    except msgspec.MsgspecError as error:
        notes.append(f"this command used only the packaged recipes: {error}")
    return built_in()
