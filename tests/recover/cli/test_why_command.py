"""Tests recover/cli/status_command.py and snapshot/find.py against a served API."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import yaml

from chaos.apiserver.deletion import Deletion, Propagation
from chaos.apiserver.store import MemoryCluster
from detectors.wire.contract import Fault
from detectors.wire.resource import Resource
from recover.api import GangRef, Phase
from recover.cli.status_command import status, why
from recover.k8s.kinds import INCIDENTS, JOBS
from recover.model import Gang
from recover.policy.consent import AUTO_RECOVERY, HOLD
from recover.snapshot.find import find
from recover.snapshot.read import Snapshot
from recover.stories.absence import Absence
from recover.stories.job_state import Job
from recover.stories.recovery_words import PHASE_WORDS
from recover.stories.words import FAULTS
from recover.workloads import WORKLOADS
from tests.facts import missing
from tests.recover.stories.why_cases import LLM, incident


def test_why_a_job_prints_its_story(kubeconfig: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert why(["team/llm", "--kubeconfig", kubeconfig]) == 0

    printed = capsys.readouterr().out
    subject, verdict, *_ = printed.splitlines()
    words, _ = PHASE_WORDS[Phase.SUCCEEDED]
    assert subject == "Job team/llm"
    assert not missing(verdict, FAULTS[Fault.DEVICE_LOST], words)
    assert "kubectl describe recovery -n team job-llm-1" in printed


@pytest.mark.parametrize("asked", ["llm", "job/llm", "jobs/llm"])
def test_a_job_is_found_by_name_alone_or_with_its_kind(
    asked: str, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert why([asked, "--kubeconfig", kubeconfig]) == 0
    assert capsys.readouterr().out.startswith("Job team/llm\n")


@pytest.mark.parametrize("resource", [w.resource for w in WORKLOADS], ids=lambda r: r.kind)
def test_every_kind_that_is_recovered_is_asked_for_by_its_name_and_its_plural(resource: Resource) -> None:
    ref = GangRef(api_version=resource.api_version, kind=resource.kind, namespace="team", name="llm", uid="u")
    other = msgspec.structs.replace(ref, kind="Other", uid="other")
    snapshot = Snapshot(
        nodes={},
        health={},
        incidents=[],
        recoveries=[],
        gangs=[Gang(ref=r, resource=resource, version="1", size=4) for r in (ref, other)],
        namespaces={},
        notes=[],
    )

    for word in (resource.kind, resource.kind.lower(), resource.plural):
        job = find(f"{word}/llm", snapshot)
        assert isinstance(job, Job)
        assert job.ref == ref


@pytest.mark.parametrize("asked", ["node-3", "node/node-3", "nodes/node-3", "no/node-3"])
def test_a_node_is_found(asked: str, kubeconfig: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert why([asked, "--kubeconfig", kubeconfig]) == 0
    assert capsys.readouterr().out.startswith("Node node-3\n")


def test_a_name_in_several_namespaces_gets_the_commands_that_say_which(
    kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert why(["vision", "--kubeconfig", kubeconfig]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    ways = ("rekindle why -n other job/vision", "rekindle why -n team job/vision")
    assert not missing(line, "'vision'", *ways)

    assert why(["-n", "other", "job/vision", "--kubeconfig", kubeconfig]) == 0


def test_a_name_that_does_not_exist_gets_the_nearest(
    kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert why(["lm", "--kubeconfig", kubeconfig]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert not missing(line, "'lm'", "team/llm")


@pytest.mark.parametrize(
    ("asked", "kind", "command"),
    [
        ("node-3-device-lost-1a2b", "Incident", "rekindle why node/node-3"),
        ("incident/node-3-device-lost-1a2b", "Incident", "rekindle why node/node-3"),
        ("job-llm-1", "Recovery", "rekindle why -n team job/llm"),
    ],
)
def test_the_name_of_an_object_of_rekindles_own_gets_the_command_that_tells_of_it(
    asked: str, kind: str, command: str, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert why([asked, "--kubeconfig", kubeconfig]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert not missing(line, repr(asked), kind, f"`{command}`")


@pytest.mark.parametrize("asked", ["", "/", "a/b/c"])
def test_what_is_no_name_is_told(asked: str, kubeconfig: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert why([asked, "--kubeconfig", kubeconfig]) == 3
    forms = ("NAME", "NAMESPACE/NAME", "KIND/NAME", "node/NAME")
    assert not missing(capsys.readouterr().err, repr(asked), *forms)


def test_a_job_that_is_gone_is_found_by_its_recovery(
    store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store.delete(JOBS, "llm", Deletion(propagation=Propagation.BACKGROUND), namespace="team")

    assert why(["team/llm", "--kubeconfig", kubeconfig]) == 0
    assert Absence.DELETED.of(LLM) in capsys.readouterr().out


def test_yaml_tells_the_same_as_json(kubeconfig: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command, asked in ((why, ["team/llm"]), (status, [])):
        told = []
        for form, read_back in (("json", msgspec.json.decode), ("yaml", yaml.safe_load)):
            assert command([*asked, "-o", form, "--kubeconfig", kubeconfig]) == 0
            told.append(read_back(capsys.readouterr().out))

        assert told[0].keys() == told[1].keys()
        assert told[0]["commands"] == told[1]["commands"]


def test_json_is_for_programs(kubeconfig: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert why(["team/llm", "-o", "json", "--kubeconfig", kubeconfig]) == 0
    told = msgspec.json.decode(capsys.readouterr().out)
    assert told["job"] == {"apiVersion": "batch/v1", "kind": "Job", "namespace": "team", "name": "llm"}

    assert status(["-o", "json", "--kubeconfig", kubeconfig]) == 0
    shown = msgspec.json.decode(capsys.readouterr().out)
    assert (shown["acceleratorNodes"], shown["quarantinedNodes"]) == (2, 0)
    assert [one["fault"] for one in shown["incidents"]] == ["device-lost"]


def test_status_prints_its_tables(kubeconfig: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["--kubeconfig", kubeconfig]) == 0

    printed = capsys.readouterr().out
    for named in ("CULPRIT", "node-3-device-lost-1a2b", "SOURCE", "node-4"):
        assert named in printed


def test_status_lists_the_hold_of_a_job_without_a_recovery(
    store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = {"annotations": {HOLD: "true"}}
    store.patch(
        JOBS, "vision", {"metadata": {"labels": {AUTO_RECOVERY: "enabled"}, **notes}}, namespace="other"
    )
    store.patch(JOBS, "vision", {"metadata": notes}, namespace="team")  # the job has no label

    assert status(["-o", "json", "--kubeconfig", kubeconfig]) == 0
    everywhere = msgspec.json.decode(capsys.readouterr().out)
    assert status(["-o", "json", "-n", "team", "--kubeconfig", kubeconfig]) == 0
    in_team = msgspec.json.decode(capsys.readouterr().out)

    assert [one["object"] for one in everywhere["holds"]] == ["Job other/vision"]
    assert in_team["holds"] == []


def test_one_object_that_cannot_be_read_is_named_and_does_not_hide_the_others(
    store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    identity = {"apiVersion": INCIDENTS.api_version, "kind": INCIDENTS.kind}
    store.create(INCIDENTS, {**identity, "metadata": {"name": "odd"}, "spec": {"fault": "gremlins"}})

    assert why(["team/llm", "--kubeconfig", kubeconfig]) == 0

    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert not missing(line, "Incident", "odd", "'gremlins'")
    assert incident().status.summary in printed.out


def test_many_objects_that_cannot_be_read_are_one_line(
    store: MemoryCluster, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    identity = {"apiVersion": INCIDENTS.api_version, "kind": INCIDENTS.kind}
    for number in range(9):
        store.create(
            INCIDENTS, {**identity, "metadata": {"name": f"odd-{number}"}, "spec": {"fault": "gremlins"}}
        )

    assert status(["--kubeconfig", kubeconfig]) == 0

    (line,) = capsys.readouterr().err.splitlines()
    assert not missing(line, 9, "Incident", "odd-0", "odd-1", "odd-2", "odd-3", 5)
    assert missing(line, "odd-4") == ["odd-4"]


@pytest.mark.parametrize(("command", "asked"), [(status, []), (why, ["llm"])], ids=["status", "why"])
def test_a_namespace_that_is_not_there_is_told(
    command: Callable[[list[str]], int], asked: list[str], kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command([*asked, "-n", "taem", "--kubeconfig", kubeconfig]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert not missing(line, "namespace", "'taem'", "team")


def test_a_namespace_before_a_name_that_is_not_there_is_told(
    kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert why(["nosuch/llm", "--kubeconfig", kubeconfig]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert not missing(line, "namespace", "'nosuch'", "team/llm")


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (["--context", "nope"], ("--context", "'nope'")),
        (["--token-file", "t"], ("--token-file", "--server")),
        (["--ca-file", "t"], ("--ca-file", "--server")),
    ],
)
def test_options_that_do_not_fit_the_kubeconfig_are_told(
    args: list[str], named: tuple[str, ...], kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status([*args, "--kubeconfig", kubeconfig]) == 2
    assert not missing(capsys.readouterr().err, *named)


def test_a_server_that_does_not_answer_is_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["--server", "http://127.0.0.1:9"]) == 3

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("rekindle: ")
    assert "127.0.0.1:9" in line


def test_a_kubeconfig_that_is_not_there_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(["--kubeconfig", str(tmp_path / "none")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(tmp_path / "none") in line


def test_wrong_usage_is_exit_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert why([]) == 2
    assert status(["-o", "xml"]) == 2
    assert "Usage" in capsys.readouterr().err
