"""Tests whether a gang's templates let its ranks read the variables that a resume provides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from recover.model import Template
from recover.workloads.patches import reading_environment, reads_environment
from tests.builders import gang

OURS = {"configMapRef": {"name": "llm-rekindle-pytorchjob", "optional": True}}
OLD = {"configMapRef": {"name": "llm-rekindle", "optional": True}}
OTHER = {"configMapRef": {"name": "other"}}
GPU = {"limits": {"nvidia.com/gpu": "8"}}


def reads(*templates: Sequence[Mapping[str, Any]]) -> bool:
    named = {str(number): Template(containers=tuple(found)) for number, found in enumerate(templates)}
    return reads_environment(gang("llm", templates=named))


@pytest.mark.parametrize("resources", [GPU, {"requests": {"amd.com/gpu": 1}}, {"claims": [{"name": "gpu"}]}])
def test_a_rank_must_read_it_and_a_helper_beside_it_need_not(resources: dict[str, Any]) -> None:
    rank, helper = (
        {"name": "train", "resources": resources},
        {"name": "logs", "resources": {"limits": {"cpu": 1}}},
    )

    assert reads([{**rank, "envFrom": [OTHER, OURS]}, helper])
    assert reads([{**rank, "envFrom": [OTHER, OLD]}, helper])
    assert not reads([rank, {**helper, "envFrom": [OURS]}])
    assert not reads([{**rank, "envFrom": [OTHER, {"secretRef": {"name": "llm-rekindle"}}]}])


def test_every_template_and_every_rank_of_it_must_read_it() -> None:
    reading, blind = {"resources": GPU, "envFrom": [OURS]}, {"resources": GPU}

    assert reads([reading, reading], [reading])
    assert not reads([reading], [blind])
    assert not reads([reading, blind])


def test_where_no_container_asks_for_a_device_all_must_read_it() -> None:
    assert reads([{"envFrom": [OURS]}])
    assert not reads([{"envFrom": [OURS]}, {}])


def test_what_a_resume_adds_is_what_is_looked_for() -> None:
    containers = ({"name": "train", "resources": GPU}, {"name": "logs"})

    assert reads(reading_environment(containers, gang("llm")))
