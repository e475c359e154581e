"""However a cluster ends, the machine is as it was before: no process, mount, link, route, rule, cgroup,
kernel setting or file stays behind.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cluster.build import cached
from tests.cluster.cases import apply, pod_of, until
from tests.cluster.cluster import NODES, running
from tests.cluster.record import FOLDER, Record, cgroup_hierarchies

pytestmark = pytest.mark.real_nodes

SETTINGS = (
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/rp_filter",
    "net/ipv4/conf/all/route_localnet",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
FOLDERS = ("/", "/dev", "/etc", "/opt", "/run", "/usr/libexec", "/var/lib", "/var/log")


Snapshot = dict[str, set[str]]
"""The things that exist on the machine, by kind."""


def snapshot() -> Snapshot:
    """Returns what a cluster could leave behind, with as little as possible of what other people do on the
    machine."""
    top = {str(path) for hierarchy in cgroup_hierarchies() for path in hierarchy.iterdir() if path.is_dir()}
    return {
        "processes": set(foreign_processes()),
        "mounts": set(Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()),
        "links": set(re.findall(r"^\d+: ([^:@]+)", output("ip", "link"), re.MULTILINE)),
        "routes": set(output("ip", "route", "show", "table", "all").splitlines()),
        "rules": {*rules("iptables-legacy-save"), *rules("iptables-nft-save")},
        "cgroups": top,
        "settings": {f"{name} {Path('/proc/sys', name).read_text(encoding='utf-8')}" for name in SETTINGS},
        "files": {str(path) for folder in FOLDERS for path in Path(folder).iterdir()},
    }


def foreign_processes() -> Iterator[str]:
    """Yields processes in their own namespaces, and processes of a cluster's control plane."""
    ours = namespaces("self")
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if namespaces(folder.name) != ours or str(FOLDER) in command:
                yield f"{folder.name} {command}"
        except (FileNotFoundError, ProcessLookupError):  # the process has just ended
            continue
        except PermissionError:  # it has more permissions than this process, so it is none of a cluster's
            continue


def namespaces(process: str) -> list[str]:
    return [os.readlink(f"/proc/{process}/ns/{kind}") for kind in ("mnt", "net", "pid")]


def rules(program: str) -> set[str]:
    """Returns the rules without comments and counters."""
    return {line for line in output(program).splitlines() if line.startswith("-")}


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def module(*arguments: str) -> int:
    """Runs the module and returns its exit status. Its steps and errors are shown with the test's output."""
    return subprocess.run([sys.executable, "-m", *arguments], check=False).returncode


def added(before: Snapshot, after: Snapshot) -> Snapshot:
    return {key: after[key] - before[key] for key in before if after[key] - before[key]}


@pytest.fixture
def untouched() -> Iterator[Snapshot]:
    """However the test ends, the cluster is taken down after it, and nothing is left behind or lost."""
    before = snapshot()
    yield before
    assert module("tests.cluster.down") == 0
    with suppress(AssertionError):  # a process that was killed with its namespace may need a moment to die
        until("the end of its processes", lambda: "processes" not in added(before, snapshot()))
    after = snapshot()
    assert added(before, after) == {}
    assert added(after, before) == {}


@pytest.fixture
def detached(untouched: Snapshot) -> Record:
    """Starts a detached cluster, with a pod on every node."""
    assert module("tests.cluster.up", "--detach") == 0
    record = Record.read()
    assert record is not None
    cluster = running(cached())
    apply(cluster, *(pod_of(node) for node in NODES))
    cluster.kubectl("wait", "--for=condition=Ready", "--timeout=120s", "pods", "--all")
    return record


def test_a_cluster_with_running_pods_is_taken_down(untouched: Snapshot, detached: Record) -> None:
    # Mounts, rules and settings are inside the nodes, even while the nodes run.
    assert set(added(untouched, snapshot())) == {"processes", "links", "routes", "cgroups"}

    assert module("tests.cluster.down") == 0

    assert not any(process.alive for process in (detached.driver, *detached.processes))
    assert not FOLDER.exists()


def test_what_a_killed_keeper_leaves_is_found_and_removed(detached: Record) -> None:
    os.kill(detached.driver.pid, signal.SIGKILL)

    assert module("tests.cluster.up", "--detach") == 1  # it reports that a cluster was left
    assert module("tests.cluster.down") == 0
    assert not any(process.alive for process in detached.processes)
    assert not FOLDER.exists()


def test_a_keeper_that_is_killed_while_its_nodes_boot_leaves_nothing_that_is_not_found(
    untouched: Snapshot,
) -> None:
    keeper = subprocess.Popen([sys.executable, "-m", "tests.cluster.up"])
    until("a node that boots", lambda: bool((record := Record.read()) and record.processes))
    keeper.kill()
    keeper.wait()

    assert module("tests.cluster.down") == 0
    assert not FOLDER.exists()


def test_taking_down_what_is_not_there_does_nothing() -> None:
    assert Record.read() is None
    assert module("tests.cluster.down") == 0
