"""Starts a whole cluster, from nothing to nodes that are Ready, and removes it. Each step prints its time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.cluster.build import base_image_files
from tests.cluster.control import ClusterPlane, lay_authority, start_control_plane, start_dns
from tests.cluster.images import write_base, write_pause
from tests.cluster.network import lay_bridge
from tests.cluster.node import Node
from tests.cluster.record import FOLDER, ClusterError, Record
from tests.control_plane.build import Programs
from tests.control_plane.plane import ControlPlane, PlaneError

__all__ = ["GPUS_PER_NODE", "NODES", "Cluster", "running", "started"]

NODES = ("worker-1", "worker-2", "spare-1")
GPUS_PER_NODE = 2
READY_S = 300.0


class Cluster:
    """A running cluster, as its administrator sees it."""

    def __init__(self, plane: ControlPlane, nodes: Mapping[str, Node], programs: Programs) -> None:
        self.plane = plane
        self.nodes = nodes
        self.programs = programs

    def kubectl(self, *arguments: str, given: str = "") -> str:
        """Returns what kubectl prints; `given` is its input. Raises ClusterError with kubectl's error
        output."""
        command = [self.programs.path("kubectl"), f"--kubeconfig={self.plane.kubeconfig()}", *arguments]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ClusterError(f"kubectl {' '.join(arguments)} failed: {done.stderr.strip()}")
        return done.stdout

    def node_status(self, name: str) -> Any:
        return msgspec.json.decode(self.kubectl("get", "node", name, "--output=json"))["status"]

    def wait_until_ready(self, *names: str) -> None:
        """Waits until these nodes are Ready, in this boot, with all their GPUs."""
        deadline = time.monotonic() + READY_S
        for name in names:
            while not self.is_ready(name):
                if time.monotonic() > deadline:
                    raise ClusterError(f"{name} is not Ready in {READY_S:g} s:\n{self.last_words()}")
                time.sleep(0.2)

    def wait_until_usable(self) -> None:
        """Waits until pods can be created: a controller creates the ServiceAccount that pods get."""
        deadline = time.monotonic() + READY_S
        while "default" not in self.kubectl("get", "serviceaccounts", "--output=name"):
            ended = [program.name for program in self.plane.programs.values() if not program.alive]
            if ended:
                raise ClusterError(f"{', '.join(ended)} ended:\n{self.last_words()}")
            if time.monotonic() > deadline:
                raise ClusterError(f"no ServiceAccount in {READY_S:g} s:\n{self.last_words()}")
            time.sleep(0.2)

    def last_words(self) -> str:
        """Returns the last lines that each program wrote."""
        logs = [*self.plane.folder.glob("kube*.log"), *FOLDER.glob("*/logs/*.log")]
        return "\n".join(f"== {log}\n{tail(log)}" for log in sorted(logs))

    def is_ready(self, name: str) -> bool:
        found = self.kubectl("get", "node", name, "--ignore-not-found", "--output=json")
        if not found:
            return False
        node = self.nodes[name]
        status = msgspec.json.decode(found)["status"]
        ready = [c["status"] for c in status.get("conditions", []) if c["type"] == "Ready"]
        gpus = int(status.get("allocatable", {}).get("nvidia.com/gpu", 0))
        wanted = len(node.gpus.read_text(encoding="utf-8").split())
        return ready == ["True"] and gpus == wanted and status["nodeInfo"]["bootID"] == node.boot_id


def tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(line[:300] for line in lines[-5:])


@contextmanager
def started(programs: Programs, images: Sequence[Path] = ()) -> Iterator[Cluster]:
    """Yields a running cluster. `images` are archives that every node loads in addition to the base image.

    Raises ClusterError. However the block ends, nothing stays behind. If this process is killed, what stays
    is recorded, and down.py removes it.
    """
    if os.geteuid() != 0:
        raise ClusterError("only root can make nodes: they need namespaces, mounts and links")
    record = Record.begin()
    with ExitStack() as stack:
        stack.callback(record.remove)
        try:
            yield _bring_up(stack, record, programs, images)
        except PlaneError as error:
            raise ClusterError(str(error)) from error


def _bring_up(stack: ExitStack, record: Record, programs: Programs, images: Sequence[Path]) -> Cluster:
    began = time.monotonic()
    cluster = _cluster(record, programs)
    plane, nodes = cluster.plane, cluster.nodes
    plane.folder.mkdir()
    with _step("network and certificates"):
        lay_bridge(record)
        lay_authority(plane)
    with _step("images"):
        (FOLDER / "images").mkdir()
        write_pause(FOLDER / "images" / "pause.tar", programs.files["pause"])
        write_base(FOLDER / "images" / "base.tar", base_image_files())
        for image in images:
            shutil.copy(image, FOLDER / "images")
    with _step("nodes booted"):
        for node in nodes.values():
            node.lay(plane, programs, GPUS_PER_NODE, list(range(1, len(NODES) + 1)))
            stack.callback(node.end)
            node.start()
    with _step("control plane"):
        start_control_plane(stack, programs, plane)
        for name, program in plane.programs.items():
            record.note_process(name, program.pid)
    with _step("DNS"):
        start_dns(stack, programs, plane)
        record.note_process("coredns", plane.programs["coredns"].pid)
    with _step("nodes Ready, with their GPUs"):
        cluster.wait_until_usable()
        cluster.wait_until_ready(*nodes)
    print(f"  cluster up in {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
    return cluster


def running(programs: Programs) -> Cluster:
    """Returns the cluster that another process keeps. Its nodes can be observed, but only their keeper can
    crash them. Raises ClusterError if there is none."""
    record = Record.read()
    if record is None or not record.driver.alive:
        raise ClusterError("no cluster runs here; bring one up with `python -m tests.cluster.up --detach`")
    return _cluster(record, programs)


def _cluster(record: Record, programs: Programs) -> Cluster:
    plane = ClusterPlane(FOLDER / "control-plane")
    nodes = {name: Node(name, n, FOLDER / name, record) for n, name in enumerate(NODES, start=1)}
    return Cluster(plane, nodes, programs)


@contextmanager
def _step(name: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    print(f"  {name}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
