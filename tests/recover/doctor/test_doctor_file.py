"""Tests what `rekindle doctor -f FILE` reads from the file itself: mounts, claims, kinds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recover.cli.doctor_command import run
from recover.workloads import WORKLOADS
from tests.facts import missing
from tests.recover.doctor.manifests import CASES, JOB, write

Captured = pytest.CaptureFixture[str]

CLAIM = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: ckpt, namespace: team}
spec: {accessModes: [MODE]}
"""


def claim(mode: str) -> str:
    return CLAIM.replace("MODE", mode)


def test_a_job_that_is_not_enabled_is_told_so_first(tmp_path: Path, capsys: Captured) -> None:
    without = JOB.replace("  labels: {rekindle.dev/auto-recovery: enabled}\n", "")

    assert run(["-f", write(tmp_path, without)]) == 0

    assert capsys.readouterr().out.splitlines()[1].startswith("Not enabled: ")


def test_the_mounted_path_is_proposed_for_the_checkpoints(tmp_path: Path, capsys: Captured) -> None:
    without = JOB.replace("rekindle.dev/checkpoint", "example.com/checkpoint")
    assert without != JOB

    run(["-f", write(tmp_path, without)])

    (fix,) = (
        line for line in capsys.readouterr().out.splitlines() if "fix: " in line and "checkpoint:" in line
    )
    assert not missing(fix, 'rekindle.dev/checkpoint: "/ckpt"')


@pytest.mark.parametrize(
    ("metadata", "is_enabled"),
    [
        ("{name: team, labels: {rekindle.dev/auto-recovery: enabled}}", True),
        ("{name: team, annotations: {rekindle.dev/auto-recovery: enabled}}", True),
        ("{name: team, labels: {rekindle.dev/auto-recovery: observe}}", False),
        ("{name: team}", False),
        ("{name: other, labels: {rekindle.dev/auto-recovery: enabled}}", False),
        ("{name: team, labels: [rekindle.dev/auto-recovery]}", False),
    ],
)
def test_the_consent_of_a_namespace_of_the_same_file_counts(
    metadata: str, is_enabled: bool, tmp_path: Path, capsys: Captured
) -> None:
    without = JOB.replace("  labels: {rekindle.dev/auto-recovery: enabled}\n", "")
    space = f"apiVersion: v1\nkind: Namespace\nmetadata: {metadata}\n---\n"

    run(["-f", write(tmp_path, space + without)])

    assert ("Not enabled: " not in capsys.readouterr().out) is is_enabled


@pytest.mark.parametrize(("mode", "found"), [("ReadWriteMany", ""), ("ReadWriteOncePod", "claim-of-one-pod")])
def test_claims_of_the_same_file_are_read(mode: str, found: str, tmp_path: Path, capsys: Captured) -> None:
    ended = run(["-f", write(tmp_path, f"{claim(mode)}---\n{JOB}")])

    printed = capsys.readouterr()
    assert ended == (1 if found else 0)
    assert found in printed.out
    assert "checkpoint-claim" not in printed.out, "it is checked"
    assert printed.err == "", "the claim is no job that is left out"


