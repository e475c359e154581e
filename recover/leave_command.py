"""`rekindle leave`: takes back what Rekindle has written on nodes, before it is removed. The chart runs it in
`helm uninstall`.

Controllers go first: their Deployment is deleted, and the lease taken, so nobody writes beside this command,
and every write of its own is fenced as theirs were. Until then nothing is changed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from detectors.command_line import Parser
from detectors.contract import ObjectMeta
from detectors.kubeapi import ApiError, KubeApi, ReplyLost
from detectors.resource import Resource
from detectors.settings import SettingsError, load
from recover import decode
from recover.api import Incident, Recovery
from recover.errors import NotLeaderError
from recover.kube.arguments import add_connection, connection
from recover.kube.cluster import Cluster
from recover.kube.fenced import Fenced
from recover.kube.lease import LEASE, Elector, LeaseLostError
from recover.kube.rest import RestCluster
from recover.leaving import environments, under_way, undo
from recover.mode import STATE
from recover.resources import CONFIGMAPS, INCIDENTS, JOBS, NODES, PODS, RECOVERIES
from recover.settings import Settings
from recover.telemetry import WallClock, configure_logs
from recover.workloads import WORKLOADS

__all__ = ["run"]

T = TypeVar("T")

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
CONTROLLER = "rekindle-controller"
"""The Deployment, as the chart names it."""
DEADLINE_S = 200.0
"""Of all of it. Helm waits 300 s unless it is told otherwise."""
UNDER_WAY_S = 60.0
"""Jobs that are being restarted have this long to be started again; of a repair it is rarely the end."""
LOOK_AGAIN_S = 1.0
ROUNDS_MAX = 10
"""Others write to nodes, too; a patch that comes too late is made anew from what is there then."""


class CannotLeaveError(Exception):
    """What is left, and what to do; one line for each."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))


def run(args: list[str]) -> int:
    """The command's exit status."""
    options = _parser().parse_args(args)
    configure_logs("warning")
    try:
        settings = load(options.settings, options.set, Settings)
        asyncio.run(_main(options, settings))
    except SettingsError as error:
        print(f"rekindle leave: {error}", file=sys.stderr)
        return 2
    except (CannotLeaveError, ApiError) as error:
        for line in str(error).splitlines():
            print(f"rekindle leave: {line}", file=sys.stderr)
        return 1
    print("nothing of Rekindle is left on any node")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "leave",
        "End the controllers, then take back every cordon, taint, label and annotation of Rekindle on nodes, "
        "the pods that look for checkpoints, the Jobs of repairs, and what the controller remembers. What "
        "people wrote stays. Nothing is changed while a job is being restarted or a node repaired.",
    )
    parser.add_argument("--settings", metavar="FILE", type=Path, help="The controller's settings as TOML.")
    parser.add_argument(
        "--set",
        metavar="GROUP.FIELD=VALUE",
        action="append",
        default=[],
        help="One of its settings, as namespace=NAME; may be repeated.",
    )
    add_connection(parser)
    return parser


async def _main(options: argparse.Namespace, settings: Settings) -> None:
    credentials = await connection(options)
    identity = f"rekindle-leave_{uuid.uuid4().hex[:8]}"
    async with KubeApi(credentials, timeout_s=settings.lease.request_timeout_s, user_agent=identity) as own:
        elector = Elector(RestCluster(own), settings, identity, WallClock())
        async with KubeApi(credentials, user_agent=identity, may_send=elector.check) as api:
            cluster = Fenced(RestCluster(api), elector)
            try:
                async with asyncio.timeout(DEADLINE_S):
                    await _wait_for_what_is_under_way(cluster)
                    await _end_controllers(RestCluster(own), settings)
                    await _alone(elector, lambda: _take_back(cluster, settings))
            except TimeoutError as error:
                raise CannotLeaveError(
                    f"not done within {DEADLINE_S:g} s{_waited(elector, settings)}"
                ) from error
            finally:
                await cluster.close()
                await elector.release()


def _waited(elector: Elector, settings: Settings) -> str:
    if elector.leading.is_set():
        return "; it may be run again"
    if not elector.looked.is_set():
        return ": the API server gave no usable answer; run this again once it does"
    return (
        f": a controller still holds the lease {settings.namespace}/{LEASE}, one that was started by hand "
        "or in a pod that does not end; end it and run this again"
    )


