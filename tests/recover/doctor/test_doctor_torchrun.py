"""`rekindle doctor` names a torchrun that does not know the other pods of its job."""

from __future__ import annotations

from typing import Any

import pytest

from recover.doctor.torchrun import rendezvous
from tests.recover.doctor.doctor_cases import PODS, case

NODES = ["--nnodes=4", "--rdzv-backend=c10d", "--rdzv-endpoint=llm-0:29400"]


def found(kind: str, *command: str, **more: Any) -> list[str]:
    container = (*PODS[kind], "containers", 0)
    changes = [((*container, "command"), list(command))]
    changes += [((*container, name), value) for name, value in more.items()]
    return [one.what for one in rendezvous(case(kind, *changes))]


@pytest.mark.parametrize("kind", ["job", "jobset"])
def test_a_torchrun_that_knows_only_its_own_pod_is_reported(kind: str) -> None:
    (without,) = found(kind, "torchrun", "--nproc-per-node=8", "train.py")
    (alone,) = found(kind, "torchrun", "--standalone", *NODES, "train.py")
    (script,) = found(kind, "bash", "-c", "cd /app && python -m torch.distributed.run train.py")

    (one,) = found(kind, "torchrun", "--nnodes=1", "train.py")

    assert "--nnodes" in without
    assert "--nnodes" in script
    assert "--nnodes" in one
    assert "--standalone" in alone


@pytest.mark.parametrize("kind", ["job", "jobset"])
def test_a_torchrun_with_a_number_of_nodes_and_other_programs_are_not(kind: str) -> None:
    assert found(kind, "torchrun", *NODES, "train.py") == []
    assert found(kind, "torchrun", "--nnodes", "$N", "train.py") == []
    assert found(kind, "torchrun", "train.py", env=[{"name": "PET_NNODES", "value": "4"}]) == []
    assert found(kind, "python", "train.py") == []
    assert found(kind, "torchrun", "train.py", envFrom=[{"configMapRef": {"name": "cluster"}}]) == []
    assert found(kind, "torchrun", "$(TORCHRUN_ARGS)", "train.py") == []
    assert found(kind, "torchrun", *NODES, "train.py", "--standalone") == []
    assert found(kind, "bash", "-c", "export PET_NNODES=4; torchrun train.py") == []
    assert found(kind, "bash", "-c", "torchrun $DIST_ARGS train.py") == []
    assert found(kind, "bash", "-c", "torchrun --standalone smoke.py && torchrun --nnodes=4 train.py") == []
    assert found(kind, "bash", "-c", "# torchrun is not used\naccelerate launch train.py") == []
    assert found(kind, "bash", "-c", "which torchrun; accelerate launch train.py") == []
    assert found(kind, "/scripts/torchrun.sh", "train.py") == []


def test_the_training_operator_sets_the_rendezvous_of_its_jobs() -> None:
    assert found("pytorchjob", "torchrun", "train.py") == []


def test_each_template_of_a_jobset_counts_alone() -> None:
    container = (*PODS["jobset"], "containers", 0)
    job = ("spec", "replicatedJobs", 0, "template", "spec")
    alone = case(
        "jobset",
        ((*container, "command"), ["torchrun", "--standalone", "train.py"]),
        ((*job, "parallelism"), 1),
        ((*job, "completions"), 1),
    )

    assert list(rendezvous(alone)) == []


def test_one_pod_needs_no_rendezvous() -> None:
    container = (*PODS["job"], "containers", 0)
    one = case(
        "job",
        ((*container, "command"), ["torchrun", "train.py"]),
        (("spec", "parallelism"), 1),
        (("spec", "completions"), 1),
    )

    assert list(rendezvous(one)) == []
