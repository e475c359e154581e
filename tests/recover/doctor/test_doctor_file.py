"""`rekindle doctor -f FILE`: what the file itself tells: its mounts, its claims, its kinds."""

from __future__ import annotations

from pathlib import Path

import pytest

from recover.cli.doctor_command import run
from recover.workloads import WORKLOADS
from tests.facts import missing
from tests.recover.doctor.manifests import JOB, write

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
