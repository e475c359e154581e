"""Makes a failing script smaller, as long as it fails in the same way: it removes acts, jobs and
peculiarities. The number of plays is bounded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec

from chaos.simulate.script import Script, play_script
from chaos.simulate.world import Simulation
from chaos.simulated.setup import Setup

__all__ = ["Shrunk", "failure_of", "shrink"]

_NUMBERS = re.compile(r"[0-9a-f]*[0-9][0-9a-f]*")
_TIME = re.compile(r"^\d\d:\d\d:\d\d\.\d+ ")


class Shrunk(msgspec.Struct, frozen=True):
    script: Script
    failure: str
    """Failure of the smaller script."""
    plays: int


def failure_of(script: Script, look: Callable[[Simulation], None] = lambda _: None) -> str:
    """Plays the script and returns its failure. If the script passes, the result is empty, and `look` gets
    the end of the run. A crash of the simulation is a failure, too."""
    try:
        look(play_script(script))
    except AssertionError as error:
        return str(error)
    except ExceptionGroup as several:  # a part of the simulation ended with an error
        return f"the simulation failed: {several.exceptions[0]!r}"
    return ""


def shrink(script: Script, failure: str, *, plays_max: int) -> Shrunk:
    """Returns the smallest script that was found. `failure` is the failure of the whole script. Another
    failure does not count, because it may be another defect."""
    plays = 0

    def still_fails(smaller: Script) -> str:
        nonlocal plays
        if plays >= plays_max:
            return ""
        plays += 1
        found = failure_of(smaller)
        return found if found and _kind(found) == _kind(failure) else ""

    best, said = script, failure
    while True:
        for smaller in _smaller(best):
            if found := still_fails(smaller):
                best, said = smaller, found
                break
        else:
            return Shrunk(best, said, plays)


def _kind(failure: str) -> str:
    """Returns the first line of a failure without its numbers: names of nodes and steps change as a script
    gets smaller."""
    return _NUMBERS.sub("#", _TIME.sub("", failure.partition("\n")[0]))[:60]


def _smaller(script: Script) -> Iterator[Script]:
    """Yields candidates, the largest reductions first. After each success the search begins again."""
    acts = script.acts
    size = len(acts) // 2
    while size:
        for first in range(0, len(acts), size):
            yield msgspec.structs.replace(script, acts=(*acts[:first], *acts[first + size :]))
        size //= 2
    if len(script.jobs) > 1:
        for job in script.jobs:
            others = tuple(one for one in script.jobs if one is not job)
            about_it = tuple(act for act in acts if getattr(act, "job", "") != job.key)
            yield msgspec.structs.replace(script, jobs=others, acts=about_it)
    if script.spares:
        yield msgspec.structs.replace(script, spares=())
    for plainer in _plainer(script.setup):
        yield msgspec.structs.replace(script, setup=plainer)


def _plainer(setup: Setup) -> Iterator[Setup]:
    usual = Setup()
    for field in ("clock_leads_s", "without_agent", "per_rack", "per_pool"):
        value = getattr(usual, field)
        if getattr(setup, field) != value:
            yield msgspec.structs.replace(setup, **{field: value})