def test_where_no_kind_is_supported_the_supported_ones_are_named(tmp_path: Path, capsys: Captured) -> None:
    assert run(["-f", write(tmp_path, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n")]) == 3

    assert not missing(capsys.readouterr().err, *(w.resource.kind for w in WORKLOADS))


def test_a_job_of_volcano_is_told_which_job_is_restarted(tmp_path: Path, capsys: Captured) -> None:
    volcano = "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: a}\n"

    assert run(["-f", write(tmp_path, volcano)]) == 3
    assert not missing(capsys.readouterr().err, "batch.volcano.sh/v1alpha1", "only a Job of batch/v1")


def found(text: str, tmp_path: Path, capsys: Captured) -> tuple[int, list[dict[str, Any]], str]:
    """Returns exit status, findings of the first job, and standard error."""
    ended = run(["-f", write(tmp_path, text), "-o", "json"])
    printed = capsys.readouterr()
    jobs = json.loads(printed.out)["jobs"] if printed.out else [{"findings": []}]
    return ended, jobs[0]["findings"], printed.err


TORCH = (CASES / "pytorchjob.yaml").read_text()


@pytest.mark.parametrize("joined", [JOB + TORCH, "a: 1\nb: {c: 1, c: 2}\n"], ids=["two jobs", "one line"])
def test_a_key_that_stands_twice_is_refused_with_its_line(
    joined: str, tmp_path: Path, capsys: Captured
) -> None:
    ended, _, err = found(joined, tmp_path, capsys)

    assert ended == 2
    line = 2 if "c: 1" in joined else len(JOB.splitlines()) + 1
    assert not missing(err, "job.yaml", f"line {line}", "twice", "'c'" if line == 2 else "'apiVersion'")
    assert ("---" in err) is (line != 2)


def test_all_files_are_checked(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "b").mkdir()
    first, second = write(tmp_path, JOB.replace("enabled", "disabled")), write(tmp_path / "b", TORCH)

    assert run(["-f", first, "-f", second, "-o", "json"]) == 1

    jobs = json.loads(capsys.readouterr().out)["jobs"]
    assert [job["job"]["kind"] for job in jobs] == ["Job", "PyTorchJob"]


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n"])
def test_an_empty_file_is_said_to_be_empty(text: str, tmp_path: Path, capsys: Captured) -> None:
    ended, _, err = found(text, tmp_path, capsys)

    assert ended == 3
    assert "empty" in err


def test_strict_ends_with_1_also_for_a_risk(tmp_path: Path, capsys: Captured) -> None:
    path = write(tmp_path, JOB.replace("  labels: {rekindle.dev/auto-recovery: enabled}\n", ""))

    assert run(["-f", path]) == 0
    assert run(["-f", path, "--strict"]) == 1


@pytest.mark.parametrize(
    ("before", "after", "name", "facts"),
    [
        (
            "labels: {rekindle.dev/auto",
            "labels: {rekindle.io/auto",
            "misread",
            ("rekindle.dev/auto-recovery",),
        ),
        ("  annotations:", "  annotation:", "misspelt-field", ("metadata.annotations",)),
        (
            "volumeMounts: [{name: ckpt",
            "volumeMounts: [{name: ckp",
            "checkpoints-on-missing-volume",
            ("'ckp'", "ckpt"),
        ),
        ("nvidia.com/gpu:", "nvidia.com/gpus:", "resource-unknown", ("nvidia.com/gpu?",)),
        ("restartPolicy: Never", "restartPolicy: never", "restart-policy-unknown", ("Never",)),
    ],
)
def test_what_people_misspell_is_named_with_what_was_meant(
    before: str, after: str, name: str, facts: tuple[str, ...], tmp_path: Path, capsys: Captured
) -> None:
    assert before in JOB
    _, findings, _ = found(JOB.replace(before, after), tmp_path, capsys)

    (one,) = [finding for finding in findings if finding["name"] == name]
    assert not missing(f"{one['what']} {one['fix']}", *facts)


@pytest.mark.parametrize(
    ("before", "after", "name", "correction"),
    [
        ("rekindle.dev/checkpoint:", "rekindle.dev/checkpiont:", "no-checkpoint-annotation", "checkpoint"),
        ("rekindle.dev/auto-", "rekindle.io/auto-", "not-opted-in", "auto-recovery"),
    ],
)
def test_a_misspelt_name_is_corrected_in_one_way_only(
    before: str, after: str, name: str, correction: str, tmp_path: Path, capsys: Captured
) -> None:
    path = write(tmp_path, JOB.replace(before, after))

    assert run(["-f", path]) == 0
    printed = capsys.readouterr().out
    run(["-f", path, "-o", "json"])
    findings = json.loads(capsys.readouterr().out)["jobs"][0]["findings"]

    assert {one["name"] for one in findings} == {name, "misread"}
    (fix,) = {one["fix"] for one in findings}
    assert not missing(fix, f"rekindle.dev/{correction}")
    assert fix.startswith("rename ")
    assert "rekindle enable" not in printed, "enable would write a second one beside it"


def test_the_headline_says_that_a_job_which_requires_the_configmap_does_not_start(
    tmp_path: Path, capsys: Captured
) -> None:
    assert run(["-f", write(tmp_path, JOB.replace("optional: true", "optional: false"))]) == 1

    headline = capsys.readouterr().out.splitlines()[1]
    assert not missing(headline, "CreateContainerConfigError")
    assert "at a fault" not in headline


POLICY, ELASTIC = "restartPolicy: OnFailure", "spec:\n  elasticPolicy: {minReplicas: 1}\n  pytorch"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TORCH.replace(POLICY, "restartPolicy: OnFailuer"), "may not run"),
        (f"{claim('ReadWriteOncePod')}---\n{TORCH}", "will not run"),
        (f"{claim('ReadWriteOncePod')}---\n{TORCH}".replace("spec:\n  pytorch", ELASTIC), "may not run"),
    ],
    ids=["refused perhaps", "one rank starts", "one rank starts and is enough"],
)
def test_the_headline_claims_no_more_than_its_finding(
    text: str, words: str, tmp_path: Path, capsys: Captured
) -> None:
    run(["-f", write(tmp_path, text)])

    assert capsys.readouterr().out.splitlines()[1].startswith(f"This job {words}: ")


