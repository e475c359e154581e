"""Decides which controller may write: the holder of the Lease `rekindle-controller`. fenced.py checks the
lease before each write; every other part of the controller only waits for `leading`.

Two controllers never write at the same time, because

- the leader counts its time from *sending* the last renewal that was answered, on a clock that runs on while
  the process is stopped and while the machine sleeps. The leader ends itself when that time is over, and
  sends no write that might still be in flight then;
- another controller takes the lease only after it has itself watched the Lease unchanged for the lease's
  whole duration. A controller trusts no clock of another machine: the times in the Lease are for people;
- each write of the Lease carries the version that was read, so if two controllers write, one is refused. If
  an answer never came, the outcome is unknown, and the Lease is read again.

Each acquisition increments `leaseTransitions`, so holder and transitions together name one reign.

A controller takes a lease that names its own identity at once: its container was restarted, the pod's name is
unique, and a kubelet starts the container only when the previous one is dead. The identity must therefore
never be that of a process that may still live. The name of a Deployment's pod is right; that of a
StatefulSet's pod is not, because the pod can come back on another node. If two processes nevertheless have
one identity, the older finds at its next renewal that the reign is no longer its own, and ends; until then
both may write.

A missing Lease does not show who still writes, as somebody may have deleted it. A controller therefore
creates it only after the duration, too. A leader whose Lease is gone ends. The installation of Rekindle may
create the Lease without a holder, so that the first controller need not wait. A person who empties the holder
by hand states that the holder writes no more.

A controller that stands by also watches the Lease, so it takes the lease at once when a leader releases it.
The watch only shortens a wait: whatever it shows, the Lease is read again before it is taken.
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
"""Version of a Lease that does not exist."""
WATCH_S = 300.0
MOMENT_S = 0.01
"""Shortest wait. The difference of two times may be smaller than the resolution of a clock."""

log = structlog.get_logger(__name__)


def uptime_s() -> float:
    """Returns the seconds of a clock that nobody sets, and that also counts a machine's sleep if the kernel
    has such a clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class LeaseLostError(Exception):
    """This process no longer holds the lease, and must end without a further write."""


class Record(msgspec.Struct, frozen=True):
    """The content of a Lease. An empty holder means that nobody holds the Lease."""

    version: str
    holder: str
    duration_s: float
    transitions: int = 0
    garbled: str = ""
    """Names of the fields that could not be understood, for the log."""


class _Lease(Versioned, frozen=True):
    spec: Any = None


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: Any = None
    lease_duration_seconds: Any = None
    lease_transitions: Any = None


def read_record(raw: bytes, *, duration_s: float) -> Record:
    """Reads a Lease. If a field makes no sense, the careful reading applies: somebody holds the Lease, for
    our own duration.

    Raises ReplyLost if the answer is no API object at all.
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
    """The part of Cluster that reads and writes the Lease."""

    async def get(self, resource: Resource, name: str, namespace: str = "") -> bytes: ...

    def watch(
        self, resource: Resource, *, namespace: str, fields: str, resource_version: str, timeout_s: float
    ) -> AsyncIterator[WatchEvent]: ...

    async def create(self, resource: Resource, body: Any, namespace: str = "") -> bytes: ...

    async def patch(self, resource: Resource, name: str, body: Any, *, namespace: str = "") -> bytes: ...


class Elector:
    """Takes the lease and keeps it. `leading` stays set once this process holds the lease: losing the lease
    ends the process.

    `api` should have its own connection and request timeout, well below the renew deadline: then the
    controller's other requests cannot delay a renewal.
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
        """Time at which the last answered renewal was sent."""
        self._transitions = 0
        self._version = MISSING
        self._watched: Record | None = None
        self._watched_since_s = 0.0
        self._given_back = asyncio.Event()
        """Set once a watch has shown the Lease without a holder."""
        self.holder_known = asyncio.Event()
        """Set once it is known whether somebody else leads."""
        self.leading = asyncio.Event()

    @property
    def write_timeout_s(self) -> float:
        return self._lease.write_timeout_s

    def left_s(self) -> float:
        """Returns the seconds for which no other controller can lead. Negative once another may lead."""
        return self._sent_s + self._lease.duration_s - self._uptime()

    def check(self) -> None:
        """Raises NotLeaderError unless a write that is sent now ends before another controller may lead."""
        if self.left_s() <= self.write_timeout_s:
            raise NotLeaderError("this controller does not hold the lease, or not for long enough")

    async def run(self) -> NoReturn:
        """Waits for the lease, then keeps it. Raises LeaseLostError if it cannot keep the lease."""
        await self._acquire()
        log.info("leading", identity=self._identity, transitions=self._transitions)
        self.leading.set()
        self.holder_known.set()
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
        """Watches the Lease. A watch without a version begins with the Lease as it is."""
        lease = {"namespace": self._namespace, "fields": f"metadata.name={LEASE}"}
        while True:
            with suppress(ApiError, ReplyLost):
                async for event in self._api.watch(LEASES, **lease, resource_version="", timeout_s=WATCH_S):
                    if event.type in ("ADDED", "MODIFIED") and _has_no_holder(event):
                        self._given_back.set()
            await asyncio.sleep(self._lease.duration_s)

    async def _try_to_acquire(self) -> float:
        """Tries to take the lease. Returns in how many seconds to try again, if this process does not hold it
        now."""
        retry_s = self._lease.retry_s
        try:
            record = await self._read()
            free_in_s = self._free_in_s(record)
            if free_in_s > 0:
                self.holder_known.set()
                return min(max(free_in_s, MOMENT_S), retry_s)
            self._transitions = record.transitions + 1
            await self._take(record.version)
        except ApiError as error:
            if error.status == 409:
                return retry_s / 4  # another controller was faster, or an answer to our own write was lost
            log.warning("the lease cannot be had, trying again", why=str(error), retry_in_s=retry_s)
        except ReplyLost as error:
            log.warning("unknown who holds the lease, reading it again", why=str(error), retry_in_s=retry_s)
        return retry_s

    def _free_in_s(self, record: Record) -> float:
        """Returns the seconds until the lease is free. Any new version starts the wait again: equal times
        would prove nothing, since clocks can be set back. A duration shorter than ours is not trusted either:
        somebody may have edited it."""
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
        """Tries until one renewal is answered. Raises LeaseLostError if no answer comes in time, and as
        `_read_own` does."""
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
        """Returns the error, and ensures that no write is sent from now on, wherever the error is handled."""
        self._sent_s = -math.inf
        return LeaseLostError(why)

    async def _renewed(self) -> bool:
        """Sends one renewal. Returns whether it was answered; if not, the next try reads the Lease first."""
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
        """Reads the Lease. Raises LeaseLostError if the Lease was deleted, if another controller or nobody
        holds it, or if it belongs to a reign of our identity that this process did not begin."""
        record = await self._read()
        if record.version == MISSING:
            raise self._lost("the Lease was deleted")
        if (record.holder, record.transitions) != (self._identity, self._transitions):
            raise self._lost(f"{record.holder or 'nobody'} holds the lease (transition {record.transitions})")
        return record

    async def release(self) -> None:
        """Releases the lease after the last write, so that a successor need not wait. A failure is only
        logged, since the lease also runs out by itself."""
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
        """Writes the Lease. Only an answered write counts, and its time counts from the sending."""
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
