"""`python -m tests.control_plane.up`: a control plane for people, until Ctrl-C."""

from __future__ import annotations

import signal
import sys

from tests.control_plane.build import BuildError, cached
from tests.control_plane.plane import PlaneError, started

__all__ = ["main"]


def main() -> int:
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        with started(cached(), controllers=True) as plane:
            print(f"export KUBECONFIG={plane.kubeconfig()}", flush=True)
            print(f"logs: {plane.folder}; Ctrl-C ends it", file=sys.stderr, flush=True)
            signal.sigwait(signals)
    except (BuildError, PlaneError) as error:
        print(f"control plane: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
