"""The cluster that the tests of a file share. A machine can run only one cluster at a time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.build import cached
from tests.cluster.cluster import Cluster, started


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with started(cached()) as running:
        yield running
