"""`python -m tests.mutants.reach A..B`: plays those random scripts on the code as it is, and prints as JSON
by which of them each mutant of the table would have decided otherwise. Exit status 1 if a script has a
violation.

A script is deterministic, so a mutant changes a run only from where it decides otherwise. A script in which
the mutant never does cannot notice the mutant, and need not be played.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from types import FrameType
from typing import Any

import msgspec

from chaos.simulate.command import seeds_of
from chaos.simulate.many import play_seed
from tests.mutants.model import ROOT
from tests.mutants.site import Site, site_of
from tests.mutants.table import MUTANTS

__all__ = ["Reach", "main"]

Reach = dict[str, list[int]]
"""Mutant -> seeds in which it would have decided otherwise."""


class _Tracer:
    """For sys.settrace. `differing` collects the names of mutants; each is evaluated until it is there."""

    def __init__(self, sites: dict[str, tuple[str, Site]]) -> None:
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


def main(text: str) -> int:
    sites = {m.name: (m.file, site_of(m, (ROOT / m.file).read_text())) for m in MUTANTS}
    reach: Reach = {name: [] for name in sites}
    for seed in seeds_of(text):
        tracer = _Tracer(sites)
        sys.settrace(tracer.call)
        failure = play_seed(seed).failure
        sys.settrace(None)
        if failure:
            print(f"seed {seed}: {failure.splitlines()[0][:300]}")
            return 1
        for name, (_, site) in sites.items():
            if name in tracer.differing or not site.function:
                reach[name].append(seed)
    print(msgspec.json.encode(reach).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
