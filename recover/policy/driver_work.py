"""Finds work on a node's driver that is under way, from the node's labels: rows of driver_work.toml. A wrong
row makes the start fail. Pure.

While the work lasts, recover/diagnose/what_counts.py ignores the driver's findings.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from importlib import resources
from typing import Annotated

import msgspec
from msgspec import Meta

from detectors.wire.contract import Origin
from recover.model import Node

__all__ = ["DriverWork", "driver_work", "lasts_at_most", "work_labels"]

Words = Annotated[tuple[str, ...], Meta(min_length=1)]


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    label: str
    what: str
    under_way: Words
    ended: Words
    origins: Annotated[tuple[Origin, ...], Meta(min_length=1)]
    source: str
    beside: dict[str, str] = {}

    def is_under_way(self, labels: Mapping[str, str]) -> bool:
        state = labels.get(self.label, "")
        other = self.beside.get(state)
        return state in self.under_way or (other is not None and other in labels)


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    settle_s: Annotated[float, Meta(ge=0)]
    lasts_max_s: Annotated[float, Meta(gt=0)]
    work: tuple[_Row, ...]


class DriverWork(msgspec.Struct, frozen=True):
    """Work on a driver. Findings of these origins prove nothing about the node, until the time `until`, if it
    is known."""

    what: str
    label: str
    state: str
    origins: tuple[Origin, ...]
    until: datetime | None


@cache
def _table() -> _Table:
    """Reads the packaged rows. Raises msgspec.ValidationError, which names the row and field."""
    text = resources.files("recover.policy").joinpath("driver_work.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), _Table)


@cache
def work_labels() -> frozenset[str]:
    """Returns the labels that show such work."""
    return frozenset(row.label for row in _table().work)


def lasts_at_most() -> timedelta:
    """Returns the time after which work that is still under way no longer counts."""
    return timedelta(seconds=_table().lasts_max_s)


def driver_work(node: Node, now: datetime) -> tuple[DriverWork, ...]:
    """Returns the work that is under way or ended a moment ago.

    The API server reports when a label was written. Without that time, work that is under way counts without
    a limit, and work that has ended does not count. Work under way with a time ahead of our clock counts as
    just begun.
    """
    if work_labels().isdisjoint(node.labels):
        return ()
    table, found = _table(), []
    for row in table.work:
        state = node.labels.get(row.label, "")
        written_at = node.labelled_at.get(row.label)
        if row.is_under_way(node.labels):
            lasts_s = table.lasts_max_s
        elif state in row.ended and written_at is not None and written_at <= now:
            lasts_s = table.settle_s
        else:
            continue
        until = written_at + timedelta(seconds=lasts_s) if written_at is not None else None
        if until is None or now < until:
            found.append(DriverWork(row.what, row.label, state, row.origins, until))
    return tuple(found)
