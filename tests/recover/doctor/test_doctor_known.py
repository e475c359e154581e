"""Tests recover/doctor/issues_ahead.py: known issues that recipes recognise before anything has failed."""

from __future__ import annotations

from typing import Any

import pytest

from recover.doctor.case import Severity
from recover.doctor.issues_ahead import ahead
from recover.recipes.gang_evidence import CUDA_RUNTIME, VGPU_BASELINE
from recover.recipes.load import built_in, parse
from tests.facts import names
from tests.recover.doctor.doctor_cases import (
    PODS,
    annotated,
    case,
    found,
    in_cluster,
    node,
    of_container,
)


def test_of_the_built_in_recipes_those_of_versions_and_of_paddle_are_known_ahead() -> None:
    assert {name for name, recipe in built_in().items() if ahead(recipe)} == {
        "cuda-driver-too-old",
        "cuda-gpu-manager-older-runtime",
        "cuda-majors-apart",
        "cuda-vgpu-majors",
        "cuda-vgpu-runtime-too-new",
        "paddle-autogrow-crash",
    }


def test_another_framework_on_a_virtual_gpu_is_not_taken_for_paddle() -> None:
    shared = of_container("pytorchjob", "resources", {"limits": {"tencent.com/vcuda-core": 30}})

    assert found(case("pytorchjob", shared)) == {}


CUDA_12_4 = {"nvidia.com__cuda.runtime.major": "12", "nvidia.com__cuda.runtime.minor": "4"}
CUDA_12_8 = {"nvidia.com__cuda.runtime.major": "12", "nvidia.com__cuda.runtime.minor": "8"}


def test_a_runtime_newer_than_the_driver_is_told_with_the_nodes() -> None:
    nodes = {"old": node("old", **CUDA_12_4), "new": node("new", **CUDA_12_8), "unknown": node("unknown")}

    finding = found(in_cluster("pytorchjob", annotated("cuda-runtime", "12.6"), nodes=nodes))[
        "cuda-driver-too-old"
    ]

    assert CUDA_RUNTIME == "rekindle.dev/cuda-runtime"
    assert finding.severity is Severity.RISKS
    assert names(finding.what, "old", 1, 3)
    assert not names(finding.what, "new")
    assert names(finding.where.value, "cuda.runtime", "12.6", "cuda.driver", "12.4")


@pytest.mark.parametrize(
    "change",
    [
        ((*PODS["pytorchjob"], "nodeSelector"), {"pool": "new"}),
        (
            (*PODS["pytorchjob"], "affinity"),
            {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["new"]}]}
                        ]
                    }
                }
            },
        ),
    ],
    ids=["nodeSelector", "affinity"],
)
def test_nodes_that_it_may_not_run_on_are_not_counted(change: Any) -> None:
    nodes = {"old": node("old", pool="old", **CUDA_12_4), "new": node("new", pool="new", **CUDA_12_8)}

    assert found(in_cluster("pytorchjob", annotated("cuda-runtime", "12.6"), change, nodes=nodes)) == {}


def test_a_runtime_newer_than_the_sharing_layer_will_be_held_so_it_fails() -> None:
    labels = {VGPU_BASELINE.replace("/", "__"): "12.4", **CUDA_12_8}

    finding = found(
        in_cluster("paddlejob", annotated("cuda-runtime", "12.6"), nodes={"a": node("a", **labels)})
    )

    assert finding["cuda-vgpu-runtime-too-new"].severity is Severity.FAILS


OWN = """
name = "own"
title = "A known issue of one's own"
source = "a test of this command"
[[match.allOf]]
log = "it broke"
[[match.allOf]]
{test}
[change]
advise = "Change what it says."
"""


@pytest.mark.parametrize(
    ("test", "is_known"),
    [
        ("env = { name = 'NCCL_NET', is = 'set' }", True),
        ("env = { name = 'NCCL_NET', is = 'not-equals', value = 'x' }", False),
        ("request = { name = 'nvidia.com/mps-core', is = 'requested' }", False),
        ("framework = 'jax'", False),
        ("label = { name = 'pool' }", False),
        ("compare = { left = 'gpu.memory.free', is = 'at-least', right = '1GiB' }", False),
    ],
)
def test_a_test_that_many_healthy_jobs_pass_is_no_sign_by_itself(test: str, is_known: bool) -> None:
    assert (ahead(parse(OWN.format(test=test), "own.toml")) is not None) == is_known
