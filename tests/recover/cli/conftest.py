"""Fixtures of a served cluster with an Incident, a Recovery, and jobs of one name in two namespaces."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from chaos.apiserver.store import MemoryCluster
from recover.k8s.kinds import INCIDENTS, JOBS, NAMESPACES, NODEHEALTHS, NODES, RECOVERIES
from tests.recover.cli.why_jobs import a_job, create
from tests.recover.served import served
from tests.recover.stories.why_cases import finding, health, incident, recovery


@pytest.fixture
def store() -> MemoryCluster:
    cluster = MemoryCluster(lambda: datetime.now(UTC))
    for namespace in ("team", "other"):
        cluster.create(NAMESPACES, {"metadata": {"name": namespace}})
    for name in ("node-3", "node-4"):
        cluster.create(
            NODES,
            {"metadata": {"name": name}, "status": {"capacity": {"nvidia.com/gpu": "8"}, "conditions": []}},
        )
    create(cluster, NODEHEALTHS, health(finding()))
    create(cluster, INCIDENTS, incident())
    create(cluster, RECOVERIES, recovery(), "team")
    for namespace, name in (("team", "llm"), ("team", "vision"), ("other", "vision")):
        cluster.create(JOBS, a_job(name), namespace)
    return cluster


@pytest.fixture
def kubeconfig(store: MemoryCluster, tmp_path: Path) -> Iterator[str]:
    with served(store, tmp_path) as path:
        yield path
