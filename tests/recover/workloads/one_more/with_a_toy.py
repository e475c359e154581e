"""Tests Rekindle with one more framework. test_one_more_workload.py runs this file with the toy
registered."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from chaos.apiserver.kinds import KINDS as KINDS_SERVED
from recover.api import Phase
from recover.cli.enable_manifest import KINDS, enabled
from recover.doctor.case import Case
from recover.doctor.installation.inspect import FRAMEWORKS
from recover.doctor.manifest import cases
from recover.doctor.report import examined
from recover.model import Gang
from recover.model.actions import Patch
from recover.model.modes import Mode, Modes, begun
from recover.policy.settings import Settings
from recover.recipes.gang_evidence import of_container
from recover.recipes.load import built_in
from recover.recipes.match import Evidence
from recover.runtime.observe import Observer
from recover.snapshot.manifests import workload_in
from recover.workloads import WORKLOADS, resource_of, started_by
from tests.acting import advanced, look, recovering
from tests.builders import NOW, cluster
from tests.chart.by_hand import lacking_in_chart, lacking_in_words, texts
from tests.recover.scripted import Scripted
from tests.recover.workloads.one_more.toy_workload import ToyJob
from tools.docs.admission import policies

TOY: dict[str, Any] = {
    "apiVersion": "toys.example/v1",
    "kind": "ToyJob",
    "metadata": {
        "name": "llm",
        "namespace": "ml",
        "uid": "llm-uid",
        "resourceVersion": "10",
        "creationTimestamp": "2026-11-21T10:00:00Z",
        "labels": {"rekindle.dev/auto-recovery": "enabled"},
    },
    "spec": {"copies": 4, "pod": {"spec": {"containers": [{"name": "train"}]}}},
}


def gang() -> Gang:
    return ToyJob().parse(msgspec.json.encode(TOY))


def case(**spec: Any) -> Case:
    document = copy.deepcopy(TOY)
    document["spec"] |= spec
    ((found,), _) = cases([document], "toy.yaml", built_in(), NOW)
    return found


def test_it_is_found() -> None:
    observer = Observer(Scripted(), Settings(), lambda: None)
    observer.absorb(ToyJob.resource, msgspec.json.encode(TOY))

    (seen,) = observer.world(Modes(begun(Mode.RECOVER, NOW))).gangs.values()

    assert (seen.ref, seen.size) == (gang().ref, 4)
    assert resource_of(seen.ref) == ToyJob.resource
    assert workload_in(TOY) is WORKLOADS[-1]


def test_it_is_stopped_and_started_rather_off_the_node_that_is_suspected() -> None:
    world = recovering(cluster(nodes=8).running(gang()).blind("n1").crash(rank=1))
    advanced(world, Phase.STOPPING)
    (stop,) = [a for a in look(world).actions if isinstance(a, Patch)]
    advanced(world, Phase.RESUMING)
    (start,) = [a for a in look(world).actions if isinstance(a, Patch)]

    assert (stop.resource, stop.body["spec"]) == (ToyJob.resource, {"suspend": True})
    assert (start.resource, start.body["spec"]["suspend"]) == (ToyJob.resource, False)
    assert "'n1'" in str(start.body["spec"]["pod"]["spec"]["affinity"])


def test_doctor_tells_what_its_file_knows_of_it() -> None:
    findings = {one.name: one for one in examined(case(retries=0)).findings}

    assert findings["no-retry"].where.field == "spec.retries"
    assert all(field in findings["no-retry"].fix for field in ("spec.retries: 3", "metadata.annotations: {"))
    assert findings["environment-not-read"].where.field == "spec.pod.spec.containers[train].envFrom"
    assert "no-retry" not in {one.name for one in examined(case()).findings}


def test_doctor_knows_its_operator() -> None:
    assert FRAMEWORKS["toys.example"] == ToyJob.operator


def test_enable_changes_its_template() -> None:
    answer = enabled([copy.deepcopy(TOY)], "toy.yaml")

    (container,) = answer.documents[0]["spec"]["pod"]["spec"]["containers"]
    assert "ToyJob" in KINDS
    assert container["envFrom"] == [{"configMapRef": {"name": "llm-rekindle-toyjob", "optional": True}}]


def test_whoever_adds_it_is_told_each_line_of_the_chart_that_must_name_it() -> None:
    places = lacking_in_chart(WORKLOADS[-1], texts())

    at = [(p.file.rpartition("/")[2], texts()[p.file].splitlines()[p.first - 1].strip()) for p in places]
    assert at == [
        ("controller.yaml", "rules:"),
        ("fence_jobs.yaml", "resourceRules:"),
        ("fence_anew.yaml", "resourceRules:"),
        ("controller.yaml", "- name: is-read-by-resumed-ranks"),
        ("fence.yaml", "- name: isEnvironment"),
        ("fence_jobs.yaml", "- name: read"),
        ("fence_jobs.yaml", "- name: known"),
        ("fence_anew.yaml", "- name: templates"),
        ("fence_jobs.yaml", "- name: templates"),
        ("fence_jobs.yaml", "- expression: >-"),
        ("fence.yaml", "- name: isOfAJob"),
    ]
    assert "patch toyjobs/status" in places[0].add


def test_whoever_adds_it_is_told_each_page_that_must_name_it() -> None:
    files = [one.partition(":")[0] for one in lacking_in_words(WORKLOADS[-1])]

    assert files == [
        "docs/environment.md",
        "docs/environment.md",
        "README.md",
        "recover/api/reasons.py",
        "tests/recover/doctor/doctor_cases/toyjob.yaml",
    ]


def test_the_demo_cluster_serves_it() -> None:
    assert KINDS_SERVED[ToyJob.resource].custom


def test_people_are_warned_of_what_is_misspelt_on_it() -> None:
    assert "toyjobs" in policies()


def test_people_are_told_how_to_start_it() -> None:
    assert started_by(gang().ref) == (
        'kubectl patch toyjob -n ml llm --type merge -p \'{"spec":{"suspend":false}}\''
    )


def test_recipes_know_what_trains_in_it() -> None:
    (known,) = [of_container({"name": "train"}, Evidence(), None, kind="ToyJob")]

    assert known.framework is ToyJob.framework
