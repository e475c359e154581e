"""Warning headers of a real API server for a mistyped label or annotation: they say the same as `rekindle
doctor` would say later. Nothing is refused."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest
import yaml

from detectors.wire.resource import Resource
from recover.k8s.kinds import JOBS, JOBSETS, NAMESPACES, NODES, PADDLEJOBS, PYTORCHJOBS, TFJOBS
from recover.stories.annotations import misread
from recover.stories.keys import KEYS, PREFIX, WRITTEN_BY_US, Form, Key, On
from recover.workloads import WORKLOADS
from tests.chart.helm import CHART
from tests.control_plane.build import cached
from tests.control_plane.cases import indexed_job, paddlejob, pytorchjob, tfjob
from tests.control_plane.operator import wait_until_watched
from tests.control_plane.plane import ControlPlane, started

pytestmark = pytest.mark.control_plane

IN_FORCE_S = 90.0
KINDS = {On.JOB: JOBS, On.NAMESPACE: NAMESPACES, On.NODE: NODES}
USABLE = {
    "auto-recovery": "enabled",
    "checkpoint": "/ckpt;format=torch-dcp",
    "checkpoint-repair": "tracker",
    "step-template": "step {step}/",
    "hang-timeout": "20m",
    "on-terminal": "recreate",
    "cuda-runtime": "12.4",
    "vgpu-baseline": "12.4",
    "attempts-per-cause": "3",
    "max-recoveries": "48",
    "hold-until": "2030-01-31T18:00:00Z",
    "mode": "observe",
    "managed": "false",
}
"""Usable values of the keys that restrict their values. No other value in these tests is usable."""
UNUSABLE = "yes"
Given = Mapping[str, Mapping[str, str]]
"""Labels and annotations of an object, under the keys `labels` and `annotations`."""


@pytest.fixture(scope="module")
def warning() -> Iterator[ControlPlane]:
    """Yields an API server with the chart's warning policies in force, and every kind of job."""
    with started(cached(), controllers=False) as plane:
        for file in (*cached().training_crds, cached().jobset_crd):
            crd = yaml.safe_load(file.read_text(encoding="utf-8"))
            plane.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", msgspec.json.encode(crd))
        for kind in (PYTORCHJOBS, PADDLEJOBS, TFJOBS, JOBSETS):
            wait_until_watched(plane, kind)
        for body in yaml.safe_load_all((CHART / "files/policies/warnings.yaml").read_text(encoding="utf-8")):
            kind = body["kind"].lower()
            plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
            plane.post(f"/apis/{body['apiVersion']}/{plural}", msgspec.json.encode(body))
        for kind in (*(one.resource for one in WORKLOADS), NAMESPACES, NODES):
            until = time.monotonic() + IN_FORCE_S
            while not warnings(plane, kind, {"annotations": {f"{PREFIX}hold-til": "x"}}):
                assert time.monotonic() < until, f"no policy is in force for {kind.plural}"
                time.sleep(0.05)
        yield plane


def warnings(plane: ControlPlane, kind: Resource, given: Given) -> list[str]:
    """Returns the warnings of the API server about a new object. Raises urllib's HTTPError."""
    path = kind.path(namespace="default" if kind.namespaced else "")
    return send(plane, "POST", f"{path}?dryRun=All", manifest(kind, given))


def send(plane: ControlPlane, method: str, path: str, body: Any) -> list[str]:
    """Sends a request and returns the warnings of the answer, without the words that name the policy."""
    content = "application/merge-patch+json" if method == "PATCH" else "application/json"
    headers = {**plane.credentials().headers(), "Content-Type": content}
    request = urllib.request.Request(
        plane.url + path, data=msgspec.json.encode(body), headers=headers, method=method
    )
    with urllib.request.urlopen(request, context=plane.trust(), timeout=120) as answer:
        said = answer.headers.get_all("Warning") or []
    return [re.sub(r'^299 - "Validation failed for .*?\': |"$', "", one).replace('\\"', '"') for one in said]


def keys_named(warned: str) -> list[tuple[str, str]]:
    """Returns form and name of each key, in the order in which a warning names them."""
    return re.findall(rf"(label|annotation) {PREFIX}([\w-]+)", warned)


def values_asked(warned: str) -> set[str]:
    """Returns what the keys in the warning expect of their values; empty if the name is one that nobody
    reads."""
    return {key.expected for key in KEYS if key.expected and key.expected in warned}


def manifest(kind: Resource, given: Given) -> dict[str, Any]:
    made: dict[str, Any] = {"metadata": {}}
    if kind == JOBS:
        made = indexed_job("llm", labels={})
    elif kind == PYTORCHJOBS:
        made = pytorchjob("llm", "OnFailure", labels={})
    elif kind == PADDLEJOBS:
        made = paddlejob("llm", "OnFailure", labels={})
    elif kind == TFJOBS:
        made = tfjob("llm", "OnFailure", roles={"Worker": 2}, labels={})
    elif kind == JOBSETS:
        ranks = {"name": "ranks", "replicas": 2, "template": {"spec": indexed_job("llm")["spec"]}}
        made = {"apiVersion": JOBSETS.api_version, "kind": JOBSETS.kind, "spec": {"replicatedJobs": [ranks]}}
    return {**made, "metadata": {"name": "llm", **given}}


def said_of(form: Form, name: str, value: str) -> Given:
    return {"labels": {}, "annotations": {}, f"{form}s": {name: value}}


