"""recover/doctor: each check on a job that is all right but for one thing, in a file or in a cluster."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from detectors.contract import CoverageState
from recover.doctor.checks import CHECKS
from recover.doctor.known import ahead
from recover.doctor.manifest import cases
from recover.doctor.model import Case, Finding, Part, Severity
from recover.doctor.report import examined
from recover.doctor.spec import templates
from recover.model import Mode, NamespaceView, Node, Pod, PodPhase, Terminal
from recover.recipes.evidence import CUDA_RUNTIME, VGPU_BASELINE
from recover.recipes.load import built_in, parse
from tests.recover.why_cases import NOW, health

MANIFESTS = {
    path.stem: yaml.safe_load(path.read_text()) for path in Path(__file__).parent.glob("doctor_cases/*.yaml")
}
PODS = {
    "job": ("spec", "template", "spec"),
    "jobset": ("spec", "replicatedJobs", 0, "template", "spec", "template", "spec"),
    "pytorchjob": ("spec", "pytorchReplicaSpecs", "Worker", "template", "spec"),
    "paddlejob": ("spec", "paddleReplicaSpecs", "Worker", "template", "spec"),
}
"""Where their pods' specs stand."""
Change = tuple[tuple[str | int, ...], Any]
"""A place in the manifest, and what stands there now; None takes it away."""


def case(kind: str, *changes: Change, **around: Any) -> Case:
    """A job of that kind with these changes, as its manifest tells it."""
    document = copy.deepcopy(MANIFESTS[kind])
    for (*path, last), value in changes:
        place = document
        for step in path:
            place = place.setdefault(step, {}) if isinstance(place, dict) else place[step]
        if value is None:
            del place[last]
        else:
            place[last] = value
    ((found,), notes) = cases([document], "job.yaml", NOW)
    assert notes == []
    return msgspec.structs.replace(found, **around)


def in_cluster(kind: str, *changes: Change, **around: Any) -> Case:
    """The same in a cluster that has nothing against it."""
    pods = tuple(pod(number) for number in range(4))
    told = health()
    status = msgspec.structs.replace(
        told.status, pods=[msgspec.structs.replace(told.status.pods[0], first_step=1)]
    )
    good: dict[str, Any] = {
        "is_file": False,
        "unread": {},
        "mode": Mode.RECOVER,
        "mode_kept_in": "rekindle-system/rekindle-state",
        "namespace": NamespaceView("team"),
        "pods": pods,
        "nodes": {"node-3": node("node-3")},
        "health": {"node-3": msgspec.structs.replace(told, status=status)},
        "claim": "team/ckpt",
        "access_modes": ("ReadWriteMany",),
        "adds_environment": False,
    }
    return case(kind, *changes, **(good | around))


def pod(number: int, **changes: Any) -> Pod:
    running = Pod(
        namespace="team",
        name=f"llm-{number}",
        uid=f"p{number}",
        version="1",
        node="node-3",
        phase=PodPhase.RUNNING,
        created=NOW - timedelta(minutes=20),
    )
    return msgspec.structs.replace(running, **changes)


def node(name: str, **labels: str) -> Node:
    return Node(name=name, uid=name, version="1", labels={k.replace("__", "/"): v for k, v in labels.items()})


def found(job: Case) -> dict[str, Finding]:
    return {finding.name: finding for finding in examined(job).findings}


def annotated(name: str, value: str | None) -> Change:
    return ("metadata", "annotations", f"rekindle.dev/{name}"), value


@pytest.mark.parametrize("kind", MANIFESTS)
def test_a_job_that_is_all_right_has_no_finding_in_a_file_and_in_a_cluster(kind: str) -> None:
    assert found(case(kind)) == {}
    report = examined(in_cluster(kind))
    assert report.findings == ()
    assert report.not_made == ()
    assert [passed.check for passed in report.passed] == [check.name for check in CHECKS]


LABEL = ("metadata", "labels", "rekindle.dev/auto-recovery")
QUEUE = ("metadata", "labels", "kueue.x-k8s.io/queue-name")
PAST = "2020-01-01T00:00:00Z"
RECREATES, LEAVES = annotated("on-terminal", "recreate"), annotated("on-terminal", "leave")
EXISTS = [{"operator": "Exists"}]


def spec(*path: str, value: Any) -> Change:
    return ("spec", *path), value


def of_pod(kind: str, field: str, value: Any) -> Change:
    return (*PODS[kind], field), value


def of_container(kind: str, field: str, value: Any) -> Change:
    return (*PODS[kind], "containers", 0, field), value


def volume(**source: Any) -> Change:
    return of_pod("job", "volumes", [{"name": "ckpt", **source}])


def policy(kind: str, value: str) -> Change:
    return spec(f"{kind}ReplicaSpecs", "Worker", "restartPolicy", value=value)


def rule(action: str, **codes: Any) -> Change:
    """The second rule of a Job's podFailurePolicy."""
    return spec(
        "podFailurePolicy", value={"rules": [{"action": "Ignore"}, {"action": action, "onExitCodes": codes}]}
    )


