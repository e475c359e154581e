"""Fixtures of a served cluster with a job and all objects that the doctor reads for the job."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from chaos.apiserver.kinds import CLAIMS
from chaos.apiserver.store import MemoryCluster
from recover.k8s.kinds import CONFIGMAPS, JOBS, NAMESPACES, NODEHEALTHS, NODES, PODS
from tests.recover.doctor.manifests import JOB
from tests.recover.served import served
from tests.recover.stories.why_cases import NOW


@pytest.fixture
def store() -> MemoryCluster:
    """Returns a cluster whose job runs. The only thing wrong is that no agent reads the job's steps."""
    cluster = MemoryCluster(lambda: datetime.now(UTC))
    cluster.create(NAMESPACES, {"metadata": {"name": "team"}})
    cluster.create(NAMESPACES, {"metadata": {"name": "rekindle-system"}})
    state = {"data": {"mode": "recover", "since": NOW.isoformat()}}
    cluster.create(CONFIGMAPS, {"metadata": {"name": "rekindle-state"}, **state}, "rekindle-system")
    cluster.create(NODES, {"metadata": {"name": "node-3"}, "status": {"capacity": {"nvidia.com/gpu": "8"}}})
    cluster.create(
        NODEHEALTHS,
        {
            "apiVersion": NODEHEALTHS.api_version,
            "kind": NODEHEALTHS.kind,
            "metadata": {"name": "node-3"},
        },
    )
    claim = {"metadata": {"name": "ckpt"}, "spec": {"accessModes": ["ReadWriteMany"]}}
    cluster.create(CLAIMS, claim, "team")
    job = yaml.safe_load(JOB)
    made = cluster.create(JOBS, job, "team").body
    owner = {"kind": "Job", "name": "llm", "uid": made["metadata"]["uid"], "controller": True}
    spec = {**job["spec"]["template"]["spec"], "nodeName": "node-3"}
    for number in range(4):
        name = f"llm-{number}"
        cluster.create(
            PODS,
            {
                "metadata": {"name": name, "ownerReferences": [{**owner, "apiVersion": "batch/v1"}]},
                "spec": spec,
            },
            "team",
        )
        cluster.patch(PODS, name, {"status": {"phase": "Running"}}, namespace="team", subresource="status")
    return cluster


@pytest.fixture
def kubeconfig(store: MemoryCluster, tmp_path: Path) -> Iterator[str]:
    with served(store, tmp_path) as path:
        yield path
