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
