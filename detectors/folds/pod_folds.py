"""Keeps the containers of a node, each folded by pods.py: which are known, restored, gone, or left. Pure.

core.py keeps one, and passes the lines of the logs to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from statistics import median

from detectors.catalog.log_errors import LogErrorRow
from detectors.folds.pods import PodFold
from detectors.folds.status_size import best_first
from detectors.rules.fabric_ports import Ranks
from detectors.rules.facts import PodRef
from detectors.rules.signatures import Signatures
from detectors.service.settings import Logs
from detectors.wire.contract import PODS_MAX
from detectors.wire.training import PodProgress, PodSettings

__all__ = ["PodFolds"]

_AHEAD_MAX = timedelta(seconds=5)


class PodFolds:
    def __init__(self, settings: Logs, rows: tuple[LogErrorRow, ...]) -> None:
        self._settings = settings
        self._rows = rows
        self._folds: dict[PodRef, PodFold] = {}
        self._restored: dict[tuple[str, str, int], PodProgress] = {}
        self._gone: set[PodRef] = set()

    @property
    def any_stalled(self) -> bool:
        return any(fold.stalled for fold in self._folds.values())

    def restore(self, pods: Iterable[PodProgress]) -> None:
        """Takes what an earlier run of the agent published. A container continues from it when its log is
        found."""
        self._restored = {(pod.uid, pod.container, pod.instance): pod for pod in pods}

    def published_before(self, ref: PodRef) -> PodProgress | None:
        return self._restored.get((ref.uid, ref.container, ref.instance))

    def fold(self, ref: PodRef, jobs: Iterable[PodSettings], sought: Signatures) -> PodFold:
        """Returns the fold of the container. The first line of a container creates the fold."""
        fold = self._folds.get(ref)
        if fold is None:
            fold = self._folds[ref] = PodFold(ref, self._settings, self._rows)
            job = next((job for job in jobs if job.uid == ref.uid), None)
            if job is not None:
                fold.job_settings(job)
            published = self.published_before(ref)
            if published is not None:
                fold.restore(published, sought)
        return fold

    def hold_devices(self, uids: Collection[str]) -> bool:
        """Records the pods that were given devices. Returns True if a container is published for that
        reason."""
        news = [fold for ref, fold in self._folds.items() if ref.uid in uids and fold.holds_devices()]
        return bool(news)

    def removed(self, ref: PodRef) -> None:
        """Records that the log of the container no longer exists. The published progress stays for a while:
        the controller may still need the tail."""
        if ref in self._folds:
            self._gone.add(ref)

    def left(self, ref: PodRef) -> bool:
        """Forgets a container that the agent no longer follows, since what is known about it gets old.
        Returns True if the container was known."""
        self._gone.discard(ref)
        return self._folds.pop(ref, None) is not None

    def is_silent(self, ref: PodRef) -> bool:
        """Whether nothing is published about this container."""
        return ref not in self._folds or self._folds[ref].published() is None

    def vanished(self, left_out: Collection[PodRef]) -> list[PodRef]:
        """Returns the containers that were published before and have no log any more. A container in
        `left_out` still has a log."""
        known = {(ref.uid, ref.container, ref.instance) for ref in (*self._folds, *left_out)}
        return [
            PodRef(pod.namespace, pod.name, pod.uid, pod.container, pod.instance)
            for key, pod in self._restored.items()
            if key not in known
        ]

    def job_settings(self, jobs: Iterable[PodSettings]) -> list[PodRef]:
        """Takes the settings of jobs. Returns the containers whose log must be read again from its start."""
        wanted = {job.uid: job for job in jobs}
        for ref, fold in self._folds.items():
            if ref.uid not in wanted:
                fold.awaits_save("")
        return [
            ref
            for ref, fold in self._folds.items()
            if ref.uid in wanted and fold.job_settings(wanted[ref.uid])
        ]

    def clock_set(self, by: timedelta, now: datetime) -> None:
        for fold in self._folds.values():
            fold.clock_set(by, now)

    def stalled(self, now: datetime, unread: Collection[PodRef] = ()) -> bool:
        """Returns True if a container has stalled just now, has made its longest pause, or has waited long
        for the line that proves its first step. Nothing is known about the containers in `unread`."""
        stalled = [fold for ref, fold in self._folds.items() if ref not in unread and fold.tick(now)]
        waiting = [fold for fold in self._folds.values() if fold.waits_for_second(now)]
        paused = [fold for fold in self._folds.values() if fold.tells_pause()]
        return bool(stalled or waiting or paused)

    def ranks(self, uids: frozenset[str], now: datetime) -> Ranks:
        """Returns what is known about the training in these pods. A pod counts as training unless all its
        known containers have ended. A container that ends beside a container that trains, such as a helper
        that is started again, is no end of the rank. A step later than `now` was dated before the clock was
        set back, and its true time is not known."""
        folds = [fold for ref, fold in self._folds.items() if ref.uid in uids]
        trains = {
            (fold.ref.uid, fold.ref.container)
            for fold in folds
            if fold.ended_at is None and fold.progress.last_step_at is not None
        }
        ended: dict[str, datetime] = {}
        last_steps: dict[str, datetime] = {}
        for fold in folds:
            uid, step_at = fold.ref.uid, _past(fold.progress.last_step_at, now)
            is_helper = any(pod == uid and name != fold.ref.container for pod, name in trains)
            if fold.ended_at is not None and not is_helper:
                ended[uid] = max(fold.ended_at, ended.get(uid, fold.ended_at))
            if step_at is not None:
                last_steps[uid] = max(step_at, last_steps.get(uid, step_at))
        runs = {fold.ref.uid for fold in folds if fold.ended_at is None}
        training = [fold.progress for fold in folds if fold.ended_at is None]
        steps = [at for one in training if (at := _past(one.last_step_at, now)) is not None]
        return Ranks(
            pods=uids - (ended.keys() - runs),
            ended=ended,
            steps=last_steps,
            stepped_at=max(steps, default=None),
            pause_s=max((median(one.pauses_s) for one in training if one.pauses_s), default=0.0),
        )

    def begin_to_save(self) -> bool:
        """Returns True if the log of a container has just shown its first complete checkpoint."""
        return bool([fold for fold in self._folds.values() if fold.begins_to_save()])

    def tidied(self, now: datetime) -> bool:
        """Forgets each container that ended more than `ended_keep_s` ago, if its log is gone or the container
        has started again since; of the others only the last lines are dropped. Returns True if anything was
        forgotten or dropped."""
        keep = timedelta(seconds=self._settings.ended_keep_s)
        changed = False
        for ref, fold in list(self._folds.items()):
            over = fold.ended_at is not None and now - fold.ended_at > keep
            if over and (ref in self._gone or self._superseded(ref)):
                del self._folds[ref]
                self._gone.discard(ref)
                changed = True
            elif over and fold.drop_tail():
                changed = True
        return changed

    @property
    def are_many(self) -> bool:
        """Whether there may be too many containers to publish all of them."""
        return len(self._folds) > PODS_MAX

    def published(self, priority_uids: Collection[str]) -> tuple[list[PodProgress], frozenset[str]]:
        """Returns the containers to publish, oldest edge first, and the uids of pods with a container that
        has no room. If there are too many, the pods in `priority_uids` have priority. If one container of a
        pod has reported anything, the silent containers of the pod do not count, because they may be sidecars
        of the training. They do count if the controller has named the pod."""
        telling = {fold.ref.uid for fold in self._folds.values() if fold.tells}
        folds = [f for f in self._folds.values() if f.tells or f.named or f.ref.uid not in telling]
        pods = [published for fold in folds if (published := fold.published()) is not None]
        order = best_first(pods, priority_uids)
        left_out = frozenset(pod.uid for pod in order[PODS_MAX:])
        return sorted(order[:PODS_MAX], key=lambda pod: pod.at), left_out

    def _superseded(self, ref: PodRef) -> bool:
        return any(
            other.uid == ref.uid and other.container == ref.container and other.instance > ref.instance
            for other in self._folds
        )


def _past(at: datetime | None, now: datetime) -> datetime | None:
    return at if at is not None and at <= now + _AHEAD_MAX else None
