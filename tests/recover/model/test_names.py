"""Tests that names that Rekindle derives from other people's names stay valid, however long those names
are."""

from __future__ import annotations

import re
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recover.api import Phase
from recover.api.crds import schemas
from recover.api.marks import SCAN_OF
from recover.k8s.bodies import shortened
from recover.k8s.kinds import INCIDENTS, RECOVERIES
from recover.model import Mount, Template, Volume, VolumeKind
from recover.model.actions import Create, Ensure
from tests.acting import advanced, look, only_recovery, recovering, step
from tests.builders import cluster, gang

SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
CLAIM = Volume(name="c", kind=VolumeKind.CLAIM, source={"claimName": "c"}, mounts=(Mount("/ckpt"),))


def made(name: str) -> list[Create | Ensure]:
    """Returns everything that Rekindle creates for a gang of this name, from its fault to its start."""
    job = gang(annotations={"rekindle.dev/checkpoint": "/ckpt"}, templates={"": Template(volumes=(CLAIM,))})
    world = cluster(nodes=8).running(job).crash(rank=1)
    world.change_gang(ref=msgspec.structs.replace(job.ref, name=name))
    found = list(world.decide().plan.actions)
    recovering(world)
    advanced(world, Phase.STOPPING)
    found += look(world).actions
    step(world)
    world.pods["llm-uid"].clear()
    step(world)
    step(world.later(31))
    assert only_recovery(world).status.phase is Phase.RESUMING
    found += look(world).actions
    return [action for action in found if isinstance(action, Create | Ensure)]


@pytest.mark.parametrize("name", ["llm", "a" * 43 + "-b", "a" * 253, "a." * 126 + "a", "a-" * 126 + "a"])
def test_every_object_for_a_job_of_any_name_is_valid(name: str) -> None:
    actions = made(name)

    assert [a.what for a in actions] == ["open-recovery", "open-incident", "create-scan", "write-environment"]
    for action in actions:
        assert SUBDOMAIN.fullmatch(action.name), action.name
        assert len(action.name) <= 253
        for label in action.body["metadata"].get("labels", {}).values():
            assert LABEL.fullmatch(label), label
            assert len(label) <= 63


@pytest.mark.parametrize("name", ["llm", "a" * 253])
def test_what_is_written_about_a_job_of_any_name_fits_the_schemas(name: str) -> None:
    ours = [a for a in made(name) if isinstance(a, Create) and a.resource in (INCIDENTS, RECOVERIES)]
    for action in ours:
        whole: dict[str, Any] = {**action.body, "status": action.status or {}}
        jsonschema.validate(whole, schemas()[action.resource.plural])
    assert {action.resource for action in ours} == {INCIDENTS, RECOVERIES}


def test_two_recoveries_of_a_job_with_a_long_name_have_scans_of_different_labels() -> None:
    labels = {
        action.body["metadata"]["labels"][SCAN_OF]
        for name in ("a" * 80 + "x", "a" * 80 + "y")
        for action in made(name)
        if action.what == "create-scan"
    }

    assert len(labels) == 2


@given(st.from_regex(SUBDOMAIN, fullmatch=True), st.integers(20, 63))
def test_a_shortened_name_is_valid_and_a_short_one_is_left_alone(name: str, chars_max: int) -> None:
    short = shortened(name, chars_max)

    assert len(short) <= chars_max
    assert SUBDOMAIN.fullmatch(short)
    assert (short == name) == (len(name) <= chars_max)
