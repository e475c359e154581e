"""Takes samples of the volumes that pods with accelerators mount: how much room each volume has, and whether
it answers.

A call to a file server that is gone may wait without end, so a child process makes the call
(volumes_child.py). A volume whose call is not answered in time is silent, and the child is killed. A child
that survives the kill is counted, and its file system is not asked again before the child has ended. All
mounts of one file system are silent together.

The kubelet's folder of pods must be mounted into the agent so that later mounts show, too (Kubernetes:
`mountPropagation: HostToContainer`). If it is not, coverage says so. A folder of the node that a pod mounts
(hostPath), and an emptyDir on the node's disk, are no separate mounts, and are not seen.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import msgspec
import structlog

from detectors.rules.volume_states import Volume, VolumeSample, is_bad
from detectors.service.settings import Volumes as Settings
from detectors.sources.child import LastingChild, SilentError
from detectors.sources.volumes_child import escaped, unescaped

__all__ = ["VolumeReader", "VolumeSink", "Volumes", "VolumesError"]

_log = structlog.get_logger("volumes")

_MODULE = "detectors.sources.volumes_child"
_WORDS_OF_MOUNT = 8
_START_S = 30.0
_STUCK_MAX = 3
"""If so many children cannot be ended, the agent starts no further child."""
_SILENT_MAX = 3
"""Number of silent file systems that one sample waits for. The others are asked in the next sample."""


class VolumesError(Exception):
    """No sample of the volumes can be taken. The message says why."""


class VolumeSink(Protocol):
    def pods(self) -> frozenset[str]:
        """Returns the uids of the pods on the node that have devices."""

    def sampled(self, sample: VolumeSample) -> None: ...

    def covered(self) -> None: ...

    def blind(self, why: str) -> None: ...


class Volumes:
    def __init__(self, reader: VolumeReader, sink: VolumeSink, settings: Settings) -> None:
        self._reader = reader
        self._sink = sink
        self._settings = settings
        self._wanted = asyncio.Event()
        self._told = ""

    def sample_again(self) -> None:
        """Requests another sample soon. Several requests are answered by one sample."""
        self._wanted.set()

    async def run(self) -> None:
        """Runs until cancelled."""
        if not self._settings.enabled:
            self._sink.blind("switched off by the setting volumes.enabled")
            return
        try:
            while True:
                self._wanted.clear()
                try:
                    self._sink.sampled(await self._reader.sample(self._sink.pods()))
                except (VolumesError, OSError) as error:
                    await self._reader.end()
                    self._blind(_words(error))
                else:
                    self._told = ""
                    self._sink.covered()
                await self._pause()
        finally:
            await self._reader.end()

    async def _pause(self) -> None:
        await asyncio.sleep(self._settings.pause_s)
        try:
            async with asyncio.timeout(max(0.0, self._settings.every_s - self._settings.pause_s)):
                await self._wanted.wait()
        except TimeoutError:
            return

    def _blind(self, why: str) -> None:
        if why != self._told:
            self._told = why
            _log.error("the volumes of pods are not read", why=why)
        self._sink.blind(why)


class VolumeReader:
    """Takes samples. Remembers which file systems were silent, and which children hang in one."""

    def __init__(self, host_root: Path, settings: Settings, *, mountinfo: str = "") -> None:
        """Takes the node's root. `mountinfo` is a table of mounts that replaces the child's own."""
        self._folder = str(host_root / "var/lib/kubelet/pods")
        self._settings = settings
        self._outlived: list[asyncio.subprocess.Process] = []
        """Children that did not end when they were killed."""
        arguments = (self._folder, mountinfo) if mountinfo else (self._folder,)
        self._child = LastingChild(_MODULE, *arguments, outlived=self._outlived, is_lean=True)
        self._hung: dict[str, asyncio.subprocess.Process] = {}
        """File systems by `major:minor`, and the child of each that cannot be ended."""
        self._silent: frozenset[str] = frozenset()
        """File systems that were silent in the last sample. They are asked last."""

    async def sample(self, pods: frozenset[str]) -> VolumeSample:
        """Returns one sample of the volumes of these pods. The child ends with the sample: a start costs
        about 15 ms a minute, while a waiting child would occupy 5 MB. Raises `VolumesError` or `OSError`."""
        os.stat(self._folder)
        if not pods:
            return VolumeSample()
        try:
            return await self._sampled(pods)
        finally:
            await self._child.end()

    async def _sampled(self, pods: frozenset[str]) -> VolumeSample:
        mounts = await self._listed(pods)
        found = await self._asked(sorted(mounts, key=lambda one: (one.device in self._silent, one.path)))
        self._silent = frozenset(one.device for one in found if one.silent_s)
        if any(map(is_bad, found)):  # the kubelet may have unmounted the volume meanwhile
            there = {(one.path, one.device) for one in await self._listed(pods)}
            found = [one for one in found if (one.path, one.device) in there]
        return VolumeSample(tuple(found), pods)

    async def end(self) -> None:
        await self._child.end()

    async def _listed(self, pods: frozenset[str]) -> tuple[Volume, ...]:
        try:
            told = await self._answer(" ".join(("mounts", *sorted(pods))))
        except SilentError:
            limit_s = self._settings.deadline_s
            raise VolumesError(f"the table of mounts was not read within {limit_s:g} s") from None
        later, *mounts = told.split("\t")
        if later != "mounts later":
            raise VolumesError(
                f"{self._folder}: the agent does not see volumes that are mounted after its start; "
                "expected mountPropagation: HostToContainer"
            )
        return tuple(map(_mount, mounts))

    async def _asked(self, mounts: Iterable[Volume]) -> list[Volume]:
        """Asks each mount for its room. A mount that was not asked, since too many were silent, is returned
        without values."""
        self._hung = {device: child for device, child in self._hung.items() if child.returncode is None}
        silent, waited, found = set(self._hung), 0, []
        for mount in mounts:
            if mount.device in silent:
                found.append(self._as_silent(mount))
            elif waited >= _SILENT_MAX:
                found.append(mount)
            else:
                try:
                    answered = await self._room(mount)
                except SilentError:
                    waited += 1
                    silent.add(mount.device)
                    await self._give_up(mount.device)
                    found.append(self._as_silent(mount))
                else:
                    found.append(answered)
        return found

    async def _give_up(self, device: str) -> None:
        before = len(self._outlived)
        await self._child.end()
        for child in self._outlived[before:]:
            self._hung[device] = child

    def _as_silent(self, mount: Volume) -> Volume:
        return msgspec.structs.replace(mount, silent_s=self._settings.deadline_s)

    async def _room(self, mount: Volume) -> Volume:
        """Returns the mount with its room. Raises the same errors as `_answer`."""
        return _with(mount, await self._answer(f"room {escaped(mount.path)}"))

    async def _answer(self, question: str) -> str:
        """Returns the child's answer. Raises `SilentError`, `VolumesError`, or `OSError` if no child can be
        started."""
        self._outlived[:] = [one for one in self._outlived if one.returncode is None]
        if len(self._outlived) >= _STUCK_MAX:
            pids = ", ".join(str(one.pid) for one in self._outlived)
            raise VolumesError(f"processes {pids} hang in a file system and cannot be ended")
        try:
            if not self._child.is_started:
                await self._start()
            line = await self._child.ask(self._settings.deadline_s, question.encode())
        except EOFError as error:
            raise VolumesError(f"the process that asks volumes: {error}") from error
        return line.decode().removesuffix("\n")

    async def _start(self) -> None:
        """Starts the child with a separate question, so that the time of a later call is that of its file
        system alone, also on a busy node."""
        try:
            await self._child.ask(_START_S, b"mounts")
        except SilentError:
            raise VolumesError(f"the process that asks volumes did not start within {_START_S:g} s") from None


def _mount(told: str) -> Volume:
    """Parses a mount. Raises `VolumesError`."""
    words = tuple(map(unescaped, told.split(" ")))
    if len(words) != _WORDS_OF_MOUNT:
        raise VolumesError(f"the process that asks volumes: expected a mount, found {told[:200]!r}")
    pod, name, path, device, type_, source, flag, flag_of_mount = words
    return Volume(
        pod=pod,
        name=name,
        path=path,
        device=device,
        type=type_,
        source=source,
        is_read_only=flag == "ro",
        is_mounted_read_only=flag_of_mount == "ro",
    )


def _with(mount: Volume, told: str) -> Volume:
    """Returns the mount with the values of the answer. Raises `VolumesError`."""
    try:
        match told.split(" "):
            case ["errno", number]:
                return msgspec.structs.replace(mount, errno=int(number))
            case ["room", *numbers]:
                total, free, inodes, inodes_free = map(int, numbers)
                return msgspec.structs.replace(
                    mount, bytes=total, bytes_free=free, inodes=inodes, inodes_free=inodes_free
                )
    except ValueError:
        pass
    raise VolumesError(f"the process that asks volumes: expected room or errno, found {told[:200]!r}")


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)
