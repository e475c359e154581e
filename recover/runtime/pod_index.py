"""Indexes the kept pods by the keys that decisions use for lookups. changes.py updates the indexes."""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

from recover.api.marks import SCAN_OF
from recover.model import Bystander, Pod

__all__ = ["PodIndex", "is_scan"]

K = TypeVar("K")
V = TypeVar("V")


class PodIndex:
    """The indexes of the pods, as World has them. A change costs the same in a gang of two ranks and of
    thousands."""

    def __init__(self) -> None:
        self.pods_of: dict[str, dict[str, Pod]] = {}
        self.pods_on: dict[tuple[str, str], dict[str, Pod]] = {}
        self.gangs_on: dict[str, frozenset[str]] = {}
        self.scans: dict[str, Pod] = {}
        self.bystanders: dict[str, dict[str, Bystander]] = {}
        self.complaining: dict[str, dict[str, Pod]] = {}
        self.not_started: dict[str, Pod] = {}
        self._scans_of: Counter[tuple[str, str]] = Counter()
        """Number of scans that carry each label; a key is a namespace and a label's value."""

    def has_scan(self, namespace: str, label: str) -> bool:
        """Whether a scan with that label exists. This is called for every ended recovery at each change, so
        it iterates over no pods: anybody may create thousands with that label."""
        return (namespace, label) in self._scans_of

    def change(self, key: str, old: Pod | Bystander | None, new: Pod | Bystander | None) -> None:
        self._change_bystander(old, new)
        was, now = (None if isinstance(pod, Bystander) else pod for pod in (old, new))
        self._change_scan(key, now if now is not None and is_scan(now) else None)
        if was is not None:
            _remove(self.pods_of, was.owner_uid, was.uid)
            _remove(self.complaining, was.node, was.uid)
            self.not_started.pop(was.uid, None)
            self._leave(was)
        if now is not None and now.owner_uid:
            self.pods_of.setdefault(now.owner_uid, {})[now.uid] = now
            if now.not_started:
                self.not_started[now.uid] = now
            self._enter(now)
        if now is not None and now.unhealthy and now.node:
            self.complaining.setdefault(now.node, {})[now.uid] = now

    def _change_bystander(self, old: object, new: object) -> None:
        if isinstance(old, Bystander):
            _remove(self.bystanders, old.node, old.uid)
        if isinstance(new, Bystander):
            self.bystanders.setdefault(new.node, {})[new.uid] = new

    def _change_scan(self, key: str, scan: Pod | None) -> None:
        old = self.scans.pop(key, None)
        if old is not None:
            label = (old.namespace, old.labels[SCAN_OF])
            self._scans_of[label] -= 1
            if not self._scans_of[label]:
                del self._scans_of[label]
        if scan is not None:
            self.scans[key] = scan
            self._scans_of[scan.namespace, scan.labels[SCAN_OF]] += 1

    def _enter(self, pod: Pod) -> None:
        if not pod.node:
            return
        self.pods_on.setdefault((pod.owner_uid, pod.node), {})[pod.uid] = pod
        there = self.gangs_on.get(pod.node, frozenset())
        if pod.owner_uid not in there:
            self.gangs_on[pod.node] = there | {pod.owner_uid}

    def _leave(self, pod: Pod) -> None:
        place = (pod.owner_uid, pod.node)
        if place not in self.pods_on:
            return
        _remove(self.pods_on, place, pod.uid)
        if place not in self.pods_on:
            self.gangs_on[pod.node] -= {pod.owner_uid}
            if not self.gangs_on[pod.node]:
                del self.gangs_on[pod.node]


def is_scan(pod: Pod) -> bool:
    """Whether the pod is a scan. Anybody may write that label. A scan requests no accelerators, and a pod
    that uses some must count as their user, whatever its labels say."""
    return SCAN_OF in pod.labels and not pod.owner_uid and not pod.may_hold_devices


def _remove(index: dict[K, dict[str, V]], key: K, uid: str) -> None:
    there = index.get(key)
    if there is not None:
        there.pop(uid, None)
        if not there:
            del index[key]
