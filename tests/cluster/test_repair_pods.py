"""The steps of a repair as pods on a real node, from their default templates: what they do and what they
report.

The node has no GPU and no systemd: its driver's files, nvidia-smi and systemctl are stand-ins.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest
import yaml

from detectors.validation.kernel_log import reset_line
from detectors.wire.step_report import Check, Outcome, decode
from tests.cluster.build import cached
from tests.cluster.cases import apply, until
from tests.cluster.cluster import GPUS_PER_NODE, Cluster, started
from tests.cluster.gpus import gpu_id
from tests.cluster.install import one
from tests.cluster.kernel_log import program_says, xid
from tests.cluster.product import PRODUCT, product_image

pytestmark = pytest.mark.real_nodes

NODE = "worker-1"
LIMIT_S = 120.0
SMI = """#!/bin/sh
echo "$@" >> /var/lib/smi-calls
case "$*" in
*persistence_mode*) echo Enabled ;;
*--gpu-reset*) echo "All done." ;;
esac
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with started(cached(), [product_image()]) as running:
        yield running


def given() -> dict[str, str]:
    return {
        "REKINDLE_NODE": NODE,
        "REKINDLE_INCIDENT": f"{NODE}-device-lost-1a2b",
        "REKINDLE_FAULT": "device-lost",
        "REKINDLE_DEVICES": gpu_id(NODE, 0),
        "REKINDLE_EXPECTED_DEVICES": str(GPUS_PER_NODE),
    }


def ended(cluster: Cluster, kind: str, name: str, *more: str) -> tuple[int, str]:
    """Runs the template's pod on the node, as the controller would. Returns exit code and termination
    message."""
    text = (files("recover.repair") / "templates" / f"{kind}.yaml").read_text(encoding="utf-8")
    spec = yaml.safe_load(text)["spec"] | {"nodeName": NODE}
    (container,) = spec["containers"]
    container |= {"image": PRODUCT, "imagePullPolicy": "Never"}
    container["env"] = [*container["env"], *({"name": n, "value": v} for n, v in given().items())]
    if more:
        container["args"] = [*container["args"], *more]
    apply(cluster, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})

    def state() -> dict[str, Any]:
        statuses = one(cluster, "pod", name).get("status", {}).get("containerStatuses", [])
        return statuses[0]["state"].get("terminated", {}) if statuses else {}

    until(f"the pod {name} ends", lambda: bool(state()), LIMIT_S)
    last = state()
    cluster.kubectl("delete", "pod", name, "--now")
    return int(last["exitCode"]), str(last.get("message", ""))


def checks(message: str) -> dict[str, Check]:
    return {check.name: check for check in decode(message, where="the pod").checks}


def test_a_sound_node_passes_what_can_be_checked_without_a_gpu(cluster: Cluster) -> None:
    status, message = ended(cluster, "validate", "validate-sound")

    found = checks(message)
    print("\n".join(f"  {check.name}: {check.outcome}: {check.message}" for check in found.values()))
    assert status == 0
    assert {name for name, check in found.items() if check.outcome is Outcome.PASSED} == {
        "devices",
        "kernel-log",
    }
    assert all(check.message for check in found.values())


def test_a_fault_in_the_kernel_log_fails_until_the_devices_were_reset(cluster: Cluster) -> None:
    xid(cluster.nodes[NODE])
    status, message = ended(cluster, "validate", "validate-faulty")
    assert status == 1
    assert all(name in checks(message)["kernel-log"].message for name in ("xid-79", gpu_id(NODE, 0)))

    program_says(cluster.nodes[NODE], reset_line(gpu_id(NODE, 0), given()["REKINDLE_INCIDENT"]))
    status, message = ended(cluster, "validate", "validate-after-reset")
    assert status == 0
    assert checks(message)["kernel-log"].outcome is Outcome.PASSED


def test_a_reset_runs_the_nodes_own_nvidia_smi_in_the_nodes_root(cluster: Cluster) -> None:
    disk = cluster.nodes[NODE].folder / "var-lib"
    (disk / "nvidia-smi").write_text(SMI, encoding="utf-8")
    (disk / "nvidia-smi").chmod(0o755)

    status, message = ended(cluster, "reset", "reset", "--nvidia-smi=/var/lib/nvidia-smi")

    assert (status, checks(message)["reset"]) == (0, Check("reset", Outcome.PASSED, "All done."))
    calls = (disk / "smi-calls").read_text(encoding="utf-8").splitlines()
    assert [call for call in calls if "query" not in call] == [
        f"-i {gpu_id(NODE, 0)} -pm 0",
        f"--gpu-reset -i {gpu_id(NODE, 0)}",
        f"-i {gpu_id(NODE, 0)} -pm 1",
    ]


def test_a_node_without_nvidia_smi_says_so(cluster: Cluster) -> None:
    status, message = ended(cluster, "reset", "reset-nowhere")

    assert status == 1
    assert checks(message)["reset"].outcome is Outcome.FAILED
    assert "nvidia-smi" in checks(message)["reset"].message


def test_a_reboot_is_asked_of_the_nodes_own_systemctl_with_the_reason(cluster: Cluster) -> None:
    node = cluster.nodes[NODE]
    node.reboot_asked.unlink(missing_ok=True)

    status, _ = ended(cluster, "reboot", "reboot")

    why = f"Rekindle repairs {NODE}: device-lost, incident {NODE}-device-lost-1a2b"
    assert status == 0
    assert node.reboot_asked.read_text(encoding="utf-8") == f"reboot --message={why}\n"
