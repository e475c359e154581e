"""Tests recover/api/crds.py: the schemas are structural, accept what the structs encode and refuse the
rest."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml
from msgspec import inspect

from detectors.wire.contract import (
    FINDINGS_MAX,
    Coverage,
    CoverageState,
    Fault,
    Finding,
    NodeHealth,
    NodeHealthStatus,
    ObjectMeta,
    Origin,
    Severity,
    Source,
    Subject,
    SubjectKind,
)
from recover.api import (
    Condition,
    GangRef,
    Incident,
    IncidentSpec,
    Phase,
    PhaseTime,
    Recovery,
    RecoverySpec,
    RecoveryStatus,
)
from recover.api.crds import manifests, schemas
from recover.api.structural import structural
from recover.cli.crds_command import run
from recover.recipes.load import built_in
from recover.recipes.objects import to_object
from tests.facts import missing

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
GANG = GangRef(api_version="batch/v1", kind="Job", namespace="team", name="llm", uid="u1")
FINDING = Finding(
    id="b00tb00t-kmsg-7",
    code="xid-79",
    fault=Fault.DEVICE_LOST,
    origin=Origin.KERNEL,
    severity=Severity.FATAL,
    subject=Subject(kind=SubjectKind.DEVICE, pci="0000:3b:00.0"),
    boot_id="b00t",
    first_seen=NOW,
    last_seen=NOW,
    evidence="NVRM: Xid (PCI:0000:3b:00): 79",
)
HEALTH = NodeHealth(
    metadata=ObjectMeta(name="node-3"),
    status=NodeHealthStatus(
        findings=[FINDING], coverage=[Coverage(source=Source.KMSG, state=CoverageState.COVERED, since=NOW)]
    ),
)
INCIDENT = Incident(
    metadata=ObjectMeta(name="node-3-device-lost-1a2b"),
    spec=IncidentSpec(fault=Fault.DEVICE_LOST, node="node-3", gang=GANG, detected_at=NOW),
)
RECOVERY = Recovery(
    metadata=ObjectMeta(name="job-llm-1a2b", namespace="team"),
    spec=RecoverySpec(
        gang=GANG, number=1, incident="node-3-device-lost-1a2b", fault=Fault.DEVICE_LOST, detected_at=NOW
    ),
    status=RecoveryStatus(
        phase=Phase.STOPPING,
        phases=[PhaseTime(phase=Phase.PLANNED, attempt=1, at=NOW)],
        conditions=[
            Condition(type="CheckpointVerified", status="True", reason="Chosen", last_transition_time=NOW)
        ],
    ),
)


@pytest.mark.parametrize(
    ("plural", "example"),
    [("nodehealths", HEALTH), ("incidents", INCIDENT), ("recoveries", RECOVERY)],
    ids=["NodeHealth", "Incident", "Recovery"],
)
def test_the_schema_accepts_what_the_struct_encodes(plural: str, example: msgspec.Struct) -> None:
    errors(plural, example, expected=0)


@pytest.mark.parametrize("name", sorted(built_in()))
def test_the_schema_accepts_every_built_in_recipe(name: str) -> None:
    errors("recipes", to_object(built_in()[name]), expected=0)


def test_a_node_with_more_findings_than_fit_is_refused() -> None:
    full = msgspec.structs.replace(HEALTH, status=NodeHealthStatus(findings=[FINDING] * FINDINGS_MAX))
    errors("nodehealths", full, expected=0)

    over = msgspec.structs.replace(HEALTH, status=NodeHealthStatus(findings=[FINDING] * (FINDINGS_MAX + 1)))
    (error,) = errors("nodehealths", over, expected=1)
    assert list(error.absolute_path) == ["status", "findings"]


def test_evidence_is_refused_beyond_256_characters() -> None:
    long = msgspec.structs.replace(FINDING, evidence="x" * 257)
    over = msgspec.structs.replace(HEALTH, status=NodeHealthStatus(findings=[long]))

    (error,) = errors("nodehealths", over, expected=1)

    assert list(error.absolute_path) == ["status", "findings", 0, "evidence"]


def test_a_phase_that_does_not_exist_is_refused() -> None:
    wrong = encoded(RECOVERY)
    wrong["status"]["phase"] = "Exploding"

    (error,) = errors("recoveries", wrong, expected=1)

    assert list(error.absolute_path) == ["status", "phase"]


def test_a_recovery_without_its_gang_is_refused() -> None:
    wrong = encoded(RECOVERY)
    del wrong["spec"]["gang"]

    (error,) = errors("recoveries", wrong, expected=1)

    assert (error.validator, list(error.absolute_path)) == ("required", ["spec"])
    assert "'gang'" in error.message


def test_an_absent_phase_is_shown_as_the_struct_means_it() -> None:
    status = schemas()["recoveries"]["properties"]["status"]

    assert status["default"] == {}
    assert status["properties"]["phase"]["default"] == "Planned"
    assert status["properties"]["attempt"]["default"] == 1


@pytest.mark.parametrize("plural", ["nodehealths", "incidents", "recoveries", "recipes"])
def test_the_schema_is_structural(plural: str) -> None:
    """These rules are the API server's own: every node has one type; no references, unions or nulls."""
    for node in nodes(schemas()[plural]):
        assert isinstance(node["type"], str), node
        assert not node.keys() & {"$ref", "anyOf", "oneOf", "allOf", "title", "nullable"}, node
        assert ("items" in node) == (node["type"] == "array"), node


