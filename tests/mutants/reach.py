"""`python -m tests.mutants.reach A..B`: plays those random scripts on the code as it is, and prints as JSON
by which of them each mutant of the table would have decided otherwise. Exit status 1 if a script has a
violation.

A script is deterministic, so a mutant changes a run only from where it decides otherwise. A script in which
the mutant never does cannot notice the mutant, and need not be played.
"""

from __future__ import annotations

import sys

import msgspec

from chaos.simulate.command import seeds_of
from chaos.simulate.many import play_seed
from tests.mutants.tracing import differing, sites

__all__ = ["Reach", "main"]

Reach = dict[str, list[int]]
"""Mutant -> seeds in which it would have decided otherwise."""


def main(text: str) -> int:
    places = sites()
    reach: Reach = {name: [] for name in places}
    for seed in seeds_of(text):
        with differing(places) as names:
            failure = play_seed(seed).failure
        if failure:
            print(f"seed {seed}: {failure.splitlines()[0][:300]}")
            return 1
        for name in names:
            reach[name].append(seed)
    print(msgspec.json.encode(reach).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