def test_only_the_ranks_that_mount_a_claim_are_counted(tmp_path: Path, capsys: Captured) -> None:
    worker = TORCH.partition("    Worker:\n")[2]
    master = worker.replace("replicas: 4", "replicas: 1")
    unmounted = worker.replace("            volumeMounts: [{name: ckpt, mountPath: /ckpt}]\n", "")
    head = TORCH.partition("    Worker:\n")[0]
    one = f"{head}    Master:\n{master}    Worker:\n{unmounted}"

    (finding,) = found(f"{claim('ReadWriteOncePod')}---\n{one}", tmp_path, capsys)[1]
    assert finding["name"] == "checkpoint-folder-missing"
    assert finding["what"] == "the pods of Worker mount no volume at /ckpt"


JOBSET = (CASES / "jobset.yaml").read_text()
SECOND = JOBSET.partition("  replicatedJobs:\n")[2]


def test_only_the_pods_that_require_the_configmap_are_said_not_to_start(
    tmp_path: Path, capsys: Captured
) -> None:
    two = JOBSET + SECOND.replace("name: workers", "name: leader").replace(
        "llm-rekindle, optional: true", "llm-rekindle"
    )

    _, findings, _ = found(two, tmp_path, capsys)

    (one,) = findings
    assert one["name"] == "environment-not-optional"
    assert one["means"].startswith("the pods of leader do not start")


def test_each_template_that_does_not_read_the_configmap_is_named(tmp_path: Path, capsys: Captured) -> None:
    three = JOBSET + "".join(
        SECOND.replace("name: workers", f"name: {name}").replace("llm-rekindle,", "other,") for name in "ab"
    )

    _, findings, _ = found(three, tmp_path, capsys)

    (one,) = findings
    assert one["name"] == "environment-not-read"
    assert not missing(one["what"], "train of a, train of b do")
    assert not missing(one["where"]["field"], "replicatedJobs[a]", "replicatedJobs[b]")
    assert "workers" not in one["where"]["field"]


def test_a_required_configmap_of_another_kind_is_named_with_the_right_one(
    tmp_path: Path, capsys: Captured
) -> None:
    wrong = JOBSET.replace("{name: llm-rekindle, optional: true}", "{name: llm-rekindle-job}")

    ended, findings, _ = found(wrong, tmp_path, capsys)

    assert ended == 1
    (one,) = [finding for finding in findings if finding["name"] == "environment-not-optional"]
    assert not missing(one["what"], "llm-rekindle-job", "llm-rekindle-jobset")