CHECKPOINT = "metadata.annotations[rekindle.dev/checkpoint]"
LABELLED = "metadata.labels[rekindle.dev/auto-recovery]"
WORKER = "spec.{}ReplicaSpecs.Worker"
WORKERS = "spec.replicatedJobs[workers].template.spec.template.spec"
NO_ENV_FROM = of_container("job", "envFrom", None)
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


@pytest.mark.parametrize(
    ("kind", "changes", "name", "severity", "field"),
    [
        ("job", [(LABEL, "observe")], "not-opted-in", "fails", LABELLED),
        ("job", [(LABEL, "ennabled")], "not-opted-in", "fails", LABELLED),
        ("job", [(LABEL, None)], "not-opted-in", "risks", LABELLED.replace("labels", "annotations")),
        ("job", [annotated("hold", "true")], "held", "fails", "metadata.annotations[rekindle.dev/hold]"),
        ("job", [annotated("hang-timeout", "soon")], "misread", "risks", "metadata"),
        ("job", [annotated("step-template", "step")], "misread", "risks", "metadata"),
        ("job", [spec("completions", value=9)], "unsupported", "fails", "spec"),
        ("job", [(QUEUE, "q")], "foreign-owner", "fails", "metadata"),
        ("job", [annotated("checkpoint", None)], "no-checkpoint-annotation", "risks", CHECKPOINT),
        ("job", [annotated("checkpoint", "ckpt")], "checkpoint-annotation-unusable", "risks", CHECKPOINT),
        ("job", [annotated("checkpoint", "/data")], "checkpoints-on-no-volume", "fails", CHECKPOINT),
        ("job", [volume(emptyDir={})], "checkpoints-in-empty-dir", "fails", CHECKPOINT),
        ("job", [volume(hostPath={"path": "/d"})], "checkpoints-on-host-path", "risks", CHECKPOINT),
        ("job", [volume(ephemeral={})], "checkpoints-not-scanned", "risks", CHECKPOINT),
        ("job", [NO_ENV_FROM], "environment-not-read", "risks", "spec.template.spec.containers[].envFrom"),
        (
            "jobset",
            [of_container("jobset", "envFrom", None)],
            "environment-not-read",
            "risks",
            f"{WORKERS}.containers[].envFrom",
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
            "pytorchjob",
            [spec("runPolicy", "backoffLimit", value=0)],
            "no-retry",
            "risks",
            "spec.runPolicy.backoffLimit",
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
        ("jobset", [of_pod("jobset", "tolerations", [{"key": "nvidia.com/gpu", "operator": "Exists"}])]),
        ("pytorchjob", [spec("pytorchReplicaSpecs", "Worker", "restartPolicy", value=None)]),
        ("paddlejob", [of_container("paddlejob", "env", None), WHOLE_CARDS]),
    ],
)
def test_what_looks_alike_and_is_all_right_is_no_finding(kind: str, changes: list[Change]) -> None:
    assert found(case(kind, *changes)) == {}


def test_a_job_with_a_generated_name_is_told_to_have_one() -> None:
    job = case("job", (("metadata", "name"), None), (("metadata", "generateName"), "llm-"))

    assert found(job)["environment-not-read"].fix.startswith("metadata.name: NAME")


@pytest.mark.parametrize(
    ("around", "name", "severity", "object_"),
    [
        ({"mode": Mode.OBSERVE}, "mode-observe", "fails", "ConfigMap rekindle-system/rekindle-state"),
        (
            {"namespace": NamespaceView("team", {}, {"rekindle.dev/mode": "observe"})},
            "namespace-mode-observe",
            "fails",
            "Namespace team",
        ),
        (
            {"namespace": NamespaceView("team", {}, {"rekindle.dev/hold": "yes"})},
            "namespace-held",
            "fails",
            "Namespace team",
        ),
        (
            {"namespace": NamespaceView("team", {}, {"rekindle.dev/auto-recover": "enabled"})},
            "misread",
            "risks",
            "PyTorchJob team/llm",
        ),
        (
            {"access_modes": ("ReadWriteOnce",)},
            "claim-of-one-node",
            "risks",
            "PersistentVolumeClaim team/ckpt",
        ),
        (
            {"access_modes": ("ReadWriteOncePod",)},
            "claim-of-one-pod",
            "fails",
            "PersistentVolumeClaim team/ckpt",
        ),
        ({"health": {}}, "no-agent", "risks", "NodeHealth node-3"),
    ],
)
def test_what_stands_around_the_job_is_looked_at(
    around: dict[str, Any], name: str, severity: str, object_: str
) -> None:
    finding = found(in_cluster("pytorchjob", **around))[name]

    assert (finding.severity, finding.where.object) == (severity, object_)


def test_a_job_that_its_framework_has_failed_is_told_unless_it_may_be_made_anew() -> None:
    job = in_cluster("pytorchjob")
    failed = msgspec.structs.replace(job.gang, terminal=Terminal(False, "BackoffLimitExceeded"))

    assert "failed-for-good" in found(msgspec.structs.replace(job, gang=failed))
    completed = msgspec.structs.replace(job.gang, terminal=Terminal(True))
    assert "failed-for-good" not in found(msgspec.structs.replace(job, gang=completed))


def test_a_job_that_says_nothing_is_restarted_where_its_namespace_says_so() -> None:
    consenting = NamespaceView("team", {"rekindle.dev/auto-recovery": "enabled"})

    assert found(in_cluster("job", (LABEL, None), namespace=consenting)) == {}
    assert found(in_cluster("job", (LABEL, None)))["not-opted-in"].severity is Severity.FAILS


def test_failed_pods_that_a_job_has_counted_use_up_its_retries() -> None:
    job = in_cluster("job", LEAVES, spec("backoffLimit", value=3))

    spent = msgspec.structs.replace(job, gang=msgspec.structs.replace(job.gang, failures=3))

    assert "retries-counted" in found(job)
    assert (
        found(spent)["no-retry"].what
        == "the next failed pod ends the Job for good (3 failed pods are counted)"
    )


def test_pods_that_read_the_environment_beat_what_the_template_says() -> None:
    reading = tuple(pod(number, environments=("llm-rekindle",)) for number in range(4))

    assert found(in_cluster("job", NO_ENV_FROM, pods=reading)) == {}
    assert "environment-not-read" in found(in_cluster("job", NO_ENV_FROM, pods=(*reading, pod(5))))


def test_the_policy_gives_pods_the_environment_where_their_template_or_namespace_consents() -> None:
    """The Job's own label is not seen by it: another policy copies it to the template, as an annotation."""
    waiting: dict[str, Any] = {"pods": (), "adds_environment": True, "unread": {Part.RUNNING: "none runs"}}
    template = ("spec", "template", "metadata")
    word = {"rekindle.dev/auto-recovery": "enabled"}

    assert found(in_cluster("job", NO_ENV_FROM, (template, {"annotations": word}), **waiting)) == {}
    assert found(in_cluster("job", NO_ENV_FROM, namespace=NamespaceView("team", word), **waiting)) == {}
    assert "environment-not-read" in found(in_cluster("job", NO_ENV_FROM, **waiting))


def test_a_source_that_an_agent_cannot_read_is_told_with_its_reason() -> None:
    blind = health(nvml=CoverageState.BLIND)

    finding = found(in_cluster("pytorchjob", health={"node-3": blind}))["blind"]

    assert finding.what == "node-3: GPU driver (NVML) is not read"
    assert finding.where.value == "driver not loaded"


def test_a_running_job_without_a_step_is_told_which_annotation_helps() -> None:
    finding = found(in_cluster("pytorchjob", health={"node-3": health()}))["no-steps"]

    assert "its 4 pods, the first of which came 20 min ago" in finding.what
    assert finding.fix.startswith(
        "kubectl annotate pytorchjob -n team llm 'rekindle.dev/step-template=step {step}/' --overwrite"
    )


def test_a_line_to_write_is_yaml_as_it_stands() -> None:
    line = case("job").set_annotation("rekindle.dev/step-template", "step {step}/")

    field, _, value = line.partition(": ")
    assert field == "metadata.annotations"
    assert yaml.safe_load(value) == {"rekindle.dev/step-template": "step {step}/"}


# --- known issues -------------------------------------------------------------------------------------------


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
    assert finding.what.endswith(": on old, 1 of the 3 nodes that it may run on")
    assert finding.where.value == "cuda.runtime is 12.6, cuda.driver is 12.4"


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


# --- the table ----------------------------------------------------------------------------------------------


def test_every_check_has_a_name_of_its_own() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)


def test_what_was_not_read_leaves_its_checks_unmade_and_says_why() -> None:
    report = examined(in_cluster("pytorchjob", unread={Part.CLAIM: "you may not"}, access_modes=()))

    assert {one.check: one.why for one in report.not_made} == {"checkpoint-claim": "you may not"}


def test_the_worst_comes_first() -> None:
    job = case("job", LEAVES, annotated("checkpoint", None), spec("completions", value=9))

    severities = [finding.severity for finding in examined(job).findings]

    assert severities == [Severity.FAILS, Severity.RISKS, Severity.ADVICE]


def test_the_templates_of_a_spec_are_those_of_the_gang() -> None:
    """Their fields are told by the gang's names of them."""
    shown: Mapping[str, list[str]] = {
        kind: [field for field, _ in templates(case(kind).spec)] for kind in MANIFESTS
    }

    assert shown == {
        "job": ["spec.template"],
        "jobset": ["spec.replicatedJobs[workers].template.spec.template"],
        "pytorchjob": ["spec.pytorchReplicaSpecs.Worker.template"],
        "paddlejob": ["spec.paddleReplicaSpecs.Worker.template"],
    }
