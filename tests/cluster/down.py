"""`python -m tests.cluster.down` ends this machine's cluster, in whatever state the cluster is. A second call
does no harm."""

from __future__ import annotations

import shutil
import signal
import sys
import time

from tests.cluster.record import FOLDER, ClusterError, Record

__all__ = ["main"]

KEEPER_S = 60.0


def main() -> int:
    """Ends the cluster. Returns 1, and prints one line that says why, if something stays behind."""
    began = time.monotonic()
    record = Record.read()
    if record is None and FOLDER.exists():
        shutil.rmtree(
            FOLDER
        )  # the process was killed before it wrote its record, or while it removed it: nothing else is left
    if record is None:
        print("no cluster is here", file=sys.stderr)
        return 0
    # The cluster's keeper removes everything. This process removes what the keeper could not.
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