@pytest.mark.parametrize(
    ("before", "after", "command", "purpose"),
    [
        ("enabled}", "disabled}", "job.yaml ", "automatic recovery enabled"),
        (
            "        envFrom: [{configMapRef: {name: llm-rekindle, optional: true}}]\n",
            "",
            "job.yaml ",
            "the envFrom",
        ),
        (
            "rekindle.dev/checkpoint:",
            "example.com/checkpoint:",
            "--checkpoint PATH",
            "rekindle.dev/checkpoint",
        ),
    ],
)
def test_enable_is_named_for_what_it_adds(
    before: str, after: str, command: str, purpose: str, tmp_path: Path, capsys: Captured
) -> None:
    assert before in JOB
    run(["-f", write(tmp_path, JOB.replace(before, after))])

    (line,) = (one for one in capsys.readouterr().out.splitlines() if one.startswith("  rekindle enable"))
    assert not missing(line, purpose)
    assert command in line
    assert ("automatic recovery" in line) is (purpose == "automatic recovery enabled")


@pytest.mark.parametrize(("value", "same"), [("/a", True), ('""', False)])
def test_an_own_variable_hides_rekindles_choice(
    value: str, same: bool, tmp_path: Path, capsys: Captured
) -> None:
    variable = f"        env: [{{name: REKINDLE_RESUME_FROM, value: {value}}}]\n"
    own = JOB.replace("        image: trainer\n", f"        image: trainer\n{variable}")

    _, findings, _ = found(own, tmp_path, capsys)

    (one,) = findings
    assert one["name"] == "own-variable"
    assert ("the same checkpoint" in one["means"]) is same


def test_an_own_step_does_not_choose_the_checkpoint(tmp_path: Path, capsys: Captured) -> None:
    variable = "        env: [{name: REKINDLE_RESUME_STEP, value: '7'}]\n"
    own = JOB.replace("        image: trainer\n", f"        image: trainer\n{variable}")

    _, (one,), _ = found(own, tmp_path, capsys)

    assert one["means"].endswith("so each restart counts its steps from the same number")


def test_the_headline_counts_what_the_list_below_it_has(tmp_path: Path, capsys: Captured) -> None:
    without = JOB.replace("  labels: {rekindle.dev/auto-recovery: enabled}\n", "").replace(
        "      containers:", "      schedulingGates: [{name: a}]\n      containers:"
    )

    run(["-f", write(tmp_path, without)])

    headline, *lines = capsys.readouterr().out.splitlines()[1:]
    assert sum("(not-opted-in)" in line or "(scheduling-gates)" in line for line in lines) == 2
    assert "1 other warning" in headline
    assert "the label rekindle.dev/auto-recovery: enabled on its namespace" in headline


def test_a_word_beside_the_right_one_is_to_be_removed(tmp_path: Path, capsys: Captured) -> None:
    consent = "rekindle.dev/auto-recovery: enabled"
    both = JOB.replace(f"{{{consent}}}", f"{{{consent}, rekindle.dev/autorecovery: enabled}}")
    assert both != JOB

    _, findings, _ = found(both, tmp_path, capsys)

    assert [one["fix"] for one in findings] == ["remove the label rekindle.dev/autorecovery"]


@pytest.mark.parametrize(
    ("before", "after", "fix"),
    [
        (
            "{rekindle.dev/auto-recovery: enabled}",
            "{rekindle.dev/auto-recovery: enabled, kueue.x-k8s.io/queue-name: gpu}",
            ("remove the label kueue.x-k8s.io/queue-name",),
        ),
        (
            "  annotations:\n",
            "  annotations:\n    kueue.x-k8s.io/queue-name: gpu\n",
            ("remove the annotation kueue.x-k8s.io/queue-name",),
        ),
        ("  completions: 4\n", "  completions: 4\n  managedBy: a.example/b\n", ("managedBy",)),
        (
            "  annotations:\n",
            "  ownerReferences: [{apiVersion: a/v1, kind: Boss, name: b, uid: u, controller: true}]\n"
            "  annotations:\n",
            ("Boss b", "ownerReferences"),
        ),
    ],
)
def test_the_other_controller_of_a_job_is_removed_where_it_is_named(
    before: str, after: str, fix: tuple[str, ...], tmp_path: Path, capsys: Captured
) -> None:
    assert before in JOB
    _, findings, _ = found(JOB.replace(before, after), tmp_path, capsys)

    (one,) = findings
    assert one["name"] == "foreign-owner"
    assert not missing(one["fix"], *fix)
    assert sum(word in one["fix"] for word in ("queue-name", "managedBy", "ownerReferences")) == 1


