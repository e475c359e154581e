"""Text that a tenant makes the kernel print is no fault of the node, in mode recover, in which Rekindle acts
on a fault at once. A pod without any permission crashes programs whose names begin like the driver's lines.

All nodes share one kernel, and no node reads its log. So the test reads the kernel's lines about the crash
from the machine's log, and appends them to the log of the pod's node, whose kernel would have printed them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from chaos.simulated.lines import FALLEN_OFF_THE_BUS, gpu_address
from detectors.sources.kmsg import KERN, parse_record
from tests.cluster.cases import apply, until
from tests.cluster.cluster import Cluster
from tests.cluster.images import BASE
from tests.cluster.install import one
from tests.cluster.installed.people import doings, mend, quarantined
from tests.cluster.installed.steppers import TENANT, ranks, steppers, stepping
from tests.cluster.kernel_log import kernel_says

pytestmark = pytest.mark.real_nodes

LIMIT_S = 120.0
LOOKED_S = 6.0
"""Time in seconds after which Rekindle would have acted on a fault that it believes: the controller waits for
two seconds at most."""
NAMES = ("NVRM: GPU 18:0 ", "NVRM: Xid (): 7", "NVRM: Xid (PCI:")
LIBRARY = "GPU has fallen off the bus."
"""Name of the file in which a program crashes, which the kernel prints, too."""
CRASHES = f"""
import ctypes, glob, os, shutil
(libm,) = glob.glob("/lib/*/libm.so.6")
path = shutil.copy(libm, "/tmp/{LIBRARY}")
for name in {NAMES!r}:
    if not os.fork():
        library = ctypes.CDLL(path)
        ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)
        library.modf(ctypes.c_double(1.5), None)
    print(name, os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


@pytest.fixture(autouse=True)
def tidied(cluster: Cluster) -> Iterator[None]:
    yield
    for namespace in ("ml", TENANT):
        cluster.kubectl("delete", "jobs,pods", "--all", f"--namespace={namespace}")
    mend(cluster)


@pytest.fixture
def machines_log() -> Iterator[int]:
    """Yields a file descriptor of the log of the kernel that all nodes share, from now on. The log is read
    and never written."""
    log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    os.lseek(log, 0, os.SEEK_END)
    yield log
    os.close(log)


def test_programs_that_are_called_like_the_driver_crash_and_their_node_stays_as_it_is(
    cluster: Cluster, machines_log: int
) -> None:
    apply(cluster, steppers("llm"))
    victims = stepping(cluster, "llm")
    node = cluster.nodes[victims[0]["spec"]["nodeName"]]
    before, known = doings(cluster), findings(cluster, node.name)

    apply(cluster, crasher(node.name))
    until("the crashes", lambda: phase(cluster) == "Succeeded", LIMIT_S)
    ended = cluster.kubectl("logs", "crasher", f"--namespace={TENANT}")
    assert ended == "".join(f"{name} -11\n" for name in NAMES)
    printed = [text for text in printed_by_the_kernel(machines_log) if text.startswith(NAMES)]
    print("\n" + "\n".join(printed))
    assert [text[: len(name)] for text, name in zip(printed, NAMES, strict=True)] == list(NAMES)
    assert all(f" in {LIBRARY}[" in text for text in printed)
    kernel_says(node, *printed)

    time.sleep(LOOKED_S)
    assert doings(cluster) == before
    assert [pod["metadata"]["uid"] for pod in ranks(cluster, "llm")] == [
        pod["metadata"]["uid"] for pod in victims
    ]
    assert findings(cluster, node.name) == known
    # The agent did read the log: a line of the driver counts.
    kernel_says(node, FALLEN_OFF_THE_BUS.text.format(pci=gpu_address(0)))
    until("the node's quarantine", lambda: quarantined(cluster) == {node.name}, LIMIT_S)


def crasher(node: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": BASE,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", CRASHES],
    }
    spec = {
        "restartPolicy": "Never",
        "nodeSelector": {"kubernetes.io/hostname": node},
        "containers": [container],
    }
    metadata = {"name": "crasher", "namespace": TENANT}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def phase(cluster: Cluster) -> str:
    return str(one(cluster, "pod", "crasher", TENANT).get("status", {}).get("phase", ""))


def findings(cluster: Cluster, node: str) -> list[str]:
    return [finding["id"] for finding in one(cluster, "nodehealth", node)["status"].get("findings", [])]


def printed_by_the_kernel(log: int) -> list[str]:
    """Returns the texts of all kernel records since the last call, as they are in the log."""
    texts: list[str] = []
    while True:
        try:
            record = parse_record(os.read(log, 16 * 1024).split(b"\n", 1)[0])
        except BrokenPipeError:
            continue  # the record was overwritten during the read: the next one is the oldest
        except BlockingIOError:
            return texts
        if record is not None and record.facility == KERN:
            texts.append(record.text)