@pytest.mark.parametrize("plural", ["nodehealths", "incidents", "recoveries", "recipes"])
def test_every_list_of_ours_is_bounded(plural: str) -> None:
    unbounded = [n for n in nodes(schemas()[plural]) if n["type"] == "array" and "maxItems" not in n]

    assert unbounded == []


def test_times_are_times_and_descriptions_come_from_the_structs() -> None:
    finding = schemas()["nodehealths"]["properties"]["status"]["properties"]["findings"]["items"]

    first_seen = {**finding["properties"]["firstSeen"]}
    assert first_seen.pop("description").startswith("Time of the first line")
    assert first_seen == {"type": "string", "format": "date-time", "maxLength": 35}
    assert finding["properties"]["evidence"]["description"] == described(Finding, "evidence")
    first, *_ = (Finding.__doc__ or "").splitlines()
    assert first
    assert finding["description"].startswith(first)


def described(struct: type[msgspec.Struct], name: str) -> str:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    (kind,) = (field.type for field in info.fields if field.name == name)
    assert isinstance(kind, inspect.Metadata)
    return str((kind.extra_json_schema or {})["description"])


@pytest.mark.parametrize("plural", ["nodehealths", "incidents", "recoveries", "recipes"])
def test_every_field_has_a_description_that_begins_and_ends_as_a_sentence(plural: str) -> None:
    """`kubectl explain` prints the descriptions. Parts of an object that Kubernetes itself defines must
    have none."""
    parts = [schemas()[plural]["properties"][part] for part in ("spec", "status")]
    fields = [
        *parts,
        *(field for part in parts for node in nodes(part) for field in node.get("properties", {}).values()),
    ]

    assert [one for one in fields if not re.fullmatch(r"(?s)[A-Z0-9`].*\.", one.get("description", ""))] == []


def test_two_fields_of_one_type_have_descriptions_of_their_own() -> None:
    spec = schemas()["recipes"]["properties"]["spec"]

    assert len({spec["properties"][name]["description"] for name in ("title", "source")}) == 2


def test_the_description_of_a_field_takes_precedence_over_the_description_of_its_struct() -> None:
    status = schemas()["incidents"]["properties"]["status"]["properties"]

    assert "when Rekindle last updated the open Incident" in status["known"]["description"]
    assert "when the Incident was closed" in status["answered"]["description"]


def test_a_recipes_tests_are_counted_at_admission() -> None:
    clause = schemas()["recipes"]["properties"]["spec"]["properties"]["match"]["properties"]["allOf"]["items"]
    (of_clause,) = clause["x-kubernetes-validations"]
    (of_test,) = clause["properties"]["anyOf"]["items"]["x-kubernetes-validations"]

    for rule in (of_clause, of_test):
        named = set(re.findall(r"has\(self\.(\w+)\)", rule["rule"])) - {"anyOf"}
        assert named == clause["properties"].keys() - {"where", "anyOf"}


def test_conditions_are_merged_by_their_type() -> None:
    conditions = schemas()["recoveries"]["properties"]["status"]["properties"]["conditions"]

    assert conditions["x-kubernetes-list-type"] == "map"
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]


@pytest.mark.parametrize("crd", manifests(), ids=lambda crd: crd["spec"]["names"]["kind"])
def test_every_column_shows_a_field_that_exists(crd: dict[str, Any]) -> None:
    (version,) = crd["spec"]["versions"]

    for column in version["additionalPrinterColumns"]:
        assert leaf(version["schema"]["openAPIV3Schema"], column["jsonPath"]) is not None, column


def test_a_field_of_a_kind_that_kubernetes_cannot_hold_is_a_clear_error() -> None:
    class Wrong(msgspec.Struct):
        pair: tuple[int, str]

    with pytest.raises(TypeError, match="TupleType"):
        structural(Wrong)


def test_the_command_prints_all_crds(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0

    printed = list(yaml.safe_load_all(capsys.readouterr().out))
    assert printed == manifests()


def test_the_command_writes_one_file_per_kind(tmp_path: Path) -> None:
    assert run(["--output-dir", str(tmp_path / "new")]) == 0

    written = {p.name for p in (tmp_path / "new").iterdir()}
    assert written == {"nodehealths.yaml", "incidents.yaml", "recoveries.yaml", "recipes.yaml"}


def test_a_directory_that_cannot_be_made_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")

    assert run(["--output-dir", str(tmp_path / "file")]) == 1

    (line,) = capsys.readouterr().err.splitlines()
    assert not missing(line, str(tmp_path / "file"))


def encoded(example: msgspec.Struct) -> dict[str, Any]:
    return dict(msgspec.json.decode(msgspec.json.encode(example)))


def errors(plural: str, example: Any, *, expected: int) -> list[jsonschema.ValidationError]:
    if isinstance(example, msgspec.Struct):
        example = encoded(example)
    found = list(jsonschema.Draft202012Validator(schemas()[plural]).iter_errors(example))
    assert len(found) == expected, found
    return found


def nodes(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields every schema node below this one, and this one."""
    yield schema
    for child in schema.get("properties", {}).values():
        yield from nodes(child)
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from nodes(schema[key])


def leaf(schema: dict[str, Any], path: str) -> dict[str, Any] | None:
    """Returns the schema node to which a simple JSONPath of a printer column points."""
    if path == ".metadata.creationTimestamp":
        return schema["properties"]["metadata"]
    at: dict[str, Any] | None = schema
    for part in re.sub(r"\[\?\([^)]*\)\]", "[0]", path)[1:].split("."):
        name, _, index = part.partition("[")
        at = (at or {}).get("properties", {}).get(name)
        if index:
            at = (at or {}).get("items")
    return at
