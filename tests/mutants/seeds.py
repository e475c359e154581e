"""`python -m tests.mutants.seeds 3,17,40`: plays those random scripts until one has a violation. The exit
status is 1 if one has."""

from __future__ import annotations

import sys

from chaos.simulate.many import play_seed


def main(text: str) -> int:
    for seed in map(int, text.split(",")):
        failure = play_seed(seed).failure
        if failure:
            print(f"seed {seed}: {failure.splitlines()[0][:300]}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
