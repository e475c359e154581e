"""`python -m tests.mutants.reach A..B [JOBS [FILE]]`: plays those random scripts on the unchanged code, and
prints as JSON the scripts in which each mutant of the table would have decided otherwise. If seeds have a
violation, it prints all of them, and the exit status is 1. FILE keeps the answer of each seed: a second call
with the same code plays only the other seeds.

A script is deterministic, so a mutant changes a run only from its first different decision on. A script in
which the mutant never decides otherwise cannot notice the mutant, and need not be played.
"""

from __future__ import annotations

import hashlib
import sys
from multiprocessing import Pool
from pathlib import Path

import msgspec

from chaos.simulate.command import seeds_of
from chaos.simulate.many import play_seed
from tests.mutants.model import ROOT
from tests.mutants.tracing import differing, sites

__all__ = ["Reach", "main"]

Reach = dict[str, list[int]]
"""Mutant -> seeds in which it would have decided otherwise."""
_CODE = ("recover", "detectors", "chaos", "tests/mutants")


class _Played(msgspec.Struct, frozen=True):
    """The run of a seed on the unchanged code."""

    code: str
    """Digest of the code that was played."""
    seed: int
    names: list[str]
    """Names of the mutants that would have decided otherwise."""
    failure: str


def main(text: str, jobs: str = "1", file: str = "") -> int:
    seeds, code = seeds_of(text), _digest()
    played = _recorded(Path(file), code) if file else {}
    with Pool(int(jobs), maxtasksperchild=20) as pool:
        for one in pool.imap(_play, [(code, seed) for seed in seeds if seed not in played]):
            played[one.seed] = one
            if file:
                with Path(file).open("ab") as stream:
                    stream.write(msgspec.json.encode(one) + b"\n")
    reach: Reach = {name: [seed for seed in seeds if name in played[seed].names] for name in sites()}
    violated = [f"seed {seed}: {played[seed].failure}" for seed in seeds if played[seed].failure]
    print("\n".join(violated) if violated else msgspec.json.encode(reach).decode())
    return 1 if violated else 0


def _play(task: tuple[str, int]) -> _Played:
    code, seed = task
    with differing(sites()) as names:
        failure = play_seed(seed).failure
    return _Played(code, seed, sorted(names), failure.splitlines()[0][:300] if failure else "")


def _recorded(file: Path, code: str) -> dict[int, _Played]:
    lines = file.read_bytes().splitlines() if file.exists() else []
    played = [msgspec.json.decode(line, type=_Played) for line in lines]
    return {one.seed: one for one in played if one.code == code}


def _digest() -> str:
    digest = hashlib.sha256()
    for file in sorted(file for part in _CODE for file in (ROOT / part).rglob("*.py")):
        digest.update(f"{file.relative_to(ROOT)}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
