"""Follows the logs of the node's pods: `var/log/pods/<namespace>_<name>_<uid>/<container>/<n>.log`.

The source does not check which pods have GPUs: it follows all logs outside the system's namespaces, and
folds/pods.py publishes the containers that print steps, or lines that a recipe searches for. If there are too
many, logs_followed.py chooses which are left out.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import deque
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import structlog

from detectors.rules.facts import PodRef
from detectors.service.clocks import until_next_s
from detectors.service.metrics import Metrics
from detectors.service.settings import Logs
from detectors.sources.cgroups import Cgroups
from detectors.sources.container_log import Container, PodLogSink
from detectors.sources.cri import parse_line
from detectors.sources.inotify import FolderWatch
from detectors.sources.logs_followed import gives_way, told
from detectors.sources.turns import Turns

__all__ = ["PodLogs", "parse_pod_folder"]

_log = structlog.get_logger("pod_logs")

_WATCH_PAUSE_S = 0.02
_KEEP_BYTES = 1024 * 1024
_LAST_PIECES_MAX = 4
_CGROUP_LOOKS = 60
_RESCAN_S = 30.0
_MISSING_RETRY_S = 1.0
_LOOK_S = 5.0
"""Time in seconds between two checks of watched cgroups: somebody may have replaced the folder above a pod's
cgroup, and the watch of the old folder then reports nothing."""
_BEHIND = timedelta(seconds=60)
_POD_FOLDER = re.compile(
    r"(?P<namespace>[A-Za-z0-9.-]{1,63})_(?P<pod>[A-Za-z0-9.-]{1,253})_(?P<uid>[A-Za-z0-9.-]{1,64})"
)
_CONTAINER_CHARS_MAX = 63


def parse_pod_folder(name: str) -> tuple[str, str, str] | None:
    """Returns (namespace, pod, uid); None for any other name. No kubelet creates other names, and the API
    would reject a status with one."""
    found = _POD_FOLDER.fullmatch(name)
    return (found["namespace"], found["pod"], found["uid"]) if found is not None else None


class PodLogs:
    def __init__(self, host_root: Path, sink: PodLogSink, settings: Logs, metrics: Metrics) -> None:
        self._root = host_root / "var/log/pods"
        self._cgroups = Cgroups(host_root)
        self._sink = sink
        self._settings = settings
        self._metrics = metrics
        self._containers: dict[PodRef, Container] = {}
        self._in_folder: dict[Path, set[PodRef]] = {}
        """The same containers, by the folder of their logs."""
        self._ignored: set[PodRef] = set()
        self._folders: set[str] = set()
        self._watch: FolderWatch | None = None
        self._priority_uids: frozenset[str] = frozenset()
        self._left_out: set[PodRef] = set()
        self._seen_cgroup = False
        self._turns = Turns(settings.node_bytes_per_s)
        self._queue: deque[Container] = deque()
        """Containers with more to read, in the order in which they were queued."""
        self._serving: asyncio.TimerHandle | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._looks_soon = False
        self._is_closed = False

    async def run(self) -> None:
        """Runs until cancelled."""
        self._watch = FolderWatch(pause_s=_WATCH_PAUSE_S)
        try:
            while not self._watch.add(self._root, self._scan):
                self._sink.blind(f"{self._root}: the folder does not exist, or cannot be read")
                await asyncio.sleep(_MISSING_RETRY_S)
            self._scan(first=True)
            self._sink.scanned(frozenset(self._left_out))
            while True:
                await asyncio.sleep(until_next_s(_RESCAN_S, time.monotonic()))
                self._scan()  # a watch may be lost if the user's watches are used up
        finally:
            self._is_closed = True
            self._watch.close()
            for timer in (self._serving, self._looking):
                if timer is not None:
                    timer.cancel()
            for container in self._containers.values():
                container.close()

    def reread(self, pods: list[PodRef]) -> None:
        """Reads these logs again from their start, because their step template has changed."""
        for ref in pods:
            container = self._containers.get(ref)
            if container is not None:
                container.file.rewind()
                self._read(container)

    def prefer(self, uids: frozenset[str]) -> None:
        """Takes the pods that have priority if there are too many."""
        if uids != self._priority_uids:
            self._priority_uids = uids
            if self._left_out:
                self._scan()

    def unread(self, now: datetime) -> frozenset[PodRef]:
        """Returns the containers whose log has more than was read, while the last line that was read is old:
        their last lines are not known yet."""
        return frozenset(
            ref
            for ref, container in self._containers.items()
            if container.line_at is not None
            and now - container.line_at > _BEHIND
            and container.file.backlog_bytes() > 0
        )

    def _scan(self, first: bool = False) -> None:
        """Finds new containers, and removes those whose log folder is gone."""
        try:
            with os.scandir(self._root) as entries:
                folders = [Path(entry.path) for entry in entries if entry.is_dir()]
        except OSError as error:
            self._sink.blind(f"{self._root}: {error.strerror or error}")
            return
        names = {folder.name for folder in folders}
        if names != self._folders:
            self._folders = names
            self._sink.pods_changed()
        running_known = first and self._cgroups.known()
        there: set[PodRef] = set()
        for folder in folders:
            there |= self._scan_pod(folder, first=first, only_running=running_known)
        for ref in [ref for ref in self._containers if ref not in there]:
            self._remove(self._containers[ref])
        self._ignored &= there
        self._left_out &= there
        self._tell()

    def _tell(self) -> None:
        self._metrics.containers_followed.set(len(self._containers))
        self._metrics.containers_left_out.set(len(self._left_out))
        unreadable = next((c.unreadable for c in self._containers.values() if c.unreadable), "")
        if unreadable:
            self._sink.blind(unreadable)
        else:
            why = told(self._left_out, self._priority_uids, self._settings.containers_max)
            self._sink.covered(why, frozenset(ref.uid for ref in self._left_out))
        self._look_soon()

    def _scan_pod(self, folder: Path, *, first: bool, only_running: bool) -> set[PodRef]:
        named = parse_pod_folder(folder.name)
        if named is None or self._excluded(named[0]) or self._watch is None:
            return set()
        there: set[PodRef] = set()
        try:
            self._watch.add(folder, self._scan)
            for inner in sorted(folder.iterdir()):
                if inner.is_dir() and len(inner.name) <= _CONTAINER_CHARS_MAX:
                    self._watch.add(
                        inner, partial(self._look_into, named, inner), grown=partial(self._read_on, inner)
                    )
                    there |= self._scan_container(named, inner, first=first, only_running=only_running)
        except OSError:
            return there  # the folder went away while it was read; the next scan sees that
        return there

    def _read_on(self, folder: Path) -> None:
        for ref in self._followed_in(folder):
            self._read(self._containers[ref], has_only_grown=True)

    def _look_into(self, pod: tuple[str, str, str], folder: Path) -> None:
        self._scan_container(pod, folder)
        self._tell()

    def _scan_container(
        self, pod: tuple[str, str, str], folder: Path, *, first: bool = False, only_running: bool = False
    ) -> set[PodRef]:
        try:
            stems = [name.removesuffix(".log") for name in os.listdir(folder) if name.endswith(".log")]
            numbers = [int(stem) for stem in stems if stem.isdecimal()]
        except OSError:
            numbers = []
        if not numbers:
            return self._followed_in(folder) if folder.is_dir() else set()
        namespace, name, uid = pod
        refs = {number: PodRef(namespace, name, uid, folder.name, number) for number in numbers}
        newest = max(refs)
        for number in sorted(refs):
            ref = refs[number]
            container = self._containers.get(ref)
            if container is None and ref not in self._ignored:
                container = self._follow(
                    ref, folder, old=first and number < newest, only_running=only_running
                )
            if container is not None:
                self._read(container)
                if number < newest:
                    self._end(container)
        # The kubelet deletes the logs of all but the last instances. An instance without a log is gone once
        # its end was reported.
        return set(refs.values()) | {
            ref for ref in self._followed_in(folder) if not self._containers[ref].ended
        }

    def _followed_in(self, folder: Path) -> set[PodRef]:
        return set(self._in_folder.get(folder, ()))

    def _follow(self, ref: PodRef, folder: Path, *, old: bool, only_running: bool) -> Container | None:
        """Opens a log that was not followed. A container that had ended before the agent started is ignored,
        unless an earlier run of the agent followed it."""
        has_ended = old or (only_running and self._cgroups.find(ref.uid) is None)
        if has_ended and not self._sink.is_open(ref):
            self._ignored.add(ref)
            return None
        if not has_ended and not self._make_room(ref):
            return None
        container = self._containers[ref] = Container(ref, folder, self._settings)
        self._find_cgroup(container)
        self._in_folder.setdefault(folder, set()).add(ref)
        if has_ended:
            self._read(container)
            self._end(container)
        return container

    def _make_room(self, ref: PodRef) -> bool:
        """Makes room for one more container; returns False if `ref` itself has to be left out."""
        followed = [other for other, container in self._containers.items() if not container.ended]
        if len(followed) >= self._settings.containers_max:
            left = gives_way(ref, followed, self._priority_uids, self._sink.is_silent)
            if not self._left_out:
                _log.error("too many containers; not all logs are read", limit=self._settings.containers_max)
            self._left_out.add(left)
            if left == ref:
                return False
            self._forget(left).close()
            self._sink.pod_left(left)
        self._left_out.discard(ref)
        return True

    def _read(self, container: Container, *, has_only_grown: bool = False) -> None:
        """Reads what is new. If there is much, it reads one piece now and the next one in its turn. If the
        file has only grown, a piece that is not full ends at the end of the file, and the watch reports the
        next growth. A file that was rotated may have grown together with its successor."""
        if container.timer is not None or container.waits or container.ended:
            return
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        may_read_at_s = container.read_at_s + self._settings.read_pause_s
        while may_read_at_s <= now_s and not self._queue and not self._turns.wait_s(now_s):
            read_bytes = self._read_in_turn(container)
            is_at_end = has_only_grown and read_bytes < self._settings.read_bytes
            if read_bytes == 0 or (is_at_end and container.file.is_at_path()):
                return
            now_s = loop.time()
            if read_bytes >= self._settings.read_bytes // 2:  # there is more
                container.read_at_s = now_s
                break
        pause_s = container.read_at_s + self._settings.read_pause_s - now_s
        container.timer = loop.call_later(max(0.0, pause_s), self._queue_up, container)

    def _queue_up(self, container: Container) -> None:
        container.timer, container.waits = None, True
        self._queue.append(container)
        self._serve_later()

    def _serve_later(self) -> None:
        """Serves one piece in each turn of the event loop, so that the other work of the agent comes in
        between."""
        if self._queue and self._serving is None:
            loop = asyncio.get_running_loop()
            self._serving = loop.call_later(self._turns.wait_s(loop.time()), self._serve)

    def _serve(self) -> None:
        self._serving = None
        container = self._queue.popleft()
        container.waits = False
        is_followed = not container.ended and self._containers.get(container.ref) is container
        if is_followed and self._read_in_turn(container) > 0:
            container.read_at_s = asyncio.get_running_loop().time()
            self._read(container)
        self._serve_later()

    def _read_in_turn(self, container: Container) -> int:
        """Reads one piece, and accounts for its bytes and time. Returns the number of bytes read."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        read_bytes = self._read_piece(container, self._settings.read_bytes)
        self._turns.used(read_bytes, loop.time() - began_s, began_s)
        return read_bytes

    def _read_piece(self, container: Container, bytes_max: int) -> int:
        """Reads one piece. Returns the number of bytes read. A rotated log takes one piece for its rest and
        one for its successor."""
        file = container.file
        before = file.bytes_read
        try:
            if file.backlog_bytes() > self._settings.backlog_bytes_max:
                self._metrics.log_bytes_skipped.inc(file.skip_to_last(_KEEP_BYTES))
            lines = file.read(bytes_max)
        except OSError as error:
            why = f"{file.path}: {error.strerror or error}"
            if why != container.unreadable:
                _log.warning("log cannot be read", why=why)
            container.unreadable = why
            return 0
        container.unreadable = ""
        for data in lines:
            line = parse_line(data)
            if line is None:
                continue
            container.line_at = line.at
            text = container.joiner.add(line)
            if text is not None:
                self._sink.log_line(container.ref, text, line.at)
        read_bytes = file.bytes_read - before
        self._metrics.log_bytes.inc(read_bytes)
        return read_bytes

    def _look_soon(self) -> None:
        """Schedules one check after this turn of the event loop, however many folders report a change in the
        turn."""
        if not self._looks_soon:
            self._looks_soon = True
            asyncio.get_running_loop().call_soon(self._look_for_ends)

    def _look_for_ends(self) -> None:
        """Checks for containers that have ended, now and again later. The kernel reports a folder that was
        removed, so the later check comes soon only if a pod has no folder that is watched."""
        self._looks_soon = False
        if self._looking is not None:
            self._looking.cancel()
        if self._is_closed:
            return
        looked = [self._look_for_end(container) for container in self._containers.values()]
        every_s = _LOOK_S if all(looked) else self._settings.ended_poll_s
        pause_s = until_next_s(every_s, time.monotonic())
        self._looking = asyncio.get_running_loop().call_later(pause_s, self._look_again)

    def _look_again(self) -> None:
        for container in self._containers.values():
            container.looked += 1
        self._look_for_ends()

    def _look_for_end(self, container: Container) -> bool:
        """Checks one container. Returns True if the next check of this container need not come soon."""
        if container.ended:
            return True
        is_long_looked_for = container.looked >= _CGROUP_LOOKS
        if container.cgroup is None and not is_long_looked_for:
            self._find_cgroup(container)
        elif container.cgroup is None and self._seen_cgroup:
            # Other pods have a cgroup here, so this container had ended before the agent looked.
            self._end(container)
        if container.cgroup is None:
            return is_long_looked_for  # without any cgroup of a pod here, the search ends after a while
        # The kernel reports the removal of a cgroup only to a watch of the folder above the cgroup.
        watch, above = self._watch, container.cgroup.parent
        is_watched = watch is not None and watch.add(above, self._look_soon, grown=_nothing)
        if not os.path.exists(container.cgroup):
            self._end(container)
        return is_watched

    def _find_cgroup(self, container: Container) -> None:
        container.cgroup = self._cgroups.find(container.ref.uid)
        self._seen_cgroup = self._seen_cgroup or container.cgroup is not None

    def _end(self, container: Container) -> None:
        """Reads the rest of the log, at least near the end, and reports the end of the container."""
        if container.ended:
            return
        if container.timer is not None:
            container.timer.cancel()
            container.timer = None
        self._metrics.log_bytes_skipped.inc(container.file.skip_to_last(_KEEP_BYTES))
        for _ in range(_LAST_PIECES_MAX):
            if self._read_piece(container, _KEEP_BYTES) == 0:
                break
        container.ended = True
        container.close()
        self._sink.pod_ended(container.ref, datetime.now(UTC))

    def _remove(self, container: Container) -> None:
        self._end(container)
        self._forget(container.ref).close()
        if self._watch is not None:
            if not container.folder.is_dir():
                self._watch.remove(container.folder)
            if not container.folder.parent.is_dir():
                self._watch.remove(container.folder.parent)
        self._sink.pod_removed(container.ref)

    def _forget(self, ref: PodRef) -> Container:
        container = self._containers.pop(ref)
        others = self._in_folder[container.folder]
        others.discard(ref)
        if not others:
            del self._in_folder[container.folder]
        return container

    def _excluded(self, namespace: str) -> bool:
        return any(
            namespace.startswith(pattern[:-1]) if pattern.endswith("*") else namespace == pattern
            for pattern in self._settings.excluded_namespaces
        )


def _nothing() -> None:
    """Ignores growth, since limits and counters in the folders of cgroups are written all the time."""
