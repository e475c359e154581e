"""`rekindle cleanup`: removes everything that Rekindle wrote on nodes, before an uninstall. The chart runs
this command in `helm uninstall`.

The controllers end first: the command deletes their Deployment and takes their lease. From then on nobody
else writes, and the lease fences every write of this command as it fenced the controllers' writes. Before
that the command changes nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from detectors.client.kubeapi import ApiError, KubeApi, ReplyLost
from detectors.commands.arguments import Parser
from detectors.commands.exit_status import Exit
from detectors.service.settings import SettingsError, load
from recover.api import Incident, Recovery
from recover.api.marks import REPAIR_OF, SCAN_OF
from recover.cli.cleanup_checks import CONTROLLER, DEPLOYMENTS, CannotCleanUpError, NoAnswerError, look
from recover.cli.cleanup_faults import broken_in_service, stays_cordoned
from recover.cli.cleanup_requests import REQUEUE_S, Requests, metadata_of, warn
from recover.cli.cleanup_undo import Unfinished, environments, remove_condition, under_way, undo
from recover.k8s.kinds import CONFIGMAPS, INCIDENTS, JOBS, LEASES, NODEHEALTHS, NODES, PODS, RECOVERIES
from recover.kube.arguments import add_connection, connection
from recover.kube.clock import WallClock
from recover.kube.cluster import Cluster
from recover.kube.errors import NotLeaderError
from recover.kube.fenced import Fenced
from recover.kube.lease import LEASE, Elector, LeaseLostError, read_record
from recover.kube.rest import RestCluster
from recover.model import decode
from recover.policy.settings import Settings
from recover.runtime.mode_keeper import STATE
from recover.runtime.telemetry import configure_logs
from recover.workloads import WORKLOADS

__all__ = ["run"]

T = TypeVar("T")

DEADLINE_S = 200.0
"""Time limit of the whole removal. Helm waits 300 s by default."""
ANSWER_S = 30.0
"""Time limit for the checks before the removal. An API server that restarts is away only for a moment; a
wrong address stays wrong."""
UNDER_WAY_S = 60.0
"""Time that the command gives running Recoveries to end. A repair rarely ends within this time."""
_INCIDENT = msgspec.json.Decoder(Incident)
_RECOVERY = msgspec.json.Decoder(Recovery)
_START_AGAIN = (
    "To start the controllers: helm rollback RELEASE REVISION, with the newest revision that helm history "
    "RELEASE shows; after a failed helm uninstall Helm refuses helm upgrade"
)
"""Helm refuses the upgrade of a release whose status is `uninstalling`."""
ROUNDS_MAX = 10
"""Number of passes over all nodes. Others write to nodes, too: if a patch comes too late, the next pass makes
a new patch from the node's present state."""


def run(args: list[str]) -> int:
    """Returns the exit status."""
    options = _parser().parse_args(args)
    configure_logs("warning")
    try:
        settings = load(options.settings, options.set, Settings)
        for line in asyncio.run(_main(options, settings)):
            warn(line)
    except SettingsError as error:
        warn(str(error))
        return Exit.UNUSABLE
    except NoAnswerError as error:
        warn(f"{error}; nothing was changed")
        return Exit.NO_ANSWER
    except (CannotCleanUpError, ApiError) as error:
        for line in str(error).splitlines():
            warn(line)
        return Exit.BAD
    print("nothing was changed (dry run)" if options.dry_run else "nothing of Rekindle is left on any node")
    return Exit.GOOD


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "cleanup",
        "End the controllers. Then remove from nodes every cordon, taint, label, annotation and condition of "
        "Rekindle, and delete the scan pods, the Jobs of repairs, and the ConfigMaps that the controller "
        "wrote, except the ConfigMaps of active Recoveries. Changes by people stay. A quarantined node stays "
        "cordoned if its fault is still open, or if no agent reports from the node. While a job is stopped "
        "for a restart, while not all ranks of a restarted job run, or while a node is under repair, the "
        "command waits for up to a minute, then refuses and changes nothing. The command also refuses if a "
        "controller began such work while the command ended the controllers: then the controllers have "
        "ended, and nothing else has changed.",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="Print one line for each change, and change nothing."
    )
    parser.add_argument(
        "--settings", metavar="FILE", type=Path, help="A TOML file with the controller's settings."
    )
    parser.add_argument(
        "--set",
        metavar="[GROUP.]FIELD=VALUE",
        action="append",
        default=[],
        help="One of the controller's settings, for example namespace=NAME; you can repeat this option.",
    )
    add_connection(parser)
    return parser


