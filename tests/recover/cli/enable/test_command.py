"""Tests `rekindle enable` as a person calls it: where it prints what, and its exit status."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
import yaml

from recover.cli.enable_command import run
from recover.cli.enable_manifest import KINDS
from tests.facts import each_names, missing

JOB = """\
# ours
apiVersion: batch/v1
kind: Job
metadata:
  name: llm
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: train  # 8 GPUs
        image: trainer
        volumeMounts: [{name: ckpt, mountPath: /ckpt}]
      volumes: [{name: ckpt, nfs: {server: s, path: /p}}]
"""
ENABLED = """\
# ours
apiVersion: batch/v1
kind: Job
metadata:
  name: llm
  labels:
    rekindle.dev/auto-recovery: enabled
  annotations:
    rekindle.dev/checkpoint: /ckpt;format=torch-dcp
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: train  # 8 GPUs
        envFrom:
        - configMapRef:
            name: llm-rekindle-job
            optional: true
        image: trainer
        volumeMounts: [{name: ckpt, mountPath: /ckpt}]
      volumes: [{name: ckpt, nfs: {server: s, path: /p}}]
"""
SHARED = """\
# lost
apiVersion: batch/v1
kind: Job
metadata: {name: llm, labels: &labels {app: llm}}
spec: {template: {metadata: {labels: *labels}, spec: {containers: [{name: train}]}}}
"""
CHECKPOINT = ("--checkpoint", "/ckpt;format=torch-dcp")


def asked(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    status = run([*args])
    out, err = capsys.readouterr()
    return status, out, err


def notes(err: str) -> list[str]:
    """Returns each note of the command with the lines that belong to it."""
    return re.split(r"\n(?=rekindle: )", err.rstrip("\n"))


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def test_the_manifest_is_printed_with_all_that_the_person_wrote(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(capsys, "-f", str(job), *CHECKPOINT) == (0, ENABLED, "")
    assert job.read_text() == JOB


def test_standard_input_is_read_and_a_second_time_changes_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(ENABLED.encode())))

    assert asked(capsys, "-f", "-") == (0, ENABLED, "")


def test_where_comments_cannot_be_kept_it_is_said_and_the_manifest_is_right(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job.write_text(SHARED)

    status, out, err = asked(capsys, "-f", str(job))

    made = yaml.safe_load(out)
    assert status == 0
    assert made["spec"]["template"]["metadata"]["labels"] == {"app": "llm"}
    assert made["metadata"]["labels"] == {"app": "llm", "rekindle.dev/auto-recovery": "enabled"}
    (lost,) = (note for note in notes(err) if missing(note, "default/llm"))  # has doctor's findings
    assert not missing(lost, str(job))


def test_a_manifest_without_a_job_is_passed_on_and_answered_with_3(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "kind: Service  # x\nmetadata: {name: llm}\n"
    job.write_text(text)

    status, out, err = asked(capsys, "-f", str(job))

    assert (status, out) == (3, text)
    assert each_names(err.splitlines(), (str(job), "Service llm"), (str(job), *KINDS))


def test_a_job_of_an_apiversion_that_is_not_known_is_told_with_the_one_that_is(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job.write_text(JOB.replace("apiVersion: batch/v1", "apiVersion: batch/v1beta1"))

    status, _, err = asked(capsys, "-f", str(job))

    assert status == 3
    first, *_ = err.splitlines()
    assert not missing(first, "Job llm", "apiVersion", "'batch/v1beta1'", "batch/v1")


@pytest.mark.parametrize(
    ("text", "args", "named"),
    [
        (b"a: [", (), ("line 1",)),
        (b"a: 1\nb: \xff", (), ("line 2", r"b'\xff'", "UTF-8")),
        (b"a: \x07", (), ("YAML", "JSON")),
        (b"image: {{ .Values.image }}", (), ("line 1", "`helm template`")),
        (b"[" * 5000, (), ("job.yaml",)),
        (b"&a [*a]", (), ("YAML", "JSON")),
        (JOB.replace("name: llm", "nam: llm").encode(), (), ("document 1", "metadata.name", "(none)")),
        (JOB.encode(), ("--checkpoint", "ckpt"), ("--checkpoint", "'ckpt'", "/ckpt;format=torch-dcp")),
        (JOB.encode(), ("--checkpoint", ""), ("--checkpoint", "''", "/ckpt;format=torch-dcp")),
    ],
)
def test_what_cannot_be_used_is_told_and_nothing_is_printed(
    job: Path, capsys: pytest.CaptureFixture[str], text: bytes, args: tuple[str, ...], named: tuple[str, ...]
) -> None:
    job.write_bytes(text)

    status, out, err = asked(capsys, "-f", str(job), *args)

    assert (status, out) == (2, "")
    assert not missing(err, *named)
    assert err.startswith("rekindle: ")
    assert "Traceback" not in err


def test_a_file_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = asked(capsys, "-f", str(tmp_path / "none.yaml"))

    assert status == 2
    assert each_names(err.splitlines(), (str(tmp_path / "none.yaml"), "YAML"))


def test_what_will_not_work_in_spite_of_it_is_told_as_doctor_finds_it(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    meta = "  name: llm\n  annotations: {rekindle.dev/auto-recovery: observe}\n"
    job.write_text(JOB.replace("  name: llm\n", meta).replace("spec:\n", "spec:\n  backoffLimit: 0\n", 1))

    status, out, err = asked(capsys, "-f", str(job))

    assert (status, 'rekindle.dev/auto-recovery: "enabled"' in out) == (0, True)
    consent, limit, checkpoint = notes(err)
    assert not missing(consent, "metadata.annotations[rekindle.dev/auto-recovery]: 'observe'")
    for note, fix in (
        (limit, "spec.backoffLimit: 6"),
        (checkpoint, '{rekindle.dev/checkpoint: "/ckpt"}'),
    ):
        assert not missing(note, str(job), "Job default/llm", fix)
        assert len(note.splitlines()) == 4, "the problem, its field, its consequence, its fix"


def test_the_same_mistake_in_two_templates_is_told_with_the_place_of_each(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = (
        "{restartPolicy: Never, containers: [{name: train, image: trainer, "
        "env: [{name: REKINDLE_RESUME_FROM, value: /a}]}]}"
    )
    replicated = "".join(
        f"  - {{name: {name}, template: {{spec: {{backoffLimit: 0, template: {{spec: {pods}}}}}}}}}\n"
        for name in ("leader", "workers")
    )
    job.write_text(
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: llm}\nspec:\n"
        f"  replicatedJobs:\n{replicated}"
    )

    _, _, err = asked(capsys, "-f", str(job))

    own = [note for note in notes(err) if not missing(note, "REKINDLE_RESUME_FROM itself")]
    assert each_names(own, ("replicatedJobs[leader]",), ("replicatedJobs[workers]",))


def test_a_misspelt_word_beside_the_consent_that_was_added_is_to_be_removed(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job.write_text(
        JOB.replace("  name: llm\n", "  name: llm\n  labels: {rekindle.dev/autorecovery: enabled}\n")
    )

    _, _, err = asked(capsys, "-f", str(job), *CHECKPOINT)

    (note,) = notes(err)
    assert not missing(note, "fix: remove the label rekindle.dev/autorecovery")


def test_a_job_whose_name_the_api_server_makes_is_told_that_its_ranks_read_nothing(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job.write_text(JOB.replace("  name: llm\n", "  generateName: llm-\n"))

    _, out, err = asked(capsys, "-f", str(job), *CHECKPOINT)

    assert "envFrom" not in out
    *_, last = notes(err)
    assert not missing(last, "rekindle-environment", "metadata.name: NAME", "generateName")


def test_what_only_the_api_server_refuses_is_printed_as_it_is(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """YAML does not read `NO` without quotes as a text."""
    job.write_text(
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: llm}\nspec:\n"
        "  pytorchReplicaSpecs:\n    Worker:\n      restartPolicy: [Never]\n      template:\n"
        "        spec: {containers: [{name: x, env: [{name: NO, value: a}]}]}\n"
    )

    status, out, err = asked(capsys, "-f", str(job))

    assert status == 0
    assert "name: NO" in out
    assert "restartPolicy" in err
    assert len(err.splitlines()) == 1, "nothing else is told of it"
