"""`rekindle enable` as a person calls it: what is printed where, and its exit status."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import yaml

from recover.cli.enable_command import run

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
    assert f"rekindle: {job}: comments and layout are lost" in err


def test_a_manifest_without_a_job_is_passed_on_and_answered_with_3(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "kind: Service  # x\nmetadata: {name: llm}\n"
    job.write_text(text)

    status, out, err = asked(capsys, "-f", str(job))

    assert (status, out) == (3, text)
    assert "Service llm is passed on as it is" in err
    assert "nothing to enable in it: expected one of PyTorchJob," in err


def test_a_job_of_an_apiversion_that_is_not_known_is_told_with_the_one_that_is(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job.write_text(JOB.replace("apiVersion: batch/v1", "apiVersion: batch/v1beta1"))

    status, _, err = asked(capsys, "-f", str(job))

    assert status == 3
    assert "Job llm is passed on as it is: field apiVersion: value 'batch/v1beta1': expected batch/v1" in err


@pytest.mark.parametrize(
    ("text", "args", "told"),
    [
        (b"a: [", (), "line 1: "),
        (b"a: 1\nb: \xff", (), r"line 2: value b'\xff': expected UTF-8 text"),
        (b"a: \x07", (), "expected YAML or JSON"),
        (b"image: {{ .Values.image }}", (), "line 1: found unhashable key; expected YAML or JSON without pl"),
        (b"[" * 5000, (), "nested too deeply"),
        (b"&a [*a]", (), "nested too deeply, or a part that contains itself"),
        (JOB.replace("name: llm", "nam: llm").encode(), (), "document 1: field metadata.name: value (none)"),
        (
            JOB.encode(),
            ("--checkpoint", "ckpt"),
            "rekindle: --checkpoint 'ckpt': the path is not absolute; expected an absolute path in the "
            "container, optionally with ;format=<name>, as /ckpt;format=torch-dcp. "
            "The manifest is not printed.\n",
        ),
        (JOB.encode(), ("--checkpoint", ""), "rekindle: --checkpoint '': the path is missing; expected"),
    ],
)
def test_what_cannot_be_used_is_told_and_nothing_is_printed(
    job: Path, capsys: pytest.CaptureFixture[str], text: bytes, args: tuple[str, ...], told: str
) -> None:
    job.write_bytes(text)

    status, out, err = asked(capsys, "-f", str(job), *args)

    assert (status, out) == (2, "")
    assert told in err
    assert err.startswith("rekindle: ")


def test_a_file_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = asked(capsys, "-f", str(tmp_path / "none.yaml"))

    assert status == 2
    assert err.endswith("none.yaml: cannot be read: No such file or directory; expected a YAML file\n")


def test_what_will_not_work_in_spite_of_it_is_told_as_doctor_finds_it(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    meta = "  name: llm\n  annotations: {rekindle.dev/auto-recovery: observe}\n"
    job.write_text(JOB.replace("  name: llm\n", meta).replace("spec:\n", "spec:\n  backoffLimit: 0\n", 1))

    status, out, err = asked(capsys, "-f", str(job))

    assert (status, "rekindle.dev/auto-recovery: enabled" in out) == (0, True)
    consent, limit, checkpoint = err.splitlines()
    assert consent == (
        f"rekindle: {job}: Job default/llm: the job asks not to be restarted; it counts as observe: an "
        "Incident says what would be done, and nothing is done; "
        "fix: metadata.annotations: {rekindle.dev/auto-recovery: enabled}"
    )
    assert "the next failed pod ends the Job for good" in limit
    assert "nothing says where the checkpoints lie" in checkpoint


def test_a_job_whose_name_the_api_server_makes_is_told_that_its_ranks_read_nothing(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job.write_text(JOB.replace("  name: llm\n", "  generateName: llm-\n"))

    _, out, err = asked(capsys, "-f", str(job), *CHECKPOINT)

    assert "envFrom" not in out
    assert "unless the policy rekindle-environment adds it to the pods" in err
    assert "fix: metadata.name: NAME instead of generateName" in err


def test_what_only_the_api_server_refuses_is_printed_as_it_is(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`NO` without quotes is no text in YAML."""
    job.write_text(
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: llm}\nspec:\n"
        "  pytorchReplicaSpecs:\n    Worker:\n      restartPolicy: [Never]\n      template:\n"
        "        spec: {containers: [{name: x, env: [{name: NO, value: a}]}]}\n"
    )

    status, out, err = asked(capsys, "-f", str(job))

    assert status == 0
    assert "name: NO" in out
    assert "restartPolicy" in err
    assert "what will not work is not told" in err