def test_a_mode_on_a_job_is_to_be_removed_from_there(tmp_path: Path, capsys: Captured) -> None:
    moded = JOB.replace("  annotations:\n", "  annotations:\n    rekindle.dev/mode: repair\n")

    _, findings, _ = found(moded, tmp_path, capsys)

    (one,) = findings
    assert one["fix"] == "remove rekindle.dev/mode from the job; write it as an annotation of the namespace"


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("resume", "remove rekindle.dev/resume; docs/reference/labels.md lists every name"),
        (
            "modes",
            "remove rekindle.dev/modes from the job; write rekindle.dev/mode as an annotation of the "
            "namespace",
        ),
    ],
)
def test_a_name_is_not_renamed_to_a_key_of_another_object(
    name: str, fix: str, tmp_path: Path, capsys: Captured
) -> None:
    named = JOB.replace("  annotations:\n", f"  annotations:\n    rekindle.dev/{name}: repair\n")

    _, findings, _ = found(named, tmp_path, capsys)

    (one,) = findings
    assert one["fix"] == fix


def test_an_object_store_needs_no_annotation(tmp_path: Path, capsys: Captured) -> None:
    _, findings, _ = found(JOB.replace("/ckpt;format=torch-dcp", "s3://bucket/a"), tmp_path, capsys)

    (one,) = findings
    assert one["name"] == "checkpoint-annotation-unusable"
    assert one["fix"].startswith("remove the annotation rekindle.dev/checkpoint")


def test_a_wrong_path_is_answered_with_the_path_where_the_claim_is_mounted(
    tmp_path: Path, capsys: Captured
) -> None:
    _, findings, _ = found(JOB.replace("mountPath: /ckpt", "mountPath: /data"), tmp_path, capsys)

    (one,) = findings
    assert one["name"] == "checkpoints-on-no-volume"
    assert not missing(one["what"], "/ckpt", "/data")
    assert 'rekindle.dev/checkpoint: "/data;format=torch-dcp"' in one["fix"], "its options stay"


MOUNTED = """\
        volumeMounts:
        - {name: data, mountPath: /data}
        - {name: ckpt, mountPath: /mnt/ckpt}
      volumes:
      - {name: data, persistentVolumeClaim: {claimName: corpus, readOnly: true}}
      - {name: ckpt, persistentVolumeClaim: {claimName: shared}}
"""


def test_a_wrong_path_is_not_answered_with_a_claim_that_no_rank_may_write(
    tmp_path: Path, capsys: Captured
) -> None:
    before, _, _ = JOB.partition("        volumeMounts:")

    _, findings, _ = found(before + MOUNTED, tmp_path, capsys)

    (one,) = findings
    assert one["name"] == "checkpoints-on-no-volume"
    assert not missing(one["what"], "the claim corpus at /data", "the claim shared at /mnt/ckpt")
    assert 'rekindle.dev/checkpoint: "/mnt/ckpt;format=torch-dcp"' in one["fix"]
    assert "/data" not in one["fix"]


def test_every_claim_that_may_have_the_checkpoints_is_offered(tmp_path: Path, capsys: Captured) -> None:
    before, _, _ = JOB.partition("        volumeMounts:")

    _, findings, _ = found(before + MOUNTED.replace(", readOnly: true", ""), tmp_path, capsys)

    (one,) = findings
    assert '"/data;format=torch-dcp"' in one["fix"]
    assert '"/mnt/ckpt;format=torch-dcp"' in one["fix"]


def test_the_folder_of_the_job_is_proposed_since_only_its_own_entries_are_read(
    tmp_path: Path, capsys: Captured
) -> None:
    _, findings, _ = found(
        JOB.replace("rekindle.dev/checkpoint:", "example.com/c:").replace(
            "mountPath: /ckpt", "mountPath: /shared"
        ),
        tmp_path,
        capsys,
    )

    (one,) = findings
    assert one["name"] == "no-checkpoint-annotation"
    assert not missing(one["fix"], "/shared/llm", 'rekindle.dev/checkpoint: "/shared"')