def sayings() -> Iterator[Given]:
    """Yields each key in each form with a usable value, with an unusable value, and with a letter left out;
    names that Rekindle itself writes; and names that do not belong to Rekindle."""
    for key in KEYS:
        for form in Form:
            for value in (_usable(key), UNUSABLE):
                if form is Form.ANNOTATION or re.fullmatch(r"[\w.-]*", value):
                    yield said_of(form, key.name, value)
            yield said_of(form, key.name[:-3] + key.name[-2:], "true")
    for name in WRITTEN_BY_US:
        yield said_of(Form.ANNOTATION, name, "x")
        yield said_of(Form.LABEL, name, "x")
    yield {"labels": {"rekindle.example/hold": "x"}, "annotations": {"example.com/rekindle.dev": "x"}}


def _usable(key: Key) -> str:
    return USABLE.get(key.name.removeprefix(PREFIX), "any")


@pytest.mark.parametrize("on", On)
def test_the_policies_warn_exactly_where_the_doctor_would(warning: ControlPlane, on: On) -> None:
    for given in sayings():
        told = misread(on, given["labels"], given["annotations"])

        warned = warnings(warning, KINDS[on], given)

        assert len(warned) == len(told), given
        for one, other in zip(warned, told, strict=True):
            assert one.partition(": ")[0] == other.partition(": ")[0]
            assert values_asked(one) == values_asked(other)


@pytest.mark.parametrize("kind", [one.resource for one in WORKLOADS], ids=lambda kind: kind.plural)
def test_a_job_of_every_framework_is_let_in_with_a_warning(warning: ControlPlane, kind: Resource) -> None:
    given = {
        "labels": {"rekindle.dev/auto-recovery": "yes"},
        "annotations": {"rekindle.dev/chekpoint": "/c", "rekindle.dev/hold-untill": "", "rekindle.dev/x": ""},
    }

    *names, consent = warnings(warning, kind, given)

    assert consent.startswith("label rekindle.dev/auto-recovery: yes: ")
    assert all(word in consent.partition("yes: ")[2] for word in ("enabled", "observe", "disabled"))
    checkpoint, until, like_none = sorted(names)
    assert keys_named(checkpoint) == [("annotation", "chekpoint"), ("annotation", "checkpoint")]
    assert keys_named(until) == [("annotation", "hold-untill"), ("annotation", "hold-until")]
    assert keys_named(like_none) == [("annotation", "x")]
    assert "attempts-per-cause, " in like_none


def test_of_many_names_the_first_are_told_and_the_rest_counted(warning: ControlPlane) -> None:
    told = warnings(warning, JOBS, {"annotations": {f"{PREFIX}x{number}": "" for number in range(7)}})

    assert len(told) == 3
    assert "4" in told[-1].split()


@pytest.mark.parametrize(
    ("name", "nearest", "on"),
    [
        ("auto_recovery", ("annotation", "auto-recovery"), ""),
        ("AutoRecovery", ("annotation", "auto-recovery"), ""),
        ("mode", ("annotation", "mode"), "namespace"),
        ("spare", ("label", "spare"), "node"),
        ("max-recovery", ("annotation", "max-recoveries"), ""),
        ("chekpoint", ("annotation", "checkpoint"), ""),
        ("checkpoint-fix", ("annotation", "checkpoint-repair"), ""),
        ("holds", ("annotation", "hold"), ""),
        ("hold-til", ("annotation", "hold-until"), ""),
    ],
)
def test_a_name_that_is_nearly_one_is_answered_with_the_nearest(
    warning: ControlPlane, name: str, nearest: tuple[str, str], on: str
) -> None:
    (warned,) = warnings(warning, JOBS, {"annotations": {PREFIX + name: "x"}})

    assert keys_named(warned) == [("annotation", name), nearest]
    assert on in warned.rpartition(PREFIX)[2]


def test_a_name_that_is_like_none_is_answered_with_all(warning: ControlPlane) -> None:
    (warned,) = warnings(warning, NAMESPACES, {"annotations": {f"{PREFIX}x": "y"}})

    read = ("auto-recovery", "hold", "hold-reason", "hold-until", "mode")
    assert warned.endswith(f" {', '.join(read)}")


def test_a_label_that_is_read_as_an_annotation_gets_its_form(warning: ControlPlane) -> None:
    (warned,) = warnings(warning, JOBS, {"labels": {f"{PREFIX}checkpoint": "x"}})

    assert keys_named(warned) == [("label", "checkpoint"), ("annotation", "checkpoint")]


def test_a_value_that_cannot_be_shown_is_told_without_it(warning: ControlPlane) -> None:
    for value in ("a\nb", "a" * 10_000):
        (warned,) = warnings(warning, JOBS, {"annotations": {f"{PREFIX}hang-timeout": value}})

        assert warned.startswith(f"annotation {PREFIX}hang-timeout: ")
        assert "20m" in warned
        assert value not in warned


def test_a_change_of_something_else_repeats_no_warning(warning: ControlPlane) -> None:
    path = NODES.path("llm")
    made = manifest(NODES, {"annotations": {f"{PREFIX}hold-til": "x"}})
    assert len(send(warning, "POST", NODES.path(), made)) == 1

    assert send(warning, "PATCH", path, {"spec": {"unschedulable": True}}) == []
    assert len(send(warning, "PATCH", path, {"metadata": {"annotations": {f"{PREFIX}hold": "x"}}})) == 1
