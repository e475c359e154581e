"""The cluster that the tests of a file share. Only one can be on a machine at a time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.build import cached
from tests.cluster.cluster import Cluster, started


def pytest_configure(config: pytest.Config) -> None:
    meaning = "needs a cluster with real nodes, as root; runs only with REKINDLE_REAL_NODES=1"
    config.addinivalue_line("markers", f"real_nodes: {meaning}")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with started(cached()) as running:
        yield running
