"""`python -m tests.mutants.reach A..B [JOBS]`: plays those random scripts on the code as it is, and prints as
JSON by which of them each mutant of the table would have decided otherwise. Exit status 1, and all seeds that
have a violation, if there is one.

A script is deterministic, so a mutant changes a run only from where it decides otherwise. A script in which
the mutant never does cannot notice the mutant, and need not be played.
"""

from __future__ import annotations

import sys
from multiprocessing import Pool

import msgspec

from chaos.simulate.command import seeds_of
from chaos.simulate.many import play_seed
from tests.mutants.tracing import differing, sites

__all__ = ["Reach", "main"]

Reach = dict[str, list[int]]
"""Mutant -> seeds in which it would have decided otherwise."""


def main(text: str, jobs: str = "1") -> int:
    reach: Reach = {name: [] for name in sites()}
    violated = []
    with Pool(int(jobs), maxtasksperchild=20) as pool:
        for seed, names, failure in pool.imap(_played, seeds_of(text)):
            for name in names:
                reach[name].append(seed)
            if failure:
                violated.append(f"seed {seed}: {failure.splitlines()[0][:300]}")
    print("\n".join(violated) if violated else msgspec.json.encode(reach).decode())
    return 1 if violated else 0


def _played(seed: int) -> tuple[int, set[str], str]:
    """The seed, the mutants that would have decided otherwise, and the violation."""
    with differing(sites()) as names:
        failure = play_seed(seed).failure
    return seed, names, failure


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
