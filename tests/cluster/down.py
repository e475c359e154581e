"""`python -m tests.cluster.down`: ends this machine's cluster, however it was left. Twice does no harm."""

from __future__ import annotations

import shutil
import signal
import sys
import time

from tests.cluster.record import FOLDER, ClusterError, Record

__all__ = ["main"]

KEEPER_S = 60.0


def main() -> int:
    """Exit 1, with one line that says why, if something stays behind."""
    began = time.monotonic()
    record = Record.read()
    if record is None and FOLDER.exists():
        shutil.rmtree(
            FOLDER
        )  # killed before its record was made, or while it was removed: nothing else is there
    if record is None:
        print("no cluster is here", file=sys.stderr)
        return 0
    # Its keeper takes everything away; what it could not is ours.
    if not record.driver.end(signal.SIGTERM, KEEPER_S):
        record.driver.end(signal.SIGKILL)
    try:
        if left := Record.read():
            left.remove()
    except ClusterError as error:
        print(f"cluster: {error}; try again", file=sys.stderr)
        return 1
    print(f"  cluster down in {time.monotonic() - began:.1f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
