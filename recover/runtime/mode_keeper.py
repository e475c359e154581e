"""Keeps in the ConfigMap `rekindle-state` since when each mode is in force, so that a restart loses none of
these times.

A promotion (of the cluster, a pool or a namespace) never acts on faults that were seen before the promotion.
A restart of the controller is no promotion; the end of a pause is one. model/modes.py defines what follows
from a promotion.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec
import structlog

from detectors.client.kubeapi import ApiError, ReplyLost
from recover.k8s.kinds import CONFIGMAPS
from recover.kube.clock import Clock
from recover.kube.cluster import Cluster
from recover.kube.errors import Transient
from recover.model import NamespaceView
from recover.model.modes import Mode, Modes, Standing, begun, changed, followed, followed_pause, until_now
from recover.model.pause import Pause
from recover.policy.consent import word_of
from recover.policy.settings import Settings
from recover.runtime.observe import Observer

__all__ = ["STATE", "ModeKeeper", "kept_modes"]

STATE = "rekindle-state"
WRITE_AGAIN_S = 2.0
_START_MAX = timedelta(minutes=2)
"""If the process reads the kept modes within this time after its start, a promotion begins at the start of
the process, otherwise at the reading. A promotion is an upgrade of the installation, so it begins when the
new controller's process starts, even if the API server is slow or away until that process leads. A process
that has stood by for longer may have been started before the kept mode was in force."""

log = structlog.get_logger(__name__)


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] = {}


class ModeKeeper:
    def __init__(self, cluster: Cluster, observer: Observer, settings: Settings, clock: Clock) -> None:
        self._cluster = cluster
        self._observer = observer
        self._settings = settings
        self._clock = clock
        self._started = clock.now()
        self._modes = Modes(begun(settings.mode, self._started))
        self._loaded = False
        self._to_write = asyncio.Event()

    def now(self) -> Modes:
        """Returns the modes of this reconcile. If a namespace's annotation or the pause has just changed, the
        change counts at once, and run() writes it to the ConfigMap. A crash before that write makes a
        promotion begin later; it causes no action that should not happen. If the clock was set back, no mode
        begins in the future."""
        if self._loaded:
            self._follow(until_now(self._modes, self._clock.now()))
        return self._modes

    def changes_in_s(self) -> float | None:
        """Returns the seconds until time alone ends the pause, or None if it never does."""
        paused = self._modes.paused
        if paused is None or paused.until is None:
            return None
        return max(0.0, (paused.until - self._clock.now()).total_seconds())

    async def load(self) -> None:
        """Reads since when each mode is in force, and stores when a new mode begins. Raises ApiError,
        ReplyLost, NotLeaderError."""
        read = await self._read()
        kept = until_now(read, self._clock.now()) if read is not None else None
        at, mode = self._promoted_at(kept), self._settings.mode
        cluster = changed(kept.cluster, mode, at) if kept is not None else begun(mode, at)
        if kept is None or kept.cluster != cluster:
            log.info("mode begins", mode=str(mode), since=cluster.since[mode].isoformat())
        self._tell_of_higher(mode)
        self._modes = msgspec.structs.replace(kept or self._modes, cluster=cluster)
        pools = followed(self._modes.pools, self._settings.modes.pools, at)
        self._follow(msgspec.structs.replace(self._modes, pools=pools))
        self._to_write.clear()
        if read != self._modes:
            await self._write()
        self._loaded = True

    def _promoted_at(self, kept: Modes | None) -> datetime:
        """Returns the time at which a promotion begins, if the settings allow a mode that the kept modes did
        not allow (see `_START_MAX`)."""
        now = self._clock.now()
        known = [kept.cluster, *kept.pools.values()] if kept is not None else []
        is_news = all(at <= self._started for standing in known for at in standing.since.values())
        return self._started if is_news and now - self._started <= _START_MAX else now

    def _tell_of_higher(self, mode: Mode) -> None:
        lower = self._settings.modes
        for setting, wanted in (("modes.pools", lower.pools), ("modes.namespaces", lower.namespaces)):
            for name, higher in wanted.items():
                if higher > mode:
                    log.info("changes nothing, the cluster's mode is lower", setting=f"{setting}.{name}")

    async def run(self) -> None:
        """Runs forever: stores the changes that people have made to the modes of namespaces and to the pause.
        A failed write is tried again."""
        while True:
            await self._to_write.wait()
            self._to_write.clear()
            try:
                await self._write()
            except (ApiError, ReplyLost, Transient) as error:
                log.warning(
                    "the times since which the modes are in force are not stored yet, trying again",
                    error=str(error),
                )
                self._to_write.set()
                await asyncio.sleep(WRITE_AGAIN_S)

    def _follow(self, modes: Modes) -> None:
        """Takes over the modes, with the present limits of the namespaces and the present pause. A namespace
        that neither exists nor is in the settings is forgotten."""
        views = self._observer.namespaces.rows
        wanted = _lowered(self._settings.modes.namespaces, views)
        known = {
            name: standing
            for name, standing in modes.namespaces.items()
            if name in views or name in self._settings.modes.namespaces
        }
        namespaces = followed(known, wanted, self._clock.now())
        now_paused = followed_pause(modes, self._observer.pause(), self._clock.now())
        if modes is self._modes and namespaces == modes.namespaces and now_paused is modes:
            return
        if now_paused.paused != self._modes.paused:
            _tell_pause(now_paused.paused)
        self._modes = msgspec.structs.replace(now_paused, namespaces=namespaces)
        self._to_write.set()

    async def _write(self) -> None:
        """Writes the ConfigMap. It does not exist at the very first start, or if somebody has deleted it."""
        cluster = self._modes.cluster
        data = {
            "mode": str(cluster.mode),
            "since": cluster.since[cluster.mode].isoformat(),
            "modes": msgspec.json.format(msgspec.json.encode(self._modes), indent=2).decode(),
        }
        namespace = self._settings.namespace
        metadata = {"name": STATE, "namespace": namespace}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        try:
            await self._cluster.patch(CONFIGMAPS, STATE, {"data": data}, namespace=namespace)
        except ApiError as error:
            if not error.not_found:
                raise
            await self._cluster.create(CONFIGMAPS, body, namespace)

    async def _read(self) -> Modes | None:
        """Returns the kept modes, or None if the ConfigMap does not exist or cannot be read."""
        try:
            raw = await self._cluster.get(CONFIGMAPS, STATE, self._settings.namespace)
        except ApiError as error:
            if error.not_found:
                return None
            raise
        data = msgspec.json.decode(raw, type=_ConfigMap).data
        try:
            return kept_modes(data)
        except (KeyError, ValueError) as error:  # msgspec's errors are ValueErrors
            log.warning(
                "ConfigMap rekindle-state cannot be read; the mode begins now",
                namespace=self._settings.namespace,
                data=data,
                error=str(error),
            )
            return None


def _tell_pause(paused: Pause | None) -> None:
    if paused is None:
        log.info("resumed: what was seen before does not act, jobs that are down are restarted")
        return
    log.info("paused: nothing new is begun", words=paused.words())
    for problem in paused.problems:
        log.warning("the pause cannot be read in full", problem=problem)


def kept_modes(data: Mapping[str, str]) -> Modes:
    """Reads the modes from the ConfigMap's data. Versions without modes of pools and namespaces kept only the
    cluster's mode.

    Raises KeyError, ValueError.
    """
    if "modes" in data:
        return _checked(msgspec.json.decode(data["modes"], type=Modes))
    since = datetime.fromisoformat(data["since"])
    return _checked(Modes(begun(Mode(data["mode"]), since)))


def _lowered(by_settings: Mapping[str, Mode], views: Mapping[str, NamespaceView]) -> dict[str, Mode]:
    """Returns, for each namespace, the lower of the modes that the settings and the namespace's own people
    allow. A namespace without a limit is left out."""
    words = {name: word for name, view in views.items() if (word := word_of(view)) is not None}
    everything = max(Mode)
    wanted = {
        name: min(by_settings.get(name, everything), words.get(name, everything))
        for name in by_settings.keys() | words.keys()
    }
    return {name: mode for name, mode in wanted.items() if mode < everything}


def _checked(modes: Modes) -> Modes:
    """Returns the modes. Raises ValueError if a time has no zone, or if the cluster's own mode has no
    time."""
    standings: list[Standing] = [modes.cluster, *modes.pools.values(), *modes.namespaces.values()]
    if any(at.tzinfo is None for standing in standings for at in standing.since.values()):
        raise ValueError("a time without a zone")
    if modes.cluster.mode not in modes.cluster.since:
        raise ValueError("no time of the cluster's mode")
    return modes
