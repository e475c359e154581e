"""Asks the kubelet which pod has which device, and finds the pods' uids by their log folders.

The kubelet is asked at the start, when a pod comes or goes, and when a finding is made. Each question is a
child process that ends with the answer (pod_resources_child.py), and is killed if there is no answer in time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import msgspec
import structlog

from detectors.folds.holders import HeldDevices, uids
from detectors.service.settings import PodResources as Settings
from detectors.sources.cgroups import Cgroups
from detectors.sources.child import printed_by
from detectors.sources.pod_logs import parse_pod_folder
from detectors.sources.pod_resources_child import ListReply
from detectors.wire.contract import DevicePod

__all__ = ["PodResources", "PodResourcesError", "PodResourcesSink"]

_log = structlog.get_logger("pod_resources")

_START_S = 5.0
"""Time in seconds that a child may take in addition to the call itself, on a node that is busy."""


class PodResourcesError(Exception):
    """The kubelet's answer is not available. The message says why."""


class PodResourcesSink(Protocol):
    def listed(self, pods: Iterable[HeldDevices], there: frozenset[str]) -> None: ...

    def covered(self) -> None: ...

    def blind(self, why: str) -> None: ...


class PodResources:
    def __init__(self, host_root: Path, sink: PodResourcesSink, settings: Settings) -> None:
        self._socket = host_root / "var/lib/kubelet/pod-resources/kubelet.sock"
        self._log_folders = host_root / "var/log/pods"
        self._cgroups = Cgroups(host_root)
        self._sink = sink
        self._settings = settings
        self._wanted = asyncio.Event()
        self.asked = asyncio.Event()
        """Set once the first try has ended, successfully or not."""

    def ask_again(self) -> None:
        """Requests another question soon. Several requests are answered by one call."""
        self._wanted.set()

    async def run(self) -> None:
        """Runs until cancelled."""
        if not self._settings.enabled:
            self._sink.blind("switched off by the setting pod_resources.enabled")
            self.asked.set()
            return
        retry_s, told = self._settings.retry_s, ""
        while True:
            self._wanted.clear()
            try:
                await self._ask()
            except (PodResourcesError, OSError) as error:
                wait_s: float | None = retry_s
                retry_s = min(2 * retry_s, self._settings.retry_max_s)
                why = str(error)
                if isinstance(error, OSError) and error.filename:
                    why = f"{error.filename}: {error.strerror}"
                if why != told:
                    told = why
                    _log.warning("it is not known which pod holds which device", why=told, next_try_s=wait_s)
                self._sink.blind(told)
            else:
                wait_s, retry_s, told = None, self._settings.retry_s, ""
                self._sink.covered()
            self.asked.set()
            await asyncio.sleep(self._settings.pause_s)
            with contextlib.suppress(TimeoutError):  # wait_for may lose a cancellation (agent/publish.py).
                async with asyncio.timeout(wait_s):
                    await self._wanted.wait()

    async def _ask(self) -> None:
        """Asks once. Raises `PodResourcesError`, or `OSError` if there is no socket or no child can be
        started."""
        self._socket.stat()
        before = self._folders()
        reply = await self._reply()
        after = self._folders()
        # If a pod was created again meanwhile, it is not known which of the two pods the kubelet meant.
        stayed = [folder for folder in after if folder in before]
        uid_of = self._uids(stayed, {(given.namespace, given.name) for given in reply.pods})
        held = [
            HeldDevices(DevicePod(uid=uid, namespace=given.namespace, name=given.name), given)
            for given in reply.pods
            if (uid := uid_of.get((given.namespace, given.name))) is not None
        ]
        self._sink.listed(held, frozenset(uid for _, _, uid in after))

    async def _reply(self) -> ListReply:
        deadline_s = self._settings.deadline_s
        try:
            output, status = await printed_by(
                "detectors.sources.pod_resources_child",
                str(self._socket),
                str(deadline_s),
                deadline_s=deadline_s + _START_S,
            )
        except TimeoutError:
            raise PodResourcesError(f"{self._socket}: no answer within {deadline_s:g} s") from None
        try:
            reply = msgspec.json.decode(output, type=ListReply)
        except msgspec.MsgspecError as error:
            raise PodResourcesError(f"the PodResources child ended with status {status}: {error}") from error
        if reply.error:
            raise PodResourcesError(reply.error)
        return reply

    def _folders(self) -> set[tuple[str, str, str]]:
        """Returns (namespace, pod, uid) of each pod with a log folder."""
        with contextlib.suppress(FileNotFoundError):
            return {named for name in os.listdir(self._log_folders) if (named := parse_pod_folder(name))}
        return set()

    def _uids(
        self, folders: Iterable[tuple[str, str, str]], names: set[tuple[str, str]]
    ) -> dict[tuple[str, str], str]:
        """Returns the uids of the pods that run. Without a tree of cgroups, returns those of pods that are
        the only one with their name."""
        wanted = [folder for folder in folders if folder[:2] in names]
        if not self._cgroups.known():
            return uids(wanted, lambda uid: True)
        return uids(wanted, lambda uid: self._cgroups.find(uid) is not None)
