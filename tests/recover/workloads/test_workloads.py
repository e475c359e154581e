"""Tests the start of a job on other nodes: what Rekindle adds to its template, and what stays as people
wrote it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
import pytest

from recover.api import Phase, Requirement
from recover.k8s.kinds import JOBS
from recover.model import Gang, Mark, Template
from recover.workloads import Workload
from recover.workloads.job import Job
from recover.workloads.jobset import JobSet
from recover.workloads.kubeflow import KubeflowJob
from recover.workloads.paddlejob import PaddleJob
from recover.workloads.patches import avoiding
from recover.workloads.pytorchjob import PyTorchJob
from recover.workloads.tfjob import TFJob
from tests.acting import advanced, look, recovering
from tests.builders import NOW, cluster, gang

KUBEFLOW = [PyTorchJob(), PaddleJob(), TFJob()]
ONE_PATCH = [Job(), *KUBEFLOW]
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
HOST = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n9"]}
ZONES: list[dict[str, Any]] = [
    {"matchExpressions": [ZONE]},
    {"matchFields": [{"key": "metadata.name", "operator": "Exists"}]},
]
THEIRS = {
    "podAntiAffinity": {"x": 1},
    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": ZONES}},
}


def started(
    workload: Workload, template: dict[str, Any], avoid: tuple[str, ...], before: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Returns the template's changes in the patch that starts a job. The job avoided the nodes `before`
    until now."""
    spec: dict[str, Any] = {"template": {"spec": template}, "suspend": True}
    if isinstance(workload, KubeflowJob):
        spec = {workload.replica_specs: {"Worker": {"template": {"spec": template}}}}
    stopped = Mark(recovery="r", attempt=1, did="stopped", avoided=before)
    meta = {
        "name": "llm",
        "namespace": "ml",
        "uid": "u",
        "resourceVersion": "3",
        "annotations": {"rekindle.dev/recovery": msgspec.json.encode(stopped).decode()},
    }
    job = workload.parse(msgspec.json.encode({"metadata": meta, "spec": spec}))
    (patch,) = workload.start(job, Mark(recovery="r", attempt=1, did="resumed", avoided=avoid))
    assert (patch.uid, patch.version) == ("u", "3")
    body: dict[str, Any] = patch.body["spec"]
    if isinstance(workload, KubeflowJob):
        body = body[workload.replica_specs]["Worker"]
    return dict(body.get("template", {}).get("spec", {}))


@pytest.mark.parametrize("workload", ONE_PATCH, ids=lambda w: w.resource.kind)
def test_the_avoided_nodes_are_added_to_every_term_and_foreign_affinity_stays(workload: Workload) -> None:
    affinity = started(workload, {"affinity": THEIRS}, ("n1", "n2"))["affinity"]

    terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    ours = {**HOST, "values": ["n1", "n2"]}
    assert terms[0]["matchExpressions"] == [ZONE, ours]
    assert terms[1] == {**ZONES[1], "matchExpressions": [ours]}
    assert affinity["podAntiAffinity"] == {"x": 1}


@pytest.mark.parametrize("workload", ONE_PATCH, ids=lambda w: w.resource.kind)
def test_nodes_that_people_exclude_stay_excluded(workload: Workload) -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [HOST]}]}
    before = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}

    affinity = started(workload, {"affinity": before}, ("n1",))["affinity"]

    (term,) = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{**HOST, "values": ["n1", "n9"]}]


