"""Tests `rekindle doctor -f FILE` as a person calls it."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
import yaml

from recover.cli.doctor_command import run
from recover.doctor.case import Place, Severity
from recover.doctor.checks import CHECKS
from tests.facts import names
from tests.recover.doctor.manifests import CASES, JOB, NO_CONSENT, only_finding, write

# --- a file -------------------------------------------------------------------------------------------------


def test_a_manifest_that_is_all_right_ends_with_0_and_says_what_was_not_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unmade = [check.name for check in CHECKS if check.needs]

    assert run(["-f", write(tmp_path, JOB)]) == 0

    printed = capsys.readouterr()
    subject, verdict, *_ = printed.out.splitlines()
    assert subject == "Job team/llm"
    assert names(verdict, len(CHECKS) - len(unmade), len(unmade))
    assert "rekindle doctor team/llm" in printed.out
    assert "rekindle enable" not in printed.out, "nothing is missing"
    assert printed.err == ""


def test_a_finding_is_told_with_its_place_what_follows_and_the_fix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finding = only_finding(NO_CONSENT)
    where = Place("Job team/llm", "metadata.labels[rekindle.dev/auto-recovery]", "disabled")
    assert (finding.severity, finding.where) == (Severity.FAILS, where)
    assert yaml.safe_load(finding.fix) == {"metadata.labels": {"rekindle.dev/auto-recovery": "enabled"}}

    assert run(["-f", write(tmp_path, NO_CONSENT)]) == 1

    lines = capsys.readouterr().out.splitlines()
    at = next(at for at, line in enumerate(lines) if names(line, finding.what, "not-opted-in"))
    assert names(lines[at + 1], where.object, where.field, where.value)
    assert names(lines[at + 2], finding.means)
    assert names(lines[at + 3], finding.fix)


WITHOUT_CONSENT = JOB.replace("{rekindle.dev/auto-recovery: enabled}", "{}")


@pytest.mark.parametrize(
    ("manifest", "exit_status", "by_namespace"),
    [(WITHOUT_CONSENT, 0, True), (NO_CONSENT, 1, False)],
    ids=["nothing said", "disabled"],
)
def test_a_job_that_is_not_enabled_is_told_so_first_and_what_to_write_where(
    manifest: str, exit_status: int, by_namespace: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finding = only_finding(manifest)
    assert finding.name == "not-opted-in"

    assert run(["-f", write(tmp_path, manifest)]) == exit_status

    subject, verdict, *_ = capsys.readouterr().out.splitlines()
    assert subject == "Job team/llm"
    assert names(verdict, finding.fix)
    assert names(verdict, "namespace") is by_namespace


def test_a_consent_that_is_no_word_of_ours_is_told_with_the_words_that_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = NO_CONSENT.replace("disabled", '"true"')

    assert run(["-f", write(tmp_path, manifest)]) == 1

    finding = only_finding(manifest)
    assert finding.what in capsys.readouterr().out
    assert (finding.name, finding.where.value) == ("not-opted-in", "true")
    assert names(finding.what, "enabled", "observe", "disabled")


def test_standard_input_is_a_file_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(JOB.encode())))

    assert run(["-f", "-"]) == 0
    assert capsys.readouterr().out.startswith("Job team/llm\n")


def test_each_job_of_a_file_is_told_and_one_that_fails_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: llm}\n"

    assert run(["-f", write(tmp_path, "---\n".join([service, NO_CONSENT, JOB])), "-o", "json"]) == 1

    printed = capsys.readouterr()
    first, second = msgspec.json.decode(printed.out)["jobs"]
    assert [finding["name"] for finding in first["findings"]] == ["not-opted-in"]
    assert first["findings"][0]["severity"] == "fails"
    assert first["findings"][0]["where"] == {
        "object": "Job team/llm",
        "field": "metadata.labels[rekindle.dev/auto-recovery]",
        "value": "disabled",
    }
    assert second["findings"] == []
    unmade = {one["check"]: one["why"] for one in second["notMade"]}
    assert unmade.keys() == {check.name for check in CHECKS if check.needs}
    assert all(unmade.values())
    assert names(printed.err, 1, "Service", "llm")


def test_a_file_without_a_job_is_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["-f", write(tmp_path, "kind: Service\n")]) == 3
    assert names(capsys.readouterr().err, tmp_path / "job.yaml")


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("a: [", ["job.yaml", 1]),
        (JOB.replace("parallelism: 4", "parallelism: four"), ["spec.parallelism", "'four'"]),
        (
            JOB.replace("completions: 4", "completions: 4\n  backoffLimit: none"),
            [1, "spec.backoffLimit", "'none'", "a whole number", "text"],
        ),
        (
            (CASES / "pytorchjob.yaml").read_text().replace("image: trainer", "env: [{name: A, value: 1}]"),
            [
                "spec.pytorchReplicaSpecs.Worker",
                "template.spec.containers[0].env[0].value",
                1,
                "text",
                "in quotes",
            ],
        ),
    ],
)
def test_a_manifest_that_cannot_be_read_is_2_and_names_the_field(
    text: str, facts: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["-f", write(tmp_path, text)]) == 2

    printed = capsys.readouterr()
    assert printed.out == ""
    assert names(printed.err, *facts)


def test_a_job_or_a_file_is_asked_for_and_not_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["llm", "-f", "job.yaml"]) == 2
    err = capsys.readouterr().err
    assert names(err, "JOB", "-f", "FILE")
    assert err.count("\n") == 1