@pytest.mark.parametrize(
    ("value", "example"),
    [
        ("/ckpt;format=dcp", "/ckpt;format=torch-dcp"),
        ("/ckpt;format=generic", "/ckpt;format=generic;marker=step-{step}/DONE"),
        ("/ckpt;digests=yes", "/ckpt;digests=check"),
        ("ckpt", "/ckpt"),
    ],
)
def test_an_unusable_annotation_is_answered_with_one_that_can_be_used(
    value: str, example: str, tmp_path: Path, capsys: Captured
) -> None:
    _, findings, _ = found(JOB.replace("/ckpt;format=torch-dcp", f'"{value}"'), tmp_path, capsys)

    (one,) = findings
    assert one["name"] == "checkpoint-annotation-unusable"
    assert f'{{rekindle.dev/checkpoint: "{example}"}}' in one["fix"]
    assert "expected" not in one["fix"], "the problem has it"


def test_an_annotation_on_the_pod_template_is_moved_to_the_job(tmp_path: Path, capsys: Captured) -> None:
    line = "    rekindle.dev/checkpoint: /ckpt;format=torch-dcp\n"
    moved = JOB.replace(line, "").replace(
        "  template:\n", f"  template:\n    metadata:\n      annotations:\n    {line}"
    )

    _, findings, _ = found(moved, tmp_path, capsys)

    assert {one["name"] for one in findings} == {"no-checkpoint-annotation", "misread"}
    (fix,) = {one["fix"] for one in findings}
    assert (
        fix == 'move it to the job: metadata.annotations: {rekindle.dev/checkpoint: "/ckpt;format=torch-dcp"}'
    )


def test_consent_on_the_pod_template_alone_is_named(tmp_path: Path, capsys: Captured) -> None:
    label = "  labels: {rekindle.dev/auto-recovery: enabled}\n"
    moved = JOB.replace(label, "").replace("  template:\n", f"  template:\n    metadata:\n    {label}")

    _, findings, _ = found(moved, tmp_path, capsys)

    assert [one["name"] for one in findings] == ["not-opted-in"]
    assert not missing(findings[0]["what"], "spec.template.metadata")


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ("restartPolicy: OnFailure", "restartPolicy: onfailure", "role-restart-policy-unknown"),
        ("spec:\n  pytorch", "spec:\n  elasticPolicy: {minReplicas: 2}\n  pytorch", "elastic"),
    ],
)
def test_a_pytorchjob_is_told_its_own(
    before: str, after: str, name: str, tmp_path: Path, capsys: Captured
) -> None:
    assert before in TORCH
    _, findings, _ = found(TORCH.replace(before, after), tmp_path, capsys)

    assert [one["name"] for one in findings] == [name]


@pytest.mark.parametrize(
    ("before", "after", "facts"),
    [
        (
            "volumeMounts: [{name: ckpt, mountPath: /ckpt}]",
            "volumeMounts: ckpt",
            ("spec.template.spec.containers[0]", "volumeMounts", "'ckpt'", "a list"),
        ),
        ("name: llm\n", 'name: ""\n', ("metadata.name", "''")),
        ("kind: Job", "kind: job", ("did you mean Job?",)),
        ("kind: Job", "kind: TrainJob", ("TrainJob", "JobSet")),
    ],
)
def test_an_error_names_the_field_the_value_and_what_was_expected(
    before: str, after: str, facts: tuple[str, ...], tmp_path: Path, capsys: Captured
) -> None:
    ended, _, err = found(JOB.replace(before, after, 1), tmp_path, capsys)

    assert ended in (2, 3)
    assert not missing(err, *facts)


def test_a_misspelt_field_that_is_required_is_named(tmp_path: Path, capsys: Captured) -> None:
    ended, _, err = found(TORCH.replace("pytorchReplicaSpecs", "pytorchReplicaSpec"), tmp_path, capsys)

    assert ended == 2
    assert not missing(err, "spec.pytorchReplicaSpec:", "did you mean spec.pytorchReplicaSpecs?")