async def _wait_for_what_is_under_way(cluster: Cluster) -> None:
    """Raises CannotLeaveError, before anything is changed."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + UNDER_WAY_S
    told: list[str] = []
    while True:
        found = await _under_way(cluster)
        if not found:
            return
        if loop.time() >= until_s:
            hint = "nothing was changed: without a controller nobody would finish it. Wait, and run it again"
            raise CannotLeaveError(*found, hint)
        for sentence in found:
            if sentence not in told:
                print(f"waits: {sentence}")
        told = found
        await asyncio.sleep(LOOK_AGAIN_S)


async def _under_way(cluster: Cluster) -> list[str]:
    return under_way(
        [gang for w in WORKLOADS async for gang in _every(cluster, w.resource, w.parse)],
        [one async for one in _every(cluster, RECOVERIES, msgspec.json.Decoder(Recovery).decode)],
        [one async for one in _every(cluster, INCIDENTS, msgspec.json.Decoder(Incident).decode)],
    )


async def _end_controllers(cluster: Cluster, settings: Settings) -> None:
    """Each ends after its last write, and the leader gives its lease away."""
    await _delete(cluster, DEPLOYMENTS, CONTROLLER, settings.namespace)


async def _alone(elector: Elector, work: Callable[[], Awaitable[None]]) -> None:
    """While this process holds the lease. Raises what `work` raises, and CannotLeaveError where the lease is
    not kept."""

    async def work_as_leader() -> None:
        await elector.leading.wait()
        await work()

    electing = asyncio.create_task(elector.run())
    working = asyncio.create_task(work_as_leader())
    try:
        await asyncio.wait((electing, working), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            await electing
        await working
    except LeaseLostError as lost:
        hint = "end every other controller and run this again"
        raise CannotLeaveError(f"the lease was not kept: {lost}; {hint}") from lost
    finally:
        for task in (electing, working):
            task.cancel()
        await asyncio.gather(electing, working, return_exceptions=True)


async def _take_back(cluster: Cluster, settings: Settings) -> None:
    """Raises CannotLeaveError with what is left, and before anything is taken back with what the controllers
    have begun in their last moment."""
    begun = await _under_way(cluster)
    if begun:
        hint = (
            "the controllers have ended in the middle of it: start them again (helm upgrade), wait, and run "
        )
        raise CannotLeaveError(*begun, f"{hint}this again")
    repairs = _every(cluster, JOBS, _metadata, settings.namespace, labels=decode.REPAIR_OF)
    for job in [one async for one in repairs]:
        await _delete(cluster, JOBS, job.name, job.namespace, with_its_pods=True)
    for pod in [one async for one in _every(cluster, PODS, _metadata, labels=decode.SCAN_OF)]:
        await _delete(cluster, PODS, pod.name, pod.namespace)
    recoveries = [one async for one in _every(cluster, RECOVERIES, msgspec.json.Decoder(Recovery).decode)]
    for namespace, name in environments(recoveries):
        if await _is_environment(cluster, name, namespace):
            await _delete(cluster, CONFIGMAPS, name, namespace)
    for _ in range(ROUNDS_MAX):
        left = [trouble async for trouble in _nodes(cluster)]
        if not left:
            break
        await asyncio.sleep(LOOK_AGAIN_S)
    else:
        raise CannotLeaveError(*left, "it may be run again")
    await _delete(cluster, CONFIGMAPS, STATE, settings.namespace)


async def _nodes(cluster: Cluster) -> AsyncIterator[str]:
    """One look at all nodes; what could not be taken back, one line for each node."""
    async for node in _every(cluster, NODES, lambda raw: decode.node(raw, ())):
        found = undo(node)
        if found is None:
            continue
        patch = found.patch
        metadata = {**patch.body["metadata"], "uid": patch.uid, "resourceVersion": patch.version}
        try:
            await cluster.patch(patch.resource, patch.name, {**patch.body, "metadata": metadata})
        except (ApiError, ReplyLost, NotLeaderError) as error:
            if not (isinstance(error, ApiError) and error.not_found):
                yield f"node {node.name} is not as it was: {error}"
        else:
            print(f"node {node.name}: {found.words}")


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] = {}


async def _is_environment(cluster: Cluster, name: str, namespace: str) -> bool:
    """Somebody else may have one of that name."""
    try:
        raw = await _answered(partial(cluster.get, CONFIGMAPS, name, namespace))
    except ApiError as error:
        if not error.not_found:
            raise
        return False
    return "REKINDLE_RECOVERY" in msgspec.json.decode(raw, type=_ConfigMap).data


class _Named(msgspec.Struct):
    metadata: ObjectMeta


def _metadata(raw: bytes) -> ObjectMeta:
    return msgspec.json.decode(raw, type=_Named).metadata


# --- requests ---------------------------------------------------------------------------------------------


async def _every(
    cluster: Cluster, resource: Resource, parse: Callable[[bytes], T], namespace: str = "", labels: str = ""
) -> AsyncIterator[T]:
    """All that can be read; none of a kind that this cluster does not know."""
    page = ""
    while True:
        try:
            answer = await _answered(
                partial(cluster.list, resource, namespace=namespace, labels=labels, page=page)
            )
        except ApiError as error:
            if not error.not_found:
                raise
            return
        for item in answer.items:
            try:
                yield parse(bytes(item))
            except msgspec.MsgspecError as error:
                told = f"one of {resource.plural} cannot be read and is left as it is: {error}"
                print(f"rekindle leave: {told}", file=sys.stderr)
        page = answer.next_page
        if not page:
            return


async def _delete(
    cluster: Cluster, resource: Resource, name: str, namespace: str, *, with_its_pods: bool = False
) -> None:
    """Pods of a Job would be left behind by themselves, a reboot that is under way among them."""
    try:
        await _answered(
            partial(cluster.delete, resource, name, namespace=namespace, foreground=with_its_pods)
        )
    except ApiError as error:
        if not error.not_found:
            raise
    else:
        print(f"{resource.kind.lower()} {name} deleted")


async def _answered(call: Callable[[], Awaitable[T]]) -> T:
    """Asks again while the API server is overloaded or away; the deadline of all of it is the end."""
    while True:
        try:
            return await call()
        except ReplyLost as error:
            why = str(error)
        except ApiError as error:
            if error.status != 429 and error.status < 500:
                raise
            why = str(error)
        print(f"rekindle leave: asks again: {why}", file=sys.stderr)
        await asyncio.sleep(LOOK_AGAIN_S)
