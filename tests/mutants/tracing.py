"""Traces a run of the unchanged code, and notes which mutants would have decided otherwise in it."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from tests.mutants.model import ROOT
from tests.mutants.site import Site, site_of
from tests.mutants.table import MUTANTS

__all__ = ["Sites", "differing", "sites"]

Sites = Mapping[str, tuple[str, Site]]
"""Mutant -> the file that it changes, and the place there."""


def sites(only: str = "") -> Sites:
    """Returns the sites of the mutants whose name contains `only`."""
    chosen = (mutant for mutant in MUTANTS if only in mutant.name)
    return {m.name: (m.file, site_of(m, (ROOT / m.file).read_text())) for m in chosen}


@contextmanager
def differing(places: Sites) -> Iterator[set[str]]:
    """Yields a set that has, once the block has ended, the names of the mutants that would have decided
    otherwise in the block. A mutant of code outside of every function is always among them, because an import
    executes it."""
    tracer = _Tracer(places)
    sys.settrace(tracer.call)
    try:
        yield tracer.differing
    finally:
        sys.settrace(None)
        tracer.differing |= {name for name, (_, site) in places.items() if not site.function}


class _Tracer:
    """Trace function for sys.settrace. `differing` collects the names of mutants; a mutant is evaluated until
    its name is in the set."""

    def __init__(self, sites: Sites) -> None:
        self.differing: set[str] = set()
        self._files = {str(ROOT / file) for file, _ in sites.values()}
        self._at: dict[tuple[str, int], list[tuple[str, Site]]] = defaultdict(list)
        for name, (file, site) in sites.items():
            for line in site.lines:
                self._at[str(ROOT / file), line].append((name, site))

    def call(self, frame: FrameType, _: str, __: Any) -> Any:
        return self.line if frame.f_code.co_filename in self._files else None

    def line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            for name, site in self._at.get((frame.f_code.co_filename, frame.f_lineno), ()):
                if name not in self.differing and site.differs(frame):
                    self.differing.add(name)
        return self.line
