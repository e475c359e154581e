"""`python -m tests.control_plane.up [-- COMMAND...]` starts a control plane for people, until Ctrl-C, or for
one command. The command finds the control plane by KUBECONFIG, and its exit status is returned. `--training`
also starts the training-operator with each `--operator-flag`, so that PyTorchJobs, PaddleJobs and TFJobs run;
`--jobsets` starts the JobSet controller. `--rekindle` also installs Rekindle on GPU nodes, and starts a
training job (docs/playground.md). With `--bare` there are only etcd and the API server: nothing else runs,
and nothing writes without a request."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from chaos.processes.children import die_with
from tests.control_plane.build import BuildError, cached
from tests.control_plane.jobset_controller import jobset_controller
from tests.control_plane.operator import training_operator
from tests.control_plane.plane import ControlPlane, PlaneError, started
from tests.control_plane.playground import playground

__all__ = ["main"]

LOOK_S = 0.2
SILENCE_S = 50
_ENDING = {signal.SIGINT, signal.SIGTERM}


def main(args: list[str]) -> int:
    parser = _parser()
    options = parser.parse_args(args)
    if options.rekindle and (options.bare or options.command):
        parser.error("--rekindle goes with neither --bare nor a COMMAND")
    command: list[str] = options.command
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        with ExitStack() as stack:
            plane = stack.enter_context(started(cached(), controllers=not options.bare, silence_s=SILENCE_S))
            if options.training:
                stack.enter_context(training_operator(cached(), plane, options.operator_flag))
            if options.jobsets:
                stack.enter_context(jobset_controller(cached(), plane))
            if options.rekindle:
                asyncio.run(playground(cached(), plane, training=options.training))
                return 0
            return _for_command(command, plane.kubeconfig()) if command else _for_people(plane)
    except (BuildError, PlaneError) as error:
        print(f"control plane: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.control_plane.up", description=__doc__)
    parser.add_argument("--training", action="store_true", help="with the training-operator")
    parser.add_argument(
        "--operator-flag", action="append", default=[], metavar="FLAG", help="of the training-operator"
    )
    parser.add_argument("--jobsets", action="store_true", help="with the JobSet controller")
    parser.add_argument("--rekindle", action="store_true", help="with GPU nodes, Rekindle and a training job")
    parser.add_argument("--bare", action="store_true", help="etcd and the API server alone")
    parser.add_argument("command", nargs="*", metavar="COMMAND", help="after --; default: until Ctrl-C")
    return parser


def _for_people(plane: ControlPlane) -> int:
    print(f"export KUBECONFIG={plane.kubeconfig()}", flush=True)
    print(f"logs: {plane.folder}; Ctrl-C ends it", file=sys.stderr, flush=True)
    signal.sigwait(_ENDING)
    return 0


def _for_command(command: list[str], kubeconfig: Path) -> int:
    """Runs the command, and ends it as this process is ended: Ctrl-C reaches the command from the terminal
    anyway, and SIGTERM is passed on."""
    env = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    parent = os.getpid()
    process = subprocess.Popen(command, env=env, preexec_fn=lambda: _prepare(parent))  # noqa: PLW1509
    while (status := process.poll()) is None:
        told = signal.sigtimedwait(_ENDING, LOOK_S)
        if told is not None and told.si_signo == signal.SIGTERM:
            process.terminate()
    return status if status >= 0 else 128 - status


def _prepare(parent: int) -> None:
    """Prepares the child: it receives the signals that this process blocks, and never outlives this
    process."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    die_with(parent)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
