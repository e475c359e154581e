"""The cluster that all tests of faults share, with Rekindle's chart installed in it, in mode recover."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.cluster.build import cached
from tests.cluster.cluster import Cluster, started
from tests.cluster.faults.gang import Gang, lay_names
from tests.cluster.faults.trial import Trial, release_all
from tests.cluster.gangs import lay_storage
from tests.cluster.install import Release, label_nodes
from tests.cluster.product import product_image

VALUES = {
    "mode": "recover",
    "settings": {
        "controller": {"timing": {"fence_wait_s": 5, "resume_deadline_s": 15, "scan_deadline_s": 120}}
    },
}
"""Values by which a person who is needed is called in seconds, not in minutes. A scan may take long on a busy
machine."""


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(cached(), [product_image()]) as running:
        label_nodes(running)
        lay_storage(running)
        lay_names(running)
        print(f"\nhelm install with {VALUES}")
        Release(running, tmp_path_factory.mktemp("helm")).install(VALUES)
        yield running


@pytest.fixture
def begin(cluster: Cluster) -> Iterator[Callable[[Gang], Trial]]:
    """Yields a function that begins a trial and returns when the gang trains. Afterwards the gang is gone,
    and all nodes are free again."""
    begun: list[Trial] = []

    def trial(gang: Gang) -> Trial:
        begun.append(Trial(cluster, gang))
        begun[-1].begin()
        return begun[-1]

    yield trial
    for one in begun:
        one.end()
    release_all(cluster)
