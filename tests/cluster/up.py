"""`python -m tests.cluster.up [--detach] [--product]` starts a cluster with real nodes for people, until
Ctrl-C, or detached until `python -m tests.cluster.down`. Standard output is the one line that a shell needs
to find the cluster."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable

from tests.cluster.build import cached
from tests.cluster.cluster import Cluster, started
from tests.cluster.product import product_image
from tests.cluster.record import FOLDER, ClusterError
from tests.control_plane.build import BuildError

__all__ = ["main"]

_ENDING = {signal.SIGINT, signal.SIGTERM}
_READY = b"ready"


def main(args: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.up", description=__doc__)
    parser.add_argument("--detach", action="store_true", help="return when the cluster is up, and leave it")
    parser.add_argument("--product", action="store_true", help="every node has our own image, of this source")
    options = parser.parse_args(args)
    # A signal that arrives while the cluster is being brought up is handled when everything is recorded:
    # nothing is left half made.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    if options.detach:
        return _detached(options.product)
    return _run(options.product, lambda: print("Ctrl-C ends it", file=sys.stderr, flush=True))


def _run(product: bool, on_ready: Callable[[], None]) -> int:
    try:
        with started(cached(), [product_image()] if product else []) as cluster:
            _tell(cluster)
            on_ready()
            signal.sigwait(_ENDING)
    except (BuildError, ClusterError) as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1
    return 0


def _tell(cluster: Cluster) -> None:
    kubectl = cluster.programs.path("kubectl")
    print(f"export KUBECONFIG={cluster.plane.kubeconfig()}", flush=True)
    print(f"kubectl: {kubectl}\nlogs: {FOLDER}/*/logs, {FOLDER}/control-plane", file=sys.stderr, flush=True)


def _detached(product: bool) -> int:
    """Starts the cluster's keeper as a child in its own session. The child reports when the cluster is up."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.setsid()
        os._exit(_run(product, lambda: _let_go(writer)))
    os.close(writer)
    with os.fdopen(reader, "rb") as told:
        if told.read() == _READY:
            return 0
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _let_go(writer: int) -> None:
    """Redirects the output: from now on it goes only to the log."""
    log = os.open(FOLDER / "keeper.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.write(writer, _READY)
    os.close(writer)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
