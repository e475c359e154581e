"""Reads mode, leader and pause for `rekindle status`, and the jobs of Recoveries. `rekindle why` reads only
the pause and the namespace of the release here. I/O only.

`Installed.hidden` names the parts that may not be read; `status` shows the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime

import msgspec

from detectors.client.kubeapi import ApiError, ReplyLost
from recover.api import GangRef, Recovery
from recover.k8s.kinds import CONFIGMAPS, LEASES
from recover.kube.cluster import Cluster
from recover.kube.lease import LEASE
from recover.model import Gang
from recover.model.modes import Modes
from recover.model.pause import PAUSE, Pause, read_pause
from recover.policy.settings import Settings
from recover.runtime.mode_keeper import STATE, kept_modes
from recover.snapshot.agents_seen import release_namespace
from recover.snapshot.read import unanswered
from recover.stories.installation import Installed
from recover.stories.overview import Jobs
from recover.workloads import WORKLOADS

__all__ = ["installation_seen", "jobs_seen", "pause_seen", "release_seen"]

_JOBS_MAX = 50
"""Number of jobs that are read. If more Recoveries are shown, `status` shows the rest without reading their
jobs."""


class _Managed(msgspec.Struct):
    time: datetime | None = None


class _Meta(msgspec.Struct, rename="camel"):
    managed_fields: list[_Managed] = []


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str = ""
    lease_duration_seconds: int = 15
    renew_time: datetime | None = None


class _Lease(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] = {}


async def installation_seen(cluster: Cluster) -> Installed:
    """Returns what could be read of the installation. Raises CannotTell."""
    try:
        namespace = await release_namespace(cluster) or Settings().namespace
        hidden: list[str] = []
        lease, state = _Lease(), _ConfigMap()
        try:
            lease = msgspec.json.decode(await cluster.get(LEASES, LEASE, namespace), type=_Lease)
        except (ApiError, msgspec.MsgspecError) as error:
            if not (isinstance(error, ApiError) and error.not_found):
                hidden.append("lease")
        try:
            state = msgspec.json.decode(await cluster.get(CONFIGMAPS, STATE, namespace), type=_ConfigMap)
        except (ApiError, msgspec.MsgspecError) as error:
            if not (isinstance(error, ApiError) and error.not_found):
                hidden.append("mode")
        pause: Pause | None = None
        try:
            pause = await _pause(cluster, namespace)
        except ApiError:
            hidden.append("pause")
    except ReplyLost as error:
        raise unanswered(error) from error
    times = [one.time for one in lease.metadata.managed_fields if one.time is not None]
    kept = _kept(state.data)
    if "pause" in hidden and kept is not None:
        pause = kept.paused  # the pause as the controller has recorded it
    return Installed(
        namespace=namespace,
        mode=kept.cluster.mode if kept is not None else None,
        mode_since=kept.cluster.since.get(kept.cluster.mode) if kept is not None else None,
        leader=lease.spec.holder_identity,
        renewed_at=max(times, default=lease.spec.renew_time),
        pause=pause,
        lease_s=lease.spec.lease_duration_seconds,
        hidden=tuple(hidden),
    )


async def _pause(cluster: Cluster, namespace: str) -> Pause | None:
    try:
        return read_pause(await cluster.get(CONFIGMAPS, PAUSE, namespace))
    except ApiError as error:
        if error.not_found:
            return None
        raise


async def release_seen(cluster: Cluster) -> str:
    """Returns the namespace of the Helm release; empty if it is not known. Raises CannotTell."""
    try:
        return await release_namespace(cluster)
    except ReplyLost as error:
        raise unanswered(error) from error


async def pause_seen(cluster: Cluster, release: str, now: datetime) -> Pause | None:
    """Returns the pause that is in force; None if there is none, or if it may not be read. `release` is the
    namespace of the Helm release, if it is known. Raises CannotTell."""
    try:
        found = await _pause(cluster, release or Settings().namespace)
    except ApiError:
        return None
    except ReplyLost as error:
        raise unanswered(error) from error
    return found if found is not None and found.lasts(now) else None


def _kept(data: dict[str, str]) -> Modes | None:
    """Returns the recorded modes; None if no controller has led yet, or if the ConfigMap cannot be
    decoded."""
    try:
        return kept_modes(data)
    except (KeyError, ValueError):
        return None


async def jobs_seen(cluster: Cluster, recoveries: Iterable[Recovery]) -> Jobs:
    """Returns the jobs of the first of these Recoveries. A job that may not be read is in neither list, since
    it may exist. Raises CannotTell."""
    jobs = {(r.spec.gang.kind, r.spec.gang.namespace, r.spec.gang.name): r.spec.gang for r in recoveries}
    gone: list[GangRef] = []
    gangs: list[Gang] = []
    for job in list(jobs.values())[:_JOBS_MAX]:
        workload = next((w for w in WORKLOADS if w.resource.kind == job.kind), None)
        if workload is None or workload.resource.api_version != job.api_version:
            continue
        try:
            with suppress(ValueError):  # an object that cannot be decoded exists
                gangs.append(workload.parse(await cluster.get(workload.resource, job.name, job.namespace)))
        except ApiError as error:
            if error.not_found:
                gone.append(job)
        except ReplyLost as error:
            raise unanswered(error) from error
    return Jobs(gangs=tuple(gangs), gone=tuple(gone))