@pytest.mark.parametrize("workload", ONE_PATCH, ids=lambda w: w.resource.kind)
def test_a_node_that_we_avoided_and_need_not_any_more_is_open_again(workload: Workload) -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{**HOST, "values": ["n1", "n9"]}]}]}
    with_people = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    only_ours = {"nodeSelectorTerms": [{"matchExpressions": [{**HOST, "values": ["n1"]}]}]}
    alone = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": only_ours}}

    kept = started(workload, {"affinity": with_people}, (), before=("n1",))["affinity"]
    gone = started(workload, {"affinity": alone}, (), before=("n1",))["affinity"]

    (term,) = kept["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{**HOST, "values": ["n9"]}]
    assert gone == {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": None}}


@pytest.mark.parametrize("workload", ONE_PATCH, ids=lambda w: w.resource.kind)
def test_where_nothing_is_avoided_the_affinity_is_not_written(workload: Workload) -> None:
    assert "affinity" not in started(workload, {"affinity": THEIRS}, ())


@pytest.mark.parametrize("workload", KUBEFLOW, ids=lambda w: w.resource.kind)
def test_a_kubeflow_jobs_containers_keep_everything_and_read_the_environment_once(
    workload: KubeflowJob,
) -> None:
    container = {
        "name": "train",
        "image": "i",
        "unknownField": [1],
        "envFrom": [{"secretRef": {"name": "s"}}],
    }

    once = started(workload, {"containers": [container]}, ())["containers"]
    twice = started(workload, {"containers": once}, ())["containers"]

    assert twice == once
    assert once[0]["unknownField"] == [1]
    assert [next(iter(source)) for source in once[0]["envFrom"]] == ["secretRef", "configMapRef"]


def kubeflow(workload: KubeflowJob, spec: Any, *conditions: str) -> Gang:
    meta = {"name": "llm", "namespace": "ml", "uid": "u", "resourceVersion": "3"}
    status = {"conditions": [{"type": kind, "status": "True"} for kind in conditions]}
    return workload.parse(msgspec.json.encode({"metadata": meta, "spec": spec, "status": status}))


@pytest.mark.parametrize("workload", KUBEFLOW, ids=lambda w: w.resource.kind)
def test_all_roles_of_a_kubeflow_job_are_its_ranks_and_its_conditions_tell_its_end(
    workload: KubeflowJob,
) -> None:
    spec = {workload.replica_specs: {"Master": {}, "Worker": {"replicas": 3}}}

    running, failed = kubeflow(workload, spec, "Created", "Running"), kubeflow(workload, spec, "Failed")

    assert (running.ref.kind, running.size, running.terminal) == (workload.resource.kind, 4, None)
    assert failed.terminal is not None
    assert not failed.terminal.succeeded


@pytest.mark.parametrize("workload", KUBEFLOW, ids=lambda w: w.resource.kind)
def test_a_kubeflow_job_that_another_controller_runs_is_that_ones(workload: KubeflowJob) -> None:
    """training-operator does nothing for such a job, so a stop would never end."""
    spec = {workload.replica_specs: {"Worker": {}}}
    theirs = {**spec, "runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}

    assert kubeflow(workload, spec).foreign_owner == ""
    assert kubeflow(workload, theirs).foreign_owner.endswith("kueue.x-k8s.io/multikueue")


@pytest.mark.parametrize("workload", KUBEFLOW, ids=lambda w: w.resource.kind)
def test_a_kubeflow_job_without_readable_replicas_is_refused_by_the_name_of_its_own_field(
    workload: KubeflowJob,
) -> None:
    specs: list[dict[str, Any]] = [{}, {workload.replica_specs: "three"}]
    for spec in specs:
        with pytest.raises(msgspec.ValidationError, match=workload.replica_specs):
            kubeflow(workload, spec)


def test_an_elastic_paddlejob_is_a_gang_of_the_replicas_that_it_asks_for_now() -> None:
    elastic = {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 8}}

    job = kubeflow(PaddleJob(), {**elastic, "paddleReplicaSpecs": {"Worker": {"replicas": 2}}})

    assert (job.size, job.may_lack, job.unsupported) == (2, 1, "")
    assert kubeflow(PaddleJob(), {"paddleReplicaSpecs": {"Worker": {"replicas": 2}}}).may_lack == 0


def test_a_tfjob_with_dynamic_workers_trains_with_one_worker_and_all_other_roles() -> None:
    roles = {"tfReplicaSpecs": {"PS": {"replicas": 2}, "Worker": {"replicas": 4}}}

    job = kubeflow(TFJob(), {**roles, "enableDynamicWorker": True})

    assert (job.size, job.may_lack) == (6, 3)
    assert kubeflow(TFJob(), roles).may_lack == 0


@pytest.mark.parametrize(
    ("tolerations", "avoided"), [((), False), (({"operator": "Exists"},), True)], ids=["none", "all"]
)
def test_a_gang_that_tolerates_every_taint_is_kept_off_a_cordoned_node_by_affinity(
    tolerations: tuple[dict[str, str], ...], avoided: bool
) -> None:
    job = gang(templates={"Worker": Template(tolerations=tolerations)})
    world = recovering(cluster(nodes=8).running(job).finding(on="n1"))
    advanced(world, Phase.RESUMING)

    (start,) = [a for a in look(world).actions if getattr(a, "what", "") == "start-gang"]

    assert ("n1" in str(start.body)) is avoided


@pytest.mark.parametrize(("spec", "ranks"), [({}, 1), ({"completions": 2}, 2), ({"completions": 9}, 4)])
def test_a_job_has_no_more_ranks_than_completions(spec: dict[str, int], ranks: int) -> None:
    """Kubernetes creates no pods beyond the completions, and a recovery would wait for them."""
    meta = {"name": "llm", "namespace": "ml", "uid": "u", "resourceVersion": "3"}
    body = {"metadata": meta, "spec": {"parallelism": 4, **spec} if spec else {}}

    assert Job().parse(msgspec.json.encode(body)).size == ranks


@pytest.mark.parametrize(
    ("condition", "succeeded"),
    [("Complete", True), ("SuccessCriteriaMet", True), ("Failed", False), ("FailureTarget", False)],
)
def test_a_job_whose_end_is_decided_has_ended_although_its_pods_still_go(
    condition: str, succeeded: bool
) -> None:
    """The Job controller then deletes the other pods because of the successPolicy. If the Job were still
    running, these would be lost ranks."""
    meta = {"name": "llm", "namespace": "ml", "uid": "u", "resourceVersion": "3"}
    status = {"conditions": [{"type": condition, "status": "True"}]}

    terminal = Job().parse(msgspec.json.encode({"metadata": meta, "spec": {}, "status": status})).terminal

    assert terminal is not None
    assert terminal.succeeded is succeeded


@pytest.mark.parametrize(("spec", "may"), [({}, False), ({"successPolicy": {"rules": []}}, True)])
def test_a_job_tells_whether_some_ranks_may_succeed_for_all(spec: dict[str, Any], may: bool) -> None:
    meta = {"name": "llm", "namespace": "ml", "uid": "u", "resourceVersion": "3"}

    assert Job().parse(msgspec.json.encode({"metadata": meta, "spec": spec})).ends_by_success is may


@pytest.mark.parametrize(
    ("spec", "owner"),
    [
        ({}, ""),
        ({"managedBy": "kubernetes.io/job-controller"}, ""),
        ({"managedBy": "kueue.x-k8s.io/multikueue"}, "controller kueue.x-k8s.io/multikueue"),
    ],
)
def test_a_job_that_another_controller_runs_is_that_ones(spec: dict[str, str], owner: str) -> None:
    meta = {"name": "llm", "namespace": "ml", "uid": "u", "resourceVersion": "3"}

    assert Job().parse(msgspec.json.encode({"metadata": meta, "spec": spec})).foreign_owner == owner


def test_a_job_that_was_started_loses_the_time_of_its_start_before_its_affinity_is_changed() -> None:
    """Otherwise an API server before 1.36 refuses the change, and the gang would stay suspended."""
    meta = {"name": "llm", "namespace": "ml", "uid": "u", "resourceVersion": "3"}
    whole = {"metadata": meta, "spec": {"suspend": True}, "status": {"startTime": "2026-11-21T12:00:00Z"}}
    job = Job().parse(msgspec.json.encode(whole))
    cleared = Job().parse(msgspec.json.encode({**whole, "status": {}}))

    (first,) = Job().start(job, Mark(recovery="r", attempt=1, did="resumed", avoided=("n1",)))
    (then,) = Job().start(cleared, Mark(recovery="r", attempt=1, did="resumed", avoided=("n1",)))
    (as_it_is,) = Job().start(job, Mark(recovery="r", attempt=1, did="resumed"))

    assert (first.subresource, first.version, first.body) == ("status", "3", {"status": {"startTime": None}})
    assert "affinity" in str(then.body)
    assert as_it_is.body["spec"] == {"suspend": False}


# --- suspicions are preferences, and are removed later ----------------------------------------------------

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NOT_N1 = {"weight": 100, "preference": {"matchExpressions": [{**HOST, "values": ["n1"]}]}}
NOT_N2 = {"weight": 100, "preference": {"matchExpressions": [{**HOST, "values": ["n2"]}]}}


def marked(mark: Mark, affinity: dict[str, Any]) -> Gang:
    note = {"rekindle.dev/recovery": msgspec.json.encode(mark).decode()}
    template = Template(affinity=affinity)
    return msgspec.structs.replace(gang(annotations=note, templates={"Worker": template}), mark=mark)


def test_a_suspected_node_is_less_preferred_and_what_people_prefer_stays() -> None:
    theirs = {"weight": 100, "preference": {"matchExpressions": [{**HOST, "values": ["n7"]}]}}
    before = Mark(recovery="r", attempt=1, did="resumed", suspected=("n1",))
    job = marked(before, {"nodeAffinity": {PREFERRED: [theirs, NOT_N1]}})

    next_one = Mark(recovery="r", attempt=2, did="resumed", suspected=("n2",))
    none = Mark(recovery="r", attempt=2, did="resumed")

    assert avoiding(job.templates["Worker"].affinity, job, next_one)["nodeAffinity"][PREFERRED] == [
        theirs,
        NOT_N2,
    ]
    assert avoiding(job.templates["Worker"].affinity, job, none)["nodeAffinity"][PREFERRED] == [theirs]


def test_the_last_preference_is_taken_away_with_its_field() -> None:
    before = Mark(recovery="r", attempt=1, did="resumed", suspected=("n1",))
    job = marked(before, {"nodeAffinity": {PREFERRED: [NOT_N1]}})

    (patch,) = PyTorchJob().lift(job)

    affinity = patch.body["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["affinity"]
    assert affinity == {"nodeAffinity": {PREFERRED: None, REQUIRED: None}}
    assert patch.body["metadata"] == {"annotations": {"rekindle.dev/recovery": None}}


def test_what_a_recipe_asks_of_the_nodes_outlives_the_recovery() -> None:
    asked = Requirement(key="gpu", operator="In", values=["h200"])
    job = marked(Mark(recovery="r", attempt=1, did="resumed", avoided=("n1",), placed=(asked,)), {})

    (patch,) = PyTorchJob().lift(job)

    left = msgspec.json.decode(patch.body["metadata"]["annotations"]["rekindle.dev/recovery"], type=Mark)
    assert (left.placed, left.avoided) == ((asked,), ())


def test_the_affinity_of_a_job_is_lifted_while_it_is_suspended_and_else_at_its_next_start() -> None:
    avoided = Mark(recovery="r", attempt=1, did="stopped", avoided=("n1",))
    running = msgspec.structs.replace(marked(avoided, {}), resource=JOBS, templates={"": Template()})
    stopped = msgspec.structs.replace(running, suspended=True)
    begun = msgspec.structs.replace(stopped, started_at=NOW)

    assert Job().lift(running) == []
    assert [patch.what for patch in Job().lift(begun)] == ["clear-start-time"]
    (patch,) = Job().lift(stopped)
    assert patch.body["spec"]["template"]["spec"]["affinity"] == {"nodeAffinity": {REQUIRED: None}}


@pytest.mark.parametrize("workload", [*ONE_PATCH, JobSet()], ids=lambda w: w.resource.kind)
@pytest.mark.parametrize(
    ("status", "is_resuming", "resumed_at"), [("True", True, None), ("False", False, NOW)]
)
def test_when_a_job_was_resumed_is_read_from_its_condition(
    workload: Workload, status: str, is_resuming: bool, resumed_at: datetime | None
) -> None:
    meta = {"name": "llm", "namespace": "ml", "uid": "u", "resourceVersion": "3"}
    spec = {"replicatedJobs": [], "template": {"spec": {}}}
    if isinstance(workload, KubeflowJob):
        spec = {workload.replica_specs: {"Worker": {}}}
    conditions = [{"type": "Suspended", "status": status, "lastTransitionTime": NOW.isoformat()}]

    gang = workload.parse(
        msgspec.json.encode({"metadata": meta, "spec": spec, "status": {"conditions": conditions}})
    )

    assert (gang.is_resuming, gang.resumed_at) == (is_resuming, resumed_at)
