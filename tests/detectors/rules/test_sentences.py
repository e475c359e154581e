"""Families whose rows are sentences: each example is read, and a bad row is reported exactly."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from detectors import rules
from detectors.catalog.tables import UserRows
from detectors.rules import KernelRules
from detectors.rules.catalogues import Catalogues
from detectors.rules.facts import Draft, HostFacts, KernelLine, addresses_of
from detectors.rules.network_lines import NetworkRow
from detectors.rules.sentences import SentenceRow
from detectors.service.settings import Catalogue
from detectors.sources.kmsg import kernel_line_of, parse_record
from detectors.wire.contract import Device, Fault, Origin, Severity, SubjectKind
from tests.detectors.sources.tenant_words import escaped

NOW = datetime(2026, 11, 23, 9, 30, tzinfo=UTC)
TABLES = [table for table in rules.tables() if issubclass(table.row, SentenceRow)]
ROWS: dict[str, SentenceRow] = {row.code: row for table in TABLES for row in table.packaged()}
EXAMPLES = [(code, example) for code, row in ROWS.items() for example in row.examples]

CORDONED = {"pcie-gpu-fatal", "pcie-adapter-fatal", "edac-uncorrected"}
"""The fatal codes of the tables of sentences. No other code of these tables quarantines a node."""


def read(text: str, host: HostFacts | None = None, rules_: KernelRules | None = None) -> Draft | None:
    """Returns the draft from a record with this text, the whole way from the kernel log."""
    record = parse_record(b"3,1,1000,-;" + escaped(text.encode()))
    assert record is not None
    line = kernel_line_of(record, lambda usec: NOW)
    return (rules_ or KernelRules()).read(line, host or HostFacts()) if line is not None else None


@pytest.mark.parametrize(("code", "example"), EXAMPLES)
def test_each_example_is_read(code: str, example: str) -> None:
    draft = read(example)

    assert draft is not None
    row = ROWS[code]
    assert (draft.code, draft.fault, draft.severity) == (code, row.fault, row.severity)
    assert draft.subject.kind is row.subject


def test_each_row_has_an_example_and_codes_are_their_own_over_all_families() -> None:
    assert not [code for code, row in ROWS.items() if not row.examples]
    assert len(ROWS) == sum(len(table.packaged()) for table in TABLES)


def test_what_takes_a_node_out_is_a_short_list() -> None:
    assert {code for code, row in ROWS.items() if row.severity is Severity.FATAL} == CORDONED
    assert not [code for code, row in ROWS.items() if row.severity is Severity.PENDING]


def test_what_a_tenant_can_cause_is_a_note() -> None:
    assert {row.severity for row in ROWS.values() if row.origin is Origin.TENANT} == {Severity.INFO}


@pytest.mark.parametrize(
    "text",
    [
        "pcieport 0000:00:03.1: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Transmitter ID)",
        "EDAC MC0: 1 UE [4711]: segfault at 0 ip 0 sp 0 error 6 in memory read error on x",
        "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE",
        "EXT4-fs (md127p3): re-mounted 0f3cd65a r/w. Quota mode: none.",
        "NVRM: The NVIDIA probe routine was not called for 1 device(s).",
        "nvidia-nvlink: Nvlink Core is being initialized, major device number 511",
        "x mlx5_core 0000:0d:00.0: Port module event: module 1, Cable unplugged",
        "mlx5_core 0d:00.0: Port module event: module 1, Cable unplugged",
        "mlx5_core 0000:0d:00.0: Port module event: module 1, Cable unplugged and more",
    ],
)
def test_another_line_is_no_finding(text: str) -> None:
    assert read(text) is None


def test_a_sentence_about_a_device_that_the_node_does_not_have_is_no_finding() -> None:
    line = "mlx5_core 0000:d2:00.0: Port module event: module 1, Cable unplugged"
    there, elsewhere = (Device(uuid="x", pci=pci) for pci in ("0000:d2:00.0", "0000:d3:00.0"))

    assert read(line, HostFacts(addresses=addresses_of([elsewhere]))) is None
    draft = read(line, HostFacts(addresses=addresses_of([there])))
    assert draft is not None
    assert (draft.subject.kind, draft.subject.pci) == (SubjectKind.ADAPTER, "0000:d2:00")


def row(**changed: Any) -> dict[str, Any]:
    return {
        "code": "ours",
        "meaning": "ours",
        "lines": ("mlx5_core {pci}: our board says {number} {rest}",),
        "subject": SubjectKind.ADAPTER,
        "fault": Fault.NETWORK,
        "severity": Severity.SUSPECT,
        "source": "ours",
    } | changed


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"lines": ("bnxt_en {pci}: dead",)}, "'mlx5_core '"),
        ({"lines": ("mlx5_core {pci}: {colour}",)}, "{number}"),
        ({"lines": ("mlx5_core our board says so",)}, "{pci}"),
        ({"lines": ("mlx5_core {pci} to {pci}: dead",)}, "{pci}"),
        ({"lines": ("mlx5_core {pci}: {rest} is dead",)}, "{rest}"),
        ({"lines": ("mlx5_core {word} {pci}: dead",)}, "15"),
    ],
    ids=["another head", "another placeholder", "no address", "two addresses", "not at the end", "forgeable"],
)
def test_a_sentence_that_cannot_be_used_is_refused(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=r"\$\.lines") as error:
        NetworkRow(**row(**changed))

    assert told in str(error.value)


def test_a_row_about_a_pod_is_refused_because_its_finding_would_name_none() -> None:
    with pytest.raises(ValueError, match=r"expected one of device, .*, not 'pod' - at `\$\.subject`"):
        NetworkRow(**row(lines=("mlx5_core our board says {number}",), subject=SubjectKind.POD))


def test_a_note_may_begin_with_what_others_choose() -> None:
    note = NetworkRow(**row(lines=("mlx5_core {word} {pci}: dead",), severity=Severity.INFO))

    assert note.lines == ("mlx5_core {word} {pci}: dead",)


OWN = """
[[network]]
code = "{code}"
meaning = "our switch ends ports so"
lines = ["{line}"]
subject = "adapter"
fault = "network"
severity = "suspect"
source = "our own experience"
"""
LINE = "mlx5_core {pci}: Port module event: module {number}, Cable unplugged"


def own(tmp_path: Path, text: str) -> Catalogues:
    extra = tmp_path / "extra.toml"
    extra.write_text(text)
    return Catalogues.load(Catalogue(extra=str(extra)))


def test_a_users_row_wins_and_a_new_one_is_read(tmp_path: Path) -> None:
    new = OWN.format(code="ours", line="mlx5_core {pci}: our board says {number}")
    catalogues = own(tmp_path, OWN.format(code="mlx5-unplugged", line=LINE) + new)
    mine = KernelRules(catalogues.user)

    assert not catalogues.problems
    unplugged = read("mlx5_core 0000:d2:00.0: Port module event: module 1, Cable unplugged", rules_=mine)
    assert unplugged is not None
    assert unplugged.severity is Severity.SUSPECT
    ours = read("mlx5_core 0000:d2:00.0: our board says 7", rules_=mine)
    assert ours is not None
    assert ours.code == "ours"


def test_a_users_bad_row_is_told_with_its_file_row_and_field_and_the_others_are_used(tmp_path: Path) -> None:
    catalogues = own(
        tmp_path, OWN.format(code="bad", line="eth0 is dead") + OWN.format(code="good", line=LINE)
    )

    (problem,) = catalogues.problems
    assert problem.startswith(f"{tmp_path}/extra.toml: [[network]] row 1 (code 'bad'): field lines: ")
    assert isinstance(catalogues.user, UserRows)
    assert [r.code for t in TABLES if t.name == "network" for r in catalogues.user.of(t)] == ["good"]


def test_a_long_line_costs_its_length() -> None:
    """A record has 8 KiB at most, and no sentence reads a part of a line twice."""
    for text in (row.lines[0] for row in ROWS.values()):
        head = text.partition("{")[0]
        KernelRules().read(KernelLine(sequence=1, at=NOW, text=head + "a " * 4000), HostFacts())
