"""`python -m tests.cluster.demo` shows the story of test_from_nothing.py to people, with the output of
`rekindle`.

It needs root, takes some four minutes, and leaves nothing behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from chaos.processes.locked_environment import MissingError
from tests.chart.helm import HelmError
from tests.cluster.record import ClusterError
from tests.cluster.story import FIRST_GPU, SECOND_GPU, Story, begun
from tests.control_plane.build import BuildError
from tests.control_plane.plane import PlaneError

__all__ = ["main"]


def main() -> int:
    """Runs the story. Returns 1, and prints why, if the story breaks off."""
    # If a signal ends the process, the cluster is taken down as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = time.monotonic()

    def tell(line: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {line}", flush=True)

    try:
        with tempfile.TemporaryDirectory() as folder, begun(Path(folder), tell) as story:
            _play(story)
            print(f"\n{story.times.table()}")
    except (AssertionError, BuildError, ClusterError, HelmError, MissingError, PlaneError) as error:
        print(f"cluster demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _play(story: Story) -> None:
    times = story.times
    with times.phase("helm install, with defaults; a training for comparison beside it"):
        undisturbed = story.train_undisturbed()
        story.release.install()
        expected = story.finished(undisturbed)
    with times.phase("a gang of two nodes trains, labelled rekindle.dev/auto-recovery=enabled"):
        story.train()
    node = story.nodes()["gang-worker-0"]
    with times.phase(f"mode observe: the first GPU of {node} falls off the bus, in a save"):
        story.strike(node, FIRST_GPU)
        story.until("an Incident", lambda: bool(story.incidents()))
    _rekindle(story, "why", f"node/{node}")
    with times.phase("helm upgrade to mode repair: the old Incident is left alone"):
        story.release.upgrade({"mode": "repair"})
        story.until("a word on it", story.is_stale)
    with times.phase(f"its second GPU falls off the bus, in a save: the gang goes on without {node}"):
        story.strike(node, SECOND_GPU)
        story.until("its first new step", lambda: story.recovery().get("phase") == "Succeeded")
    _rekindle(story, "why", "gang")
    story.hurry()
    with times.phase(f"{node} is repaired (a simulated reboot), validated and returned"):
        story.until("its return", lambda: story.repair().get("phase") in ("Returned", "HandedOver"))
    story.note_repair()
    _rekindle(story, "why", f"node/{node}")
    with times.phase("the training ends"):
        weights = story.finished(story.gang)
    same = "as" if weights == expected else "NOT as"
    print(f"\nfinal weights: {same} in the undisturbed training, bit for bit\n", flush=True)
    _rekindle(story, "status")
    with times.phase("helm uninstall"):
        story.release.uninstall()


def _rekindle(story: Story, *arguments: str) -> None:
    """Prints what a person would see. The output must be complete before the next line of this process."""
    print(f"\n$ rekindle {' '.join(arguments)}", flush=True)
    environment = {**os.environ, "KUBECONFIG": str(story.cluster.plane.kubeconfig())}
    command = [sys.executable, "-m", "detectors.commands.main", *arguments]
    subprocess.run(command, env=environment, check=False)
    print(flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