async def _main(options: argparse.Namespace, settings: Settings) -> list[str]:
    """Returns what no controller will finish, one line each. Raises CannotCleanUpError, NoAnswerError."""
    credentials = await connection(options)
    identity = f"rekindle-cleanup_{uuid.uuid4().hex[:8]}"
    async with KubeApi(credentials, timeout_s=settings.lease.request_timeout_s, user_agent=identity) as own:
        plain = RestCluster(own)
        try:
            async with asyncio.timeout(ANSWER_S):
                await look(Requests(plain, dry_run=options.dry_run), plain, settings.namespace)
        except TimeoutError as error:
            raise NoAnswerError(f"the API server gave no usable answer for {ANSWER_S:g} s") from error
        if options.dry_run:
            return await _rehearse(Requests(plain, dry_run=True), settings)
        elector = Elector(plain, settings, identity, WallClock())
        async with KubeApi(credentials, user_agent=identity, may_send=elector.check) as api:
            cluster = Fenced(RestCluster(api), elector)
            try:
                async with asyncio.timeout(DEADLINE_S):
                    await _wait_for_what_is_under_way(Requests(cluster))
                    await _end_controllers(Requests(plain), settings)
                    return await _alone(elector, lambda: _after_the_controllers(Requests(cluster), settings))
            except TimeoutError as error:
                raise CannotCleanUpError(
                    f"not done within {DEADLINE_S:g} s{await _waited(plain, elector, settings)}"
                ) from error
            finally:
                await cluster.close()
                await elector.release()


async def _rehearse(requests: Requests, settings: Settings) -> list[str]:
    """Prints each write of a removal that would begin now. Raises CannotCleanUpError if it would be
    refused."""
    found = await _under_way(requests)
    for one in found:
        requests.say(f"waits up to {UNDER_WAY_S:g} s: {one.words}")
    await _end_controllers(requests, settings)
    holder = await _holder(requests, settings)
    if holder:
        requests.say(f"waits until {holder} releases the lease {settings.namespace}/{LEASE}")
    await _take_back(requests, settings)
    blocking = [one for one in found if one.blocks]
    if blocking:
        hint = f"without --dry-run this command would wait for up to {UNDER_WAY_S:g} s, and then refuse"
        raise CannotCleanUpError(*_told(blocking), hint)
    return list(_told(found))


async def _holder(requests: Requests, settings: Settings) -> str:
    raw = await requests.get(LEASES, LEASE, settings.namespace)
    return read_record(raw, duration_s=0).holder if raw is not None else ""


async def _waited(cluster: Cluster, elector: Elector, settings: Settings) -> str:
    """Returns the end of the message about the deadline: for what the command waited, and the next step."""
    if elector.leading.is_set():
        return "; it may be run again"
    if not elector.holder_known.is_set():
        return ": the API server gave no usable answer; run this command again when the API server answers"
    lease = f"{settings.namespace}/{LEASE}"
    try:
        raw = await cluster.get(LEASES, LEASE, settings.namespace)
        holder = read_record(raw, duration_s=0).holder or "nobody"
    except (ApiError, ReplyLost) as error:
        return f": the lease {lease} cannot be read ({error})"
    return (
        f": {holder} still holds the lease {lease}, a controller that was started by hand or in a pod that "
        "does not end; end that controller and run this command again"
    )


async def _wait_for_what_is_under_way(requests: Requests) -> None:
    """Waits up to UNDER_WAY_S for Recoveries and repairs to end. Raises CannotCleanUpError, before anything
    is changed."""
    loop = asyncio.get_running_loop()
    found, told = await _under_way(requests), set[str]()
    until_s = loop.time() + UNDER_WAY_S  # a slow API server does not shorten this time
    while found:
        if loop.time() >= until_s:
            blocking = [one for one in found if one.blocks]
            if blocking:
                hint = "nothing was changed, since no controller would be left to finish this"
                raise CannotCleanUpError(*_told(blocking), hint)
            return
        for one in found:
            if one.words not in told:
                requests.say(f"waits up to {UNDER_WAY_S:g} s: {one.words}")
        told |= {one.words for one in found}
        await asyncio.sleep(REQUEUE_S)
        found = await _under_way(requests)


def _told(found: Iterable[Unfinished]) -> Iterator[str]:
    for one in found:
        yield f"{one.words}; {one.needs}"


async def _under_way(requests: Requests) -> list[Unfinished]:
    return under_way(
        [gang for w in WORKLOADS async for gang in requests.every(w.resource, w.parse)],
        [one async for one in requests.every(RECOVERIES, _RECOVERY.decode)],
        [one async for one in requests.every(INCIDENTS, _INCIDENT.decode)],
    )


