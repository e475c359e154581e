"""The cluster that these tests share: Rekindle's chart in mode recover, with one namespace that has a lower
mode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.build import cached
from tests.cluster.cases import apply
from tests.cluster.cluster import GPUS_PER_NODE, Cluster, started
from tests.cluster.gpus import NVML, all_well, lay_nvml
from tests.cluster.install import Release, label_nodes
from tests.cluster.installed.steppers import CAREFUL, NAMESPACE, TENANT, namespace
from tests.cluster.product import product_image

VALUES = {
    "mode": "recover",
    "modes": {"namespaces": {CAREFUL: "observe"}},
    "agent": {"nvmlLibrary": NVML},
    # A port without a link is reported within seconds, so that a test need not wait for a minute.
    "settings": {"agent": {"fabric": {"every_s": 2, "dead_s": 6, "settle_s": 5}}},
}


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(cached(), [product_image()]) as running:
        label_nodes(running)
        for node in running.nodes.values():
            lay_nvml(node.folder)
            all_well(node.folder, node.name, GPUS_PER_NODE)
        # A cluster that teams share requires this of their pods: no access to the node.
        baseline = {"pod-security.kubernetes.io/enforce": "baseline"}
        apply(running, namespace(NAMESPACE), namespace(CAREFUL), namespace(TENANT, **baseline))
        install(running, tmp_path_factory.mktemp("helm"))
        yield running


def install(cluster: Cluster, folder: Path) -> None:
    print(f"\nhelm install with {VALUES}")
    Release(cluster, folder).install(VALUES)
