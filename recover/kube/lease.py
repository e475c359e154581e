"""Which controller may write: the one that holds the Lease `rekindle-controller`. fenced.py asks here before
each write; everything else of the controller only waits for `leading`.

Two never write at the same time, because

- the leader counts its time from *sending* the last renewal that was answered, on a clock that goes on while
  the process is stopped and while the machine sleeps. It ends itself when that is over, and sends no write
  that might still be on its way then;
- another one takes the lease only after it has itself watched it unchanged for the lease's whole duration. No
  clock of another machine is believed: times in the Lease are for people;
- each write of the Lease carries the version that was read, so of two that try one is refused. An answer that
  never came means unknown, and the Lease is read again.

`leaseTransitions` is counted up at each acquisition, so holder and transitions together name one reign.

A lease that names our own identity is taken at once: that is a restarted container, whose pod has the name
for itself, and a kubelet starts it only when the one before it is dead. The identity must therefore never be
that of a process that may still live: the name of a Deployment's pod is right, that of a StatefulSet's pod is
not, for it comes back on another node. Should two processes bear one identity all the same, the older finds
at its next renewal that the reign is no longer its own, and ends; until then both may write.

A missing Lease says nothing about who still writes, as somebody may have deleted it: it is made only after
the duration, too. A leader whose Lease is gone ends. Whoever installs Rekindle may create the Lease without
a holder, so that the first controller need not wait. Emptying the holder by hand says that it writes no more.

A controller that stands by also watches the Lease, so it takes at once what a leader gives back. The watch
only shortens a wait: whatever it shows, the Lease is read again before it is taken.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, NoReturn, Protocol

import msgspec
import structlog

from detectors.client.kubeapi import ApiError, ReplyLost, WatchEvent
from detectors.wire.resource import Resource
from recover.k8s.identities import Versioned
from recover.k8s.kinds import LEASES
from recover.kube.clock import Clock
from recover.kube.errors import NotLeaderError
from recover.policy.settings import Settings

__all__ = ["LEASE", "Elector", "LeaseLostError", "Record", "read_record"]

LEASE = "rekindle-controller"
MISSING = ""
"""The version of a Lease that is not there."""
WATCH_S = 300.0
MOMENT_S = 0.01
"""No wait is shorter: what differences of times leave of one may be less than a clock can tell."""

log = structlog.get_logger(__name__)


def uptime_s() -> float:
    """A clock that nobody sets, and that counts a machine's sleep where the kernel has such a one."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class LeaseLostError(Exception):
    """This process no longer holds the lease, and must end without a further write."""


class Record(msgspec.Struct, frozen=True):
    """What a Lease says. An empty holder: nobody holds it."""

    version: str
    holder: str
    duration_s: float
    transitions: int = 0
    garbled: str = ""
    """What could not be understood, for the log."""


class _Lease(Versioned, frozen=True):
    spec: Any = None


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: Any = None
    lease_duration_seconds: Any = None
    lease_transitions: Any = None


def read_record(raw: bytes, *, duration_s: float) -> Record:
    """Where a field makes no sense the careful reading holds: somebody has it, for our own duration.

    Raises ReplyLost for what is no API object at all.
    """
    try:
        lease = msgspec.json.decode(raw, type=_Lease)
    except msgspec.MsgspecError as error:
        raise ReplyLost(f"the answer is not a Lease: {error}") from error
    version = lease.metadata.resource_version
    if lease.spec is None:
        return Record(version, "", duration_s)
    if not isinstance(lease.spec, dict):
        return Record(version, "(unreadable)", duration_s, garbled="spec")
    spec = msgspec.convert(lease.spec, _Spec)
    garbled = []
    holder = spec.holder_identity
    if holder is None:
        holder = ""
    elif not isinstance(holder, str):
        garbled.append("holderIdentity")
        holder = "(unreadable)"
    lasts_s = spec.lease_duration_seconds
    if not _is_count(lasts_s) or lasts_s == 0:
        if holder:
            garbled.append("leaseDurationSeconds")
        lasts_s = duration_s
    transitions = 0 if spec.lease_transitions is None else spec.lease_transitions
    if not _is_count(transitions):
        garbled.append("leaseTransitions")
        transitions = 0
    return Record(version, holder, float(lasts_s), transitions, ", ".join(garbled))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _has_no_holder(event: WatchEvent) -> bool:
    try:
        return not read_record(bytes(event.object), duration_s=0).holder
    except ReplyLost:
        return False