async def _end_controllers(requests: Requests, settings: Settings) -> None:
    """Deletes the controllers' Deployment. Each controller ends after its last write, and the leader releases
    its lease."""
    await requests.delete(DEPLOYMENTS, CONTROLLER, settings.namespace)


async def _alone(elector: Elector, work: Callable[[], Awaitable[T]]) -> T:
    """Runs `work` while this process holds the lease. Raises what `work` raises, and CannotCleanUpError if
    this process loses the lease."""

    async def work_as_leader() -> T:
        await elector.leading.wait()
        return await work()

    electing = asyncio.create_task(elector.run())
    working = asyncio.create_task(work_as_leader())
    try:
        await asyncio.wait((electing, working), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            await electing
        return await working
    except LeaseLostError as lost:
        hint = "end every other controller and run this command again"
        raise CannotCleanUpError(f"this command lost the lease: {lost}; {hint}") from lost
    finally:
        for task in (electing, working):
            task.cancel()
        await asyncio.gather(electing, working, return_exceptions=True)


async def _after_the_controllers(requests: Requests, settings: Settings) -> list[str]:
    """Returns what no controller will finish, one line each. If the controllers began something in their last
    moment, raises CannotCleanUpError with that, before anything is removed."""
    begun = await _under_way(requests)
    blocking = [one for one in begun if one.blocks]
    if blocking:
        hint = "the controllers ended before they could finish this: start them again, wait, and run this "
        raise CannotCleanUpError(*_told(blocking), f"{hint}command again. {_START_AGAIN}")
    await _take_back(requests, settings)
    return list(_told(begun))


async def _take_back(requests: Requests, settings: Settings) -> None:
    """Removes everything of Rekindle. Raises CannotCleanUpError with what is left."""
    repairs = requests.every(JOBS, metadata_of, settings.namespace, labels=REPAIR_OF)
    for job in [one async for one in repairs]:
        await requests.delete(JOBS, job.name, job.namespace, with_its_pods=True)
    for pod in [one async for one in requests.every(PODS, metadata_of, labels=SCAN_OF)]:
        await requests.delete(PODS, pod.name, pod.namespace)
    recoveries = [one async for one in requests.every(RECOVERIES, _RECOVERY.decode)]
    for namespace, name in environments(recoveries):
        if await _is_environment(requests, name, namespace):
            await requests.delete(CONFIGMAPS, name, namespace)
    told: set[str] = set()
    for _ in range(ROUNDS_MAX):
        left = [trouble async for trouble in _nodes(requests, told)]
        if not left:
            break
        await asyncio.sleep(REQUEUE_S)
    else:
        raise CannotCleanUpError(*left, "you may run this command again")
    await requests.delete(CONFIGMAPS, STATE, settings.namespace)


async def _nodes(requests: Requests, told: set[str]) -> AsyncIterator[str]:
    """Makes one pass over all nodes, and yields one line for each node from which not everything could be
    removed."""
    now = WallClock().now()
    health = {one.metadata.name: one async for one in requests.every(NODEHEALTHS, decode.health)}
    incidents = [one async for one in requests.every(INCIDENTS, _INCIDENT.decode)]
    async for node in requests.every(NODES, lambda raw: decode.node(raw, ())):
        report = health.get(node.name)
        fault = broken_in_service(node, report, incidents, now)
        if fault and node.name not in told:
            told.add(node.name)
            requests.say(
                f"node {node.name}: not changed. The node takes pods although its fault {fault} is open. "
                f"To take the node out of service: kubectl cordon {node.name}"
            )
        for found in (undo(node, stays_cordoned(node, report, incidents, now)), remove_condition(node)):
            if found is None:
                continue
            try:
                await requests.patch(found.patch)
            except (ApiError, ReplyLost, NotLeaderError) as error:
                if not (isinstance(error, ApiError) and error.not_found):
                    yield f"node {node.name}: not everything of Rekindle could be removed: {error}"
            else:
                requests.say(f"node {node.name}: {found.words}")


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] = {}


async def _is_environment(requests: Requests, name: str, namespace: str) -> bool:
    """Whether the ConfigMap is one that the controller wrote. Somebody else may have a ConfigMap of that
    name."""
    raw = await requests.get(CONFIGMAPS, name, namespace)
    return raw is not None and "REKINDLE_RECOVERY" in msgspec.json.decode(raw, type=_ConfigMap).data
