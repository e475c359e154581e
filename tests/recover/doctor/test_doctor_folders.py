"""Tests that `rekindle doctor -f` warns of folders of checkpoints that ranks do not share, or that jobs
share."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recover.cli.doctor_command import run
from tests.facts import missing
from tests.recover.doctor.manifests import CASES, JOB, write

Captured = pytest.CaptureFixture[str]

TORCH = (CASES / "pytorchjob.yaml").read_text()
HEAD, _, WORKER = TORCH.partition("    Worker:\n")
SECOND = JOB.replace("name: llm\n", "name: other\n").replace("llm-rekindle", "other-rekindle")


def with_master(*changes: tuple[str, str]) -> str:
    master = WORKER.replace("replicas: 4", "replicas: 1")
    for before, after in changes:
        assert before in master
        master = master.replace(before, after)
    return f"{HEAD}    Master:\n{master}    Worker:\n{WORKER}"


def findings(files: list[str], capsys: Captured) -> dict[str, list[dict[str, str]]]:
    """Returns the findings of each job by its name."""
    run([*(word for file in files for word in ("-f", file)), "-o", "json"])
    jobs = json.loads(capsys.readouterr().out)["jobs"]
    return {one["job"]["name"] or one["generateName"]: one["findings"] for one in jobs}


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        (
            [("claimName: ckpt", "claimName: other")],
            ("Master", "the claim other", "Worker", "the claim ckpt"),
        ),
        (
            [("mountPath: /ckpt", "mountPath: /ckpt, subPath: a")],
            ("Master", "the folder /a of the claim ckpt"),
        ),
    ],
)
def test_roles_with_different_folders_at_the_path_of_the_checkpoints_are_a_warning(
    changes: list[tuple[str, str]], facts: tuple[str, ...], tmp_path: Path, capsys: Captured
) -> None:
    (one,) = findings([write(tmp_path, with_master(*changes))], capsys)["llm"]

    assert (one["name"], one["severity"]) == ("checkpoint-folders-differ", "risks")
    assert not missing(one["what"], *facts)


@pytest.mark.parametrize(
    "changes",
    [
        [],
        [("volumeMounts: [{name: ckpt, mountPath: /ckpt}]", "tty: true")],
        [("mountPath: /ckpt", "mountPath: /ckpt, subPathExpr: $(POD_NAME)")],
        [
            ("mountPath: /ckpt}", "mountPath: /ckpt}, {name: data, mountPath: /data}"),
            ("volumes: [", "volumes: [{name: data, persistentVolumeClaim: {claimName: corpus}}, "),
        ],
    ],
    ids=["the same", "not mounted", "only the pod knows", "another path"],
)
def test_roles_that_may_have_the_same_folder_are_no_warning(
    changes: list[tuple[str, str]], tmp_path: Path, capsys: Captured
) -> None:
    found = findings([write(tmp_path, with_master(*changes))], capsys)["llm"]

    assert "checkpoint-folders-differ" not in {one["name"] for one in found}


def test_jobs_of_two_files_that_have_one_folder_are_both_warned(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "b").mkdir()
    files = [write(tmp_path, JOB), write(tmp_path / "b", SECOND)]

    found = findings(files, capsys)

    for name, other in (("llm", "other"), ("other", "llm")):
        (one,) = found[name]
        assert (one["name"], one["severity"]) == ("checkpoint-folder-shared", "risks")
        assert not missing(one["what"], f"team/{other}")
        assert not missing(one["fix"], f'rekindle.dev/checkpoint: "/ckpt/{name};format=torch-dcp"')


def test_the_same_folder_under_two_paths_is_shared(tmp_path: Path, capsys: Captured) -> None:
    elsewhere = SECOND.replace("/ckpt;format", "/mnt/a;format").replace(
        "mountPath: /ckpt", "mountPath: /mnt/a, subPath: a"
    )
    below = JOB.replace("/ckpt;format", "/ckpt/a;format")

    found = findings([write(tmp_path, f"{below}---\n{elsewhere}")], capsys)

    assert [one["name"] for one in found["other"]] == ["checkpoint-folder-shared"]


@pytest.mark.parametrize(
    "other",
    [
        SECOND.replace("namespace: team", "namespace: other"),
        SECOND.replace("claimName: ckpt", "claimName: other"),
        SECOND.replace("/ckpt;format", "/ckpt/other;format"),
        SECOND.replace("format=torch-dcp", "format=lightning"),
        JOB,
    ],
    ids=["another namespace", "another claim", "another folder", "another format", "the same job"],
)
def test_jobs_whose_checkpoints_are_kept_apart_are_no_warning(
    other: str, tmp_path: Path, capsys: Captured
) -> None:
    assert other != SECOND

    found = findings([write(tmp_path, f"{JOB}---\n{other}")], capsys)

    assert not any(found.values())


@pytest.mark.parametrize(
    ("changes", "name", "severity"),
    [
        (
            [("persistentVolumeClaim: {claimName: ckpt}", "emptyDir: {}")],
            "checkpoint-folder-lost",
            "fails",
        ),
        (
            [("            volumeMounts: [{name: ckpt, mountPath: /ckpt}]\n", "")],
            "checkpoint-folder-missing",
            "advice",
        ),
    ],
)
def test_a_role_without_a_lasting_volume_at_the_path_is_told(
    changes: list[tuple[str, str]], name: str, severity: str, tmp_path: Path, capsys: Captured
) -> None:
    found = findings([write(tmp_path, with_master(*changes))], capsys)["llm"]

    (one,) = (one for one in found if one["name"] == name)
    assert one["severity"] == severity
    assert not missing(one["what"], "Master", "/ckpt")


def test_a_volume_of_a_kind_of_which_nothing_is_known_is_not_said_to_be_lost(
    tmp_path: Path, capsys: Captured
) -> None:
    lasting = ("persistentVolumeClaim: {claimName: ckpt}", "cephfs: {monitors: [a]}")

    found = findings([write(tmp_path, with_master(lasting))], capsys)["llm"]

    assert "checkpoint-folder-lost" not in {one["name"] for one in found}


@pytest.mark.parametrize("source", ["secret: {secretName: a}", "configMap: {name: a}", "projected: {}"])
def test_checkpoints_on_a_volume_that_is_always_read_only_fail(
    source: str, tmp_path: Path, capsys: Captured
) -> None:
    text = JOB.replace("persistentVolumeClaim: {claimName: ckpt}", source)

    (one,) = findings([write(tmp_path, text)], capsys)["llm"]

    assert (one["name"], one["severity"]) == ("checkpoints-on-read-only-volume", "fails")
    assert not missing(one["fix"], "persistentVolumeClaim", "/ckpt")
    assert "make the volume" not in one["fix"], "its content is needed"


def test_who_is_told_to_allow_a_new_creation_is_told_how_long_the_failed_job_must_stay(
    tmp_path: Path, capsys: Captured
) -> None:
    text = JOB.replace("    rekindle.dev/on-terminal: recreate\n", "").replace(
        "spec:\n", "spec:\n  backoffLimit: 0\n  ttlSecondsAfterFinished: 30\n", 1
    )

    (one,) = findings([write(tmp_path, text)], capsys)["llm"]

    assert not missing(one["fix"], "rekindle.dev/on-terminal", "spec.ttlSecondsAfterFinished: 3600")


def test_an_elastic_tfjob_is_told_its_own_field(tmp_path: Path, capsys: Captured) -> None:
    text = (CASES / "tfjob.yaml").read_text().replace("spec:\n", "spec:\n  enableDynamicWorker: true\n", 1)

    (one,) = findings([write(tmp_path, text)], capsys)["llm"]

    assert one["name"] == "elastic"
    assert not missing(one["fix"], "spec.enableDynamicWorker")