class LeaseApi(Protocol):
    """The part of Cluster by which the lease is read and written."""

    async def get(self, resource: Resource, name: str, namespace: str = "") -> bytes: ...

    def watch(
        self, resource: Resource, *, namespace: str, fields: str, resource_version: str, timeout_s: float
    ) -> AsyncIterator[WatchEvent]: ...

    async def create(self, resource: Resource, body: Any, namespace: str = "") -> bytes: ...

    async def patch(self, resource: Resource, name: str, body: Any, *, namespace: str = "") -> bytes: ...


class Elector:
    """Takes the lease and keeps it. `leading` stays set once it is ours: losing it ends the process.

    `api` should have a connection and a request timeout of its own, well below the renew deadline: then
    the controller's other requests cannot hold a renewal up.
    """

    def __init__(
        self,
        api: LeaseApi,
        settings: Settings,
        identity: str,
        clock: Clock,
        uptime: Callable[[], float] = uptime_s,
    ) -> None:
        self._api = api
        self._lease = settings.lease
        self._namespace = settings.namespace
        self._identity = identity
        self._clock = clock
        self._uptime = uptime
        self._sent_s = -math.inf
        """When the last renewal that was answered was sent."""
        self._transitions = 0
        self._version = MISSING
        self._watched: Record | None = None
        self._watched_since_s = 0.0
        self._given_back = asyncio.Event()
        """A watch has shown the Lease without a holder."""
        self.looked = asyncio.Event()
        """Set once it is known whether somebody else leads."""
        self.leading = asyncio.Event()

    @property
    def write_timeout_s(self) -> float:
        return self._lease.write_timeout_s

    def left_s(self) -> float:
        """For so long nobody else can lead. Negative once somebody may."""
        return self._sent_s + self._lease.duration_s - self._uptime()

    def check(self) -> None:
        """Raises NotLeaderError unless a write that is sent now is over before anybody else may lead."""
        if self.left_s() <= self.write_timeout_s:
            raise NotLeaderError("this controller does not hold the lease, or not for long enough")

    async def run(self) -> NoReturn:
        """Waits for the lease, then keeps it. Raises LeaseLostError when it cannot."""
        await self._acquire()
        log.info("leading", identity=self._identity, transitions=self._transitions)
        self.leading.set()
        self.looked.set()
        while True:
            await asyncio.sleep(self._lease.retry_s)
            await self._renew()

    # --- standing by --------------------------------------------------------------------------------------

    async def _acquire(self) -> None:
        watching: asyncio.Task[NoReturn] | None = None
        try:
            while True:
                wait_s = await self._try_to_acquire()
                if self.left_s() > self.write_timeout_s:
                    return
                watching = watching or asyncio.create_task(self._watch())
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._given_back.wait()
                self._given_back.clear()
        finally:
            if watching is not None:
                watching.cancel()
                await asyncio.wait([watching])

    async def _watch(self) -> NoReturn:
        """Without a version, a watch begins with the Lease as it is."""
        lease = {"namespace": self._namespace, "fields": f"metadata.name={LEASE}"}
        while True:
            with suppress(ApiError, ReplyLost):
                async for event in self._api.watch(LEASES, **lease, resource_version="", timeout_s=WATCH_S):
                    if event.type in ("ADDED", "MODIFIED") and _has_no_holder(event):
                        self._given_back.set()
            await asyncio.sleep(self._lease.duration_s)

    async def _try_to_acquire(self) -> float:
        """Returns in how many seconds to try again, if it is not ours now."""
        retry_s = self._lease.retry_s
        try:
            record = await self._read()
            free_in_s = self._free_in_s(record)
            if free_in_s > 0:
                self.looked.set()
                return min(max(free_in_s, MOMENT_S), retry_s)
            self._transitions = record.transitions + 1
            await self._take(record.version)
        except ApiError as error:
            if error.status == 409:
                return retry_s / 4  # another one was faster, or a write of ours whose answer was lost
            log.warning("the lease cannot be had, trying again", why=str(error), retry_in_s=retry_s)
        except ReplyLost as error:
            log.warning("unknown who holds the lease, reading it again", why=str(error), retry_in_s=retry_s)
        return retry_s

    def _free_in_s(self, record: Record) -> float:
        """Any new version begins the wait anew: equal times would prove nothing, clocks can be set back. A
        duration shorter than ours is not believed either: somebody may have edited it."""
        if record.version != MISSING and record.holder in ("", self._identity):
            return 0.0
        before = self._watched
        if before is None or before.version != record.version:
            if before is None or before.holder != record.holder:
                log.info("standing by", holder=record.holder, its_duration_s=record.duration_s)
            if record.garbled:
                log.warning("fields of the Lease make no sense", name=LEASE, fields=record.garbled)
            self._watched, self._watched_since_s = record, self._uptime()
        return self._watched_since_s + max(record.duration_s, self._lease.duration_s) - self._uptime()

    async def _take(self, version: str) -> None:
        now = self._now()
        spec = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._lease.duration_s,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": self._transitions,
        }
        await self._send(version, spec)

    # --- leading ------------------------------------------------------------------------------------------

    async def _renew(self) -> None:
        """Until one renewal is answered. Raises LeaseLostError if that comes too late, or it is not ours."""
        why = f"no renewal was answered for {self._lease.renew_deadline_s:g} s"
        in_time_s = self.left_s() - self.write_timeout_s
        if in_time_s <= 0:
            raise self._lost(why)
        try:
            async with asyncio.timeout(in_time_s):
                while not await self._renewed():
                    await asyncio.sleep(self._lease.retry_s / 4)
        except TimeoutError as error:
            raise self._lost(why) from error

    def _lost(self, why: str) -> LeaseLostError:
        """No write is sent from now on, whoever handles the error."""
        self._sent_s = -math.inf
        return LeaseLostError(why)

    async def _renewed(self) -> bool:
        try:
            if self._version == MISSING:
                self._version = (await self._read_own()).version
            kept = {"leaseDurationSeconds": self._lease.duration_s, "renewTime": self._now()}
            await self._send(self._version, kept)
        except (ApiError, ReplyLost) as error:
            log.warning("the lease was not renewed, reading it again", why=str(error), left_s=self.left_s())
            self._version = MISSING
            return False
        return True

    async def _read_own(self) -> Record:
        """Raises LeaseLostError if it is another's, or a reign of ours that this process did not begin."""
        record = await self._read()
        if record.version == MISSING:
            raise self._lost("the Lease was deleted")
        if (record.holder, record.transitions) != (self._identity, self._transitions):
            raise self._lost(f"{record.holder or 'nobody'} holds the lease (transition {record.transitions})")
        return record

    async def release(self) -> None:
        """After the last write: a successor need not wait. Best effort, for it runs out by itself, too."""
        if not self.leading.is_set():
            return
        self._sent_s = -math.inf
        try:
            async with asyncio.timeout(self.write_timeout_s):
                record = await self._read_own()
                body = {"metadata": {"resourceVersion": record.version}, "spec": {"holderIdentity": ""}}
                await self._api.patch(LEASES, LEASE, body, namespace=self._namespace)
        except (ApiError, ReplyLost, TimeoutError, LeaseLostError) as error:
            log.warning("the lease is not released, it runs out by itself", why=str(error))

    # --- the object ---------------------------------------------------------------------------------------

    async def _read(self) -> Record:
        duration_s = float(self._lease.duration_s)
        try:
            raw = await self._api.get(LEASES, LEASE, self._namespace)
        except ApiError as error:
            if not error.not_found:
                raise
            return Record(MISSING, "(no Lease)", duration_s)
        return read_record(raw, duration_s=duration_s)

    async def _send(self, version: str, spec: dict[str, Any]) -> None:
        """Only an answered one counts, and it counts from here."""
        sent_s = self._uptime()
        if version == MISSING:
            body = {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": {"name": LEASE, "namespace": self._namespace},
                "spec": spec,
            }
            raw = await self._api.create(LEASES, body, self._namespace)
        else:
            body = {"metadata": {"resourceVersion": version}, "spec": spec}
            raw = await self._api.patch(LEASES, LEASE, body, namespace=self._namespace)
        self._version = read_record(raw, duration_s=0).version
        self._sent_s = sent_s

    def _now(self) -> str:
        return self._clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
