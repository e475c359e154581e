"""Tests each check of the doctor on a manifest of a job that is all right except for one thing."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from detectors.text.strict import BadValueError
from recover.doctor.case import Part, Severity
from recover.doctor.checks import CHECKS
from recover.doctor.manifest import cases
from recover.doctor.report import examined, story
from recover.k8s.pod_specs import HOSTNAME
from recover.workloads.patches import REQUIRED as REQUIRED_TERMS
from tests.facts import missing
from tests.recover.doctor.doctor_cases import (
    EXISTS,
    LABEL,
    LEAVES,
    MANIFESTS,
    PAST,
    QUEUE,
    RECIPES,
    RECREATES,
    Change,
    annotated,
    case,
    found,
    in_cluster,
    of_container,
    of_pod,
    policy,
    rule,
    spec,
    volume,
)
from tests.recover.stories.why_cases import NOW


@pytest.mark.parametrize("kind", MANIFESTS)
def test_a_job_that_is_all_right_has_no_finding_in_a_file_and_in_a_cluster(kind: str) -> None:
    assert found(case(kind)) == {}
    report = examined(in_cluster(kind))
    assert report.findings == ()
    assert report.not_made == ()
    assert [passed.check for passed in report.passed] == [check.name for check in CHECKS]


CHECKPOINT = "metadata.annotations[rekindle.dev/checkpoint]"
REPAIR = "metadata.annotations[rekindle.dev/checkpoint-repair]"
LABELLED = "metadata.labels[rekindle.dev/auto-recovery]"
WORKER = "spec.{}ReplicaSpecs.Worker"
WORKERS = "spec.replicatedJobs[workers].template.spec.template.spec"
REQUIRED = [{"configMapRef": {"name": "llm-rekindle-job"}}]
NO_ENV_FROM = of_container("job", "envFrom", None)
GPU = {"limits": {"nvidia.com/gpu": 8}}
OWN_ENV = [{"name": "REKINDLE_RESUME_FROM", "value": "/a"}]
THREE_PER_INDEX = spec("backoffLimitPerIndex", value=3)
RETRIED = (("spec", "replicatedJobs", 0, "template", "spec", "backoffLimit"), 6)
WHOLE_CARDS = of_container("paddlejob", "resources", {"limits": {"tencent.com/vcuda-core": 200}})
NO_POLICY = spec("failurePolicy", value=None)
FAILS_SET = (("spec", "failurePolicy", "rules"), [{"action": "FailJobSet"}])
DEPENDS = (("spec", "replicatedJobs", 0, "dependsOn"), [{"name": "x"}])
RULE = "spec.podFailurePolicy.rules[1].action"
ACTIVE = "activeDeadlineSeconds"
DEADLINE = (("spec", "replicatedJobs", 0, "template", "spec", ACTIVE), 60)
TTL = "ttlSecondsAfterFinished"
MOUNT: dict[str, Any] = {"name": "ckpt", "mountPath": "/ckpt"}
READ_ONLY = [{**MOUNT, "readOnly": True}]
WRITABLE_TOO = [*READ_ONLY, {"name": "ckpt", "mountPath": "/saves"}]


def of_template(name: str, value: str) -> Change:
    return ("spec", "template", "metadata", "annotations", f"rekindle.dev/{name}"), value


def on_hosts(*names: str) -> dict[str, Any]:
    expression = {"key": HOSTNAME, "operator": "In", "values": list(names)}
    return {"nodeAffinity": {REQUIRED_TERMS: {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}


ON_FAILURE = of_pod("job", "restartPolicy", "OnFailure")
SET_ON_FAILURE = of_pod("jobset", "restartPolicy", "OnFailure")


def of_workers(field: str, value: int) -> Change:
    return ("spec", "replicatedJobs", 0, "template", "spec", field), value


TWO_JOBS = [
    (("spec", "replicatedJobs", 0, "replicas"), 2),
    of_workers("completions", 2),
    of_workers("parallelism", 2),
]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (volume(hostPath={"path": "/d"}), "`{name: ckpt, persistentVolumeClaim: {claimName: NAME}}`"),
        (
            of_container("job", "volumeMounts", [{**MOUNT, "subPathExpr": "$(POD_NAME)"}]),
            "mount the volume ckpt with subPath instead of subPathExpr",
        ),
    ],
    ids=["a folder of the node", "a folder of each pod"],
)
def test_the_fix_of_a_volume_that_no_scan_mounts_fits_the_volume_of_the_manifest(
    change: Change, words: str
) -> None:
    ((_, finding),) = found(case("job", change)).items()

    assert words in finding.fix


@pytest.mark.parametrize(
    ("kind", "changes", "name", "severity", "field"),
    [
        ("job", [(LABEL, "observe")], "not-opted-in", "fails", LABELLED),
        ("job", [(LABEL, "ennabled")], "not-opted-in", "fails", LABELLED),
        ("job", [(LABEL, None)], "not-opted-in", "risks", LABELLED),
        ("job", [annotated("hold", "true")], "held", "fails", "metadata.annotations[rekindle.dev/hold]"),
        (
            "job",
            [annotated("hold-until", "2035-01-01T00:00:00Z")],
            "held",
            "fails",
            "metadata.annotations[rekindle.dev/hold-until]",
        ),
        (
            "job",
            [annotated("hold", "false"), annotated("hold-until", "2035-01-01T00:00:00Z")],
            "held",
            "fails",
            "metadata.annotations[rekindle.dev/hold-until]",
        ),
        ("job", [annotated("hang-timeout", "soon")], "misread", "risks", "metadata"),
        ("job", [annotated("step-template", "step")], "misread", "risks", "metadata"),
        ("job", [spec("completions", value=9)], "unsupported", "fails", "spec"),
        ("job", [(QUEUE, "q")], "foreign-owner", "fails", "metadata"),
        ("job", [annotated("checkpoint", None)], "no-checkpoint-annotation", "risks", CHECKPOINT),
        ("job", [annotated("checkpoint", "ckpt")], "checkpoint-annotation-unusable", "risks", CHECKPOINT),
        ("job", [annotated("checkpoint", "/data")], "checkpoints-on-no-volume", "fails", CHECKPOINT),
        ("job", [volume(emptyDir={})], "checkpoints-in-empty-dir", "fails", CHECKPOINT),
        (
            "job",
            [volume(ephemeral={"volumeClaimTemplate": {"spec": {}}})],
            "checkpoints-on-ephemeral-volume",
            "fails",
            CHECKPOINT,
        ),
        ("job", [volume(hostPath={"path": "/d"})], "checkpoints-on-host-path", "risks", CHECKPOINT),
        ("job", [volume(cephfs={"monitors": []})], "checkpoints-not-scanned", "risks", CHECKPOINT),
        ("job", [volume(csi={"driver": "d"})], "checkpoints-not-scanned", "risks", CHECKPOINT),
        (
            "job",
            [of_container("job", "volumeMounts", READ_ONLY)],
            "checkpoints-read-only",
            "fails",
            CHECKPOINT,
        ),
        (
            "job",
            [volume(persistentVolumeClaim={"claimName": "ckpt", "readOnly": True})],
            "checkpoints-read-only",
            "fails",
            CHECKPOINT,
        ),
        ("job", [of_template("hang-timeout", "30m")], "misread", "risks", "spec.template.metadata"),
        ("job", [of_pod("job", "nodeName", "gpu-1")], "pinned", "risks", "spec.template.spec.nodeName"),
        (
            "job",
            [of_pod("job", "nodeSelector", {HOSTNAME: "gpu-1"})],
            "pinned",
            "risks",
            f"spec.template.spec.nodeSelector[{HOSTNAME}]",
        ),
        (
            "job",
            [of_pod("job", "affinity", on_hosts("gpu-1"))],
            "pinned",
            "risks",
            "spec.template.spec.affinity.nodeAffinity",
        ),
        ("job", [annotated("checkpoint-repair", "tracker")], "repair-by-another-user", "risks", REPAIR),
        (
            "job",
            [of_container("job", "envFrom", REQUIRED)],
            "environment-not-optional",
            "fails",
            "spec.template.spec.containers[train].envFrom",
        ),
        (
            "pytorchjob",
            [of_container("pytorchjob", "envFrom", [{"configMapRef": {"name": "llm-rekindle-pytorchjob"}}])],
            "environment-not-optional",
            "fails",
            f"{WORKER.format('pytorch')}.template.spec.containers[pytorch].envFrom",
        ),
        (
            "job",
            [NO_ENV_FROM],
            "environment-not-read",
            "risks",
            "spec.template.spec.containers[train].envFrom",
        ),
        (
            "jobset",
            [of_container("jobset", "envFrom", None)],
            "environment-not-read",
            "risks",
            f"{WORKERS}.containers[train].envFrom",
        ),
        (
            "pytorchjob",
            [of_container("pytorchjob", "env", OWN_ENV)],
            "own-variable",
            "fails",
            f"{WORKER.format('pytorch')}.template.spec.containers[pytorch].env[REKINDLE_RESUME_FROM]",
        ),
        ("job", [LEAVES, spec("backoffLimit", value=0)], "no-retry", "fails", "spec.backoffLimit"),
        (
            "job",
            [LEAVES, spec("backoffLimitPerIndex", value=0)],
            "no-retry",
            "fails",
            "spec.backoffLimitPerIndex",
        ),
        ("job", [LEAVES], "retries-counted", "advice", "spec.backoffLimit"),
        (
            "job",
            [LEAVES, THREE_PER_INDEX, rule("FailJob", operator="NotIn", values=[0])],
            "pod-failure-policy",
            "fails",
            RULE,
        ),
        (
            "job",
            [LEAVES, THREE_PER_INDEX, rule("FailIndex", operator="In", values=[42])],
            "pod-failure-policy",
            "advice",
            RULE,
        ),
        ("jobset", [NO_POLICY], "no-retry", "risks", "spec.failurePolicy.maxRestarts"),
        ("jobset", [FAILS_SET], "no-retry", "risks", "spec.failurePolicy.maxRestarts"),
        (
            "pytorchjob",
            [policy("pytorch", "Never")],
            "no-retry",
            "fails",
            f"{WORKER.format('pytorch')}.restartPolicy",
        ),
        (
            "paddlejob",
            [policy("paddle", "ExitCode")],
            "no-retry",
            "fails",
            f"{WORKER.format('paddle')}.restartPolicy",
        ),
        (
            "tfjob",
            [policy("tf", None)],
            "no-retry",
            "fails",
            f"{WORKER.format('tf')}.restartPolicy",
        ),
        (
            "pytorchjob",
            [spec("runPolicy", "backoffLimit", value=0)],
            "no-retry",
            "risks",
            "spec.runPolicy.backoffLimit",
        ),
        (
            "pytorchjob",
            [spec("runPolicy", "backoffLimit", value=4)],
            "no-retry",
            "risks",
            "spec.runPolicy.backoffLimit",
        ),
        (
            "job",
            [LEAVES, ON_FAILURE, spec("backoffLimit", value=4)],
            "no-retry",
            "risks",
            "spec.backoffLimit",
        ),
        ("job", [LEAVES, ON_FAILURE], "retries-counted", "advice", "spec.backoffLimit"),
        (
            "jobset",
            [NO_POLICY, SET_ON_FAILURE, of_workers("backoffLimit", 4)],
            "no-retry",
            "risks",
            f"{WORKERS.removesuffix('.template.spec')}.backoffLimit",
        ),
        (
            "pytorchjob",
            [spec("runPolicy", ACTIVE, value=60)],
            "active-deadline",
            "advice",
            "spec.runPolicy.activeDeadlineSeconds",
        ),
        (
            "jobset",
            [DEADLINE],
            "active-deadline",
            "advice",
            f"{WORKERS.removesuffix('.template.spec')}.{ACTIVE}",
        ),
        ("job", [spec(TTL, value=0)], "removed-too-soon", "fails", f"spec.{TTL}"),
        ("job", [spec(TTL, value=100)], "removed-too-soon", "risks", f"spec.{TTL}"),
        (
            "pytorchjob",
            [of_pod("pytorchjob", "tolerations", EXISTS)],
            "tolerates-everything",
            "advice",
            f"{WORKER.format('pytorch')}.template.spec.tolerations",
        ),
        (
            "jobset",
            [of_pod("jobset", "tolerations", EXISTS), DEPENDS],
            "tolerates-everything",
            "risks",
            f"{WORKERS}.tolerations",
        ),
        (
            "job",
            [of_pod("job", "terminationGracePeriodSeconds", 600)],
            "grace-too-long",
            "risks",
            "spec.template.spec.terminationGracePeriodSeconds",
        ),
        (
            "job",
            [annotated("checkpoint-on-sigterm", "true"), of_pod("job", "terminationGracePeriodSeconds", 5)],
            "grace-too-short",
            "risks",
            "spec.template.spec.terminationGracePeriodSeconds",
        ),
        (
            "job",
            [annotated("hang-timeout", "5s")],
            "hang-timeout-short",
            "risks",
            "metadata.annotations[rekindle.dev/hang-timeout]",
        ),
        (
            "job",
            [of_pod("job", "schedulingGates", [{"name": "a"}])],
            "scheduling-gates",
            "risks",
            "spec.template.spec.schedulingGates",
        ),
        (
            "paddlejob",
            [of_container("paddlejob", "env", None)],
            "paddle-autogrow-crash",
            "risks",
            f"{WORKER.format('paddle')}.template.spec.containers[paddle]",
        ),
    ],
)
def test_one_thing_that_is_wrong_is_the_one_finding(
    kind: str, changes: list[Change], name: str, severity: str, field: str
) -> None:
    job = case(kind, *changes)

    (finding,) = examined(job).findings

    assert (finding.name, finding.severity, finding.where.field) == (name, severity, field)
    assert finding.where.object == f"{job.gang.ref.kind} team/llm"
    assert min(len(finding.what), len(finding.means), len(finding.fix)) > 8


OPTIONAL = [{"configMapRef": {"name": "llm-rekindle-job", "optional": True}}]


@pytest.mark.parametrize(
    ("containers", "named", "not_named", "may_be_helper"),
    [
        ([{"name": "a", "envFrom": OPTIONAL}, {"name": "b"}], ["container b does"], ["container a"], True),
        ([{"name": "a"}, {"name": "b", "envFrom": OPTIONAL}], ["container a does"], ["container b"], True),
        ([{"name": "a"}, {"name": "b"}], ["containers a, b do"], [], True),
        ([{"name": "a", "resources": GPU}, {"name": "b"}], ["container a does"], [" b "], False),
        ([{"name": "a"}], ["container a does"], [], False),
    ],
    ids=["only the second lacks it", "only the first lacks it", "both lack it", "one has a GPU", "one alone"],
)
def test_only_containers_that_do_not_read_the_configmap_are_named(
    containers: list[dict[str, Any]], named: list[str], not_named: list[str], may_be_helper: bool
) -> None:
    finding = found(case("job", of_pod("job", "containers", containers)))["environment-not-read"]

    assert not missing(finding.what, *named, "llm-rekindle-job")
    assert not [one for one in not_named if one in finding.what]
    assert ("a container that does not train" in finding.means) is may_be_helper


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("job", [spec("backoffLimit", value=0)]),
        ("job", [rule("FailJob", operator="In", values=[1])]),
        ("jobset", [RECREATES, NO_POLICY]),
        ("pytorchjob", [RECREATES, policy("pytorch", "Never")]),
    ],
)
def test_what_ends_a_job_for_good_is_no_matter_where_it_may_be_made_anew(
    kind: str, changes: list[Any]
) -> None:
    assert found(case(kind, *changes)) == {}


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("job", [annotated("hold", "true"), annotated("hold-until", PAST)]),
        ("job", [annotated("checkpoint", "/ckpt/deeper")]),
        ("job", [LEAVES, spec(TTL, value=0), THREE_PER_INDEX]),
        ("jobset", [NO_POLICY, RETRIED]),
        ("jobset", [NO_POLICY, SET_ON_FAILURE, of_workers("backoffLimit", 5)]),
        ("jobset", [NO_POLICY, SET_ON_FAILURE, of_workers("backoffLimit", 4), *TWO_JOBS]),
        ("jobset", [SET_ON_FAILURE, of_workers("backoffLimit", 4)]),
        ("job", [of_container("job", "volumeMounts", WRITABLE_TOO)]),
        ("job", [annotated("hang-timeout", "30m"), of_template("hang-timeout", "30m")]),
        ("job", [of_pod("job", "nodeSelector", {"gpu": "h100"})]),
        ("job", [of_pod("job", "affinity", on_hosts("gpu-1", "gpu-2"))]),
        ("pytorchjob", [spec("runPolicy", "backoffLimit", value=5)]),
        ("jobset", [of_pod("jobset", "tolerations", [{"key": "nvidia.com/gpu", "operator": "Exists"}])]),
        ("pytorchjob", [spec("pytorchReplicaSpecs", "Worker", "restartPolicy", value=None)]),
        ("paddlejob", [of_container("paddlejob", "env", None), WHOLE_CARDS]),
    ],
)
def test_what_looks_alike_and_is_all_right_is_no_finding(kind: str, changes: list[Change]) -> None:
    assert found(case(kind, *changes)) == {}


def test_an_end_that_cannot_be_read_begins_a_hold_and_is_not_called_without_effect() -> None:
    findings = found(case("job", annotated("hold-until", "tomorrow")))

    assert findings.keys() == {"held", "misread"}
    assert findings["held"].where.value == "tomorrow"
    assert "no effect" not in findings["misread"].means
    assert not missing(findings["misread"].means, "removes the annotation")


def test_a_repair_that_rekindle_does_not_know_needs_no_permission() -> None:
    assert found(case("job", annotated("checkpoint-repair", "all"))).keys() == {"misread"}


@pytest.mark.parametrize("word", ["Never", "ExitCode"])
def test_an_elastic_job_that_fails_with_its_first_rank_is_not_said_to_continue(word: str) -> None:
    elastic = spec("elasticPolicy", "minReplicas", value=2)

    assert "elastic" in found(case("pytorchjob", elastic))
    assert found(case("pytorchjob", elastic, policy("pytorch", word))).keys() == {"no-retry"}
    assert "spec.runPolicy" not in str(
        examined(case("pytorchjob", policy("pytorch", word), spec("runPolicy", "backoffLimit", value=3)))
    ), "the kubelet restarts no container of such a job"
    assert found(case("pytorchjob", elastic, policy("pytorch", word), RECREATES)) == {}


def test_the_restarts_of_containers_are_what_counts_under_on_failure() -> None:
    """The kubelet starts the container again in its pod, so no pod fails and no pod is created."""
    counted = found(case("job", LEAVES, ON_FAILURE))["retries-counted"]

    assert not missing(f"{counted.what} {counted.means}", "restart", "container", 6)
    assert "new pods (" not in counted.means


# --- the table ----------------------------------------------------------------------------------------------


def test_every_check_has_a_name_of_its_own() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)


def test_what_was_not_read_leaves_its_checks_unmade_and_says_why() -> None:
    why = "you have no permission to"

    report = examined(in_cluster("pytorchjob", unread={Part.CLAIM: why}, access_modes=()))

    assert {one.check: one.why for one in report.not_made} == {"checkpoint-claim": why}


def test_the_worst_comes_first() -> None:
    gated = of_pod("job", "schedulingGates", [{"name": "a"}])
    job = case("job", LEAVES, gated, annotated("checkpoint", "/data"))

    severities = [finding.severity for finding in examined(job).findings]

    assert severities == [Severity.FAILS, Severity.RISKS, Severity.ADVICE]


def test_the_templates_of_a_spec_are_those_of_the_gang() -> None:
    """The gang uses the same names for the fields of its templates."""
    shown = {kind: [field for field, _ in case(kind).templates] for kind in MANIFESTS}

    assert shown == {
        "job": ["spec.template"],
        "jobset": ["spec.replicatedJobs[workers].template.spec.template"],
        "pytorchjob": ["spec.pytorchReplicaSpecs.Worker.template"],
        "paddlejob": ["spec.paddleReplicaSpecs.Worker.template"],
        "tfjob": ["spec.tfReplicaSpecs.Worker.template"],
    }


def _places(value: Any, so_far: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, one in inner:
        yield (*so_far, step)
        yield from _places(one, (*so_far, step))


@pytest.mark.parametrize("kind", MANIFESTS)
def test_whatever_stands_in_a_field_is_told_or_refused_with_its_field(kind: str) -> None:
    refused: list[BadValueError] = []
    for place in _places(MANIFESTS[kind]):
        for value in (None, 0, "x", [1], {"a": 1}):
            document = copy.deepcopy(MANIFESTS[kind])
            inner: Any = document
            for step in place[:-1]:
                inner = inner[step]
            inner[place[-1]] = value
            try:
                for job in cases([document], "job.yaml", RECIPES, NOW)[0]:
                    story(examined(job), ())
            except BadValueError as error:
                refused.append(error)
    assert len(refused) > 50
    assert all(error.field for error in refused)
