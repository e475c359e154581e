"""The parts of the node that the agent can read through the folders that the chart mounts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from detectors.sources.fabric import FabricReader
from detectors.sources.inventory import bus_gpus
from tests.chart.helm import HELMS, Helm, of_kind
from tests.detectors.sources.pci_tree import DISPLAY, NVIDIA, device
from tests.detectors.sources.rdma_tree import RdmaTree

pytestmark = pytest.mark.control_plane


@pytest.fixture(params=HELMS)
def helm(request: pytest.FixtureRequest, tmp_path: Path) -> Helm:
    return Helm(request.param, tmp_path)


def host_root_of_pod(helm: Helm, node: Path, pod: Path) -> Path:
    """Copies the node's mounted folders, and nothing else of the node, to their places in the agent's
    container. Returns the folder that is the agent's --host-root."""
    spec = of_kind(helm.render({}), "DaemonSet")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    paths = {v["name"]: v["hostPath"]["path"] for v in spec["volumes"] if "hostPath" in v}
    for mount in container["volumeMounts"]:
        there = node / paths.get(mount["name"], "/not/of/the/node").lstrip("/")
        if there.is_dir():
            shutil.copytree(there, pod / mount["mountPath"].lstrip("/"), symlinks=True)
    (host_root,) = (arg.partition("=")[2] for arg in container["args"] if arg.startswith("--host-root="))
    return pod / host_root.lstrip("/")


def test_links_of_the_bus_and_of_device_classes_lead_to_their_devices(helm: Helm, tmp_path: Path) -> None:
    node, pod = tmp_path / "node", tmp_path / "pod"
    tree = RdmaTree(node)
    tree.port(tree.adapter("mlx5_0", "0000:0d:00.0"))
    device(node, "0000:18:00.0", NVIDIA, DISPLAY)
    device(node, "0000:19:00.0", NVIDIA, DISPLAY, driver="vfio-pci")

    host_root = host_root_of_pod(helm, node, pod)

    gpus = bus_gpus(host_root)
    assert [sorted(map(str, found)) for found in (gpus.ours, gpus.others)] == [
        ["0000:18:00"],
        ["0000:19:00"],
    ]
    (port,) = FabricReader(host_root).read().ports
    assert (port.device, port.pci, port.state) == ("mlx5_0", "0000:0d:00.0", 4)
