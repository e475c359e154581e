"""The packaged rows load and follow the rule in the head of xid.toml. A bad row of a user does not affect
other rows."""

from __future__ import annotations

import re
import tomllib
from importlib import resources
from pathlib import Path

import pytest

from detectors.catalog.load import packaged_rows, rows_of
from detectors.catalog.log_errors import packaged_log_errors
from detectors.catalog.xid import XIDS, XidCatalog, XidRow
from detectors.rules.catalogues import Catalogues, extendable_tables
from detectors.rules.error_lines import TRIGGERS, compiled, row_in
from detectors.rules.fabric_rows import fabric_rows
from detectors.service.settings import Catalogue
from detectors.wire.contract import Fault, Origin, Remedy, Severity

PORTS = fabric_rows()
ROWS = {row.code: row for row in packaged_rows("xid.toml", "xid", XidRow)}

TAKES_OUT = {
    "RESET_GPU",
    "RESTART_BM",
    "RESTART_VM",
    "WORKFLOW_XID_48",
    "WORKFLOW_NVLINK_ERR",
    "WORKFLOW_NVLINK5_ERR",
}
BY_THE_DRIVERS_NAME = {167, 173}
"""Codes for which NVIDIA publishes no action, while the driver's own name of the event calls it fatal."""
BY_A_PROGRAM = {109}
"""Codes for which NVIDIA demands a reset although a program can provoke them at will. An Xid 154 says whether
the GPU needs the reset."""


def test_all_codes_of_nvidias_workbook_and_header_have_a_row() -> None:
    assert set(range(1, 179)) | {185} <= set(ROWS)


def test_every_row_names_its_source() -> None:
    assert all(row.source and row.meaning for row in ROWS.values())


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: str(row.code))
def test_a_row_can_take_a_node_out_only_where_nvidia_asks_for_it(row: XidRow) -> None:
    """The controller cordons for a finding that is fatal, and neither caused by a tenant nor a fault of the
    application."""
    fatal_for_node = (
        row.severity is Severity.FATAL
        and row.origin is not Origin.TENANT
        and row.fault is not Fault.APPLICATION
    )

    asked_for = row.vendor_action in TAKES_OUT and row.code not in BY_A_PROGRAM
    assert fatal_for_node == (asked_for or row.code in BY_THE_DRIVERS_NAME)


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: str(row.code))
def test_a_row_follows_nvidias_action(row: XidRow) -> None:
    if row.status == "unused":
        assert (row.fault, row.severity) == (Fault.UNKNOWN, Severity.PENDING)
    elif row.vendor_action == "RESTART_APP" and row.code != 94:
        assert (row.fault, row.severity) == (Fault.APPLICATION, Severity.FATAL)
    elif row.vendor_action == "IGNORE":
        assert row.severity is Severity.INFO
    elif row.vendor_action in ("BLANK", "NONE_PUBLISHED") and row.code not in (162, 163, 164, 165, 174):
        assert row.severity is (Severity.FATAL if row.code in BY_THE_DRIVERS_NAME else Severity.PENDING)


@pytest.mark.parametrize("code", [13, 31, 43, 45, 109])
def test_what_an_application_provokes_at_will_is_the_tenants(code: int) -> None:
    assert (ROWS[code].origin, ROWS[code].fault) == (Origin.TENANT, Fault.APPLICATION)


@pytest.mark.parametrize("code", [14, 106, 107])
def test_the_drivers_test_codes_are_never_acted_upon(code: int) -> None:
    assert ROWS[code].severity is Severity.INFO


def test_a_contained_memory_fault_waits_for_the_next_checkpoint() -> None:
    assert (ROWS[94].fault, ROWS[94].severity) == (Fault.MEMORY_DEGRADED, Severity.PENDING)


def test_a_row_that_waits_to_be_remapped_is_recorded_and_never_acted_upon() -> None:
    assert (ROWS[63].severity, ROWS[63].remedy) == (Severity.INFO, Remedy.NONE)


def test_every_doubtful_row_says_what_was_decided() -> None:
    for code in (54, 63, 64, 74, 109, 167, 169, 172, 173):
        assert "Decided: " in ROWS[code].reason, code


def test_final_verdicts_are_few() -> None:
    assert {code for code, row in ROWS.items() if row.final} == {48, 79}


def test_the_log_patterns_load_and_name_codes_once() -> None:
    rows = packaged_log_errors()

    assert len({row.code for row in rows}) == len(rows)
    assert [row.code for row in rows if row.traceback] == ["log-thread-traceback", "log-traceback"]


def test_few_searches_tell_which_patterns_a_new_line_may_hold() -> None:
    read = compiled(packaged_log_errors())

    alone = [trigger for trigger in read.by_trigger if trigger not in TRIGGERS]
    assert len(alone) <= 8, "each costs a search in each new line: give error_lines.py a trigger for them"
    assert len(read.by_trigger) < 40


def test_each_pattern_is_found_and_none_is_hidden_by_a_row_before_its_own() -> None:
    read = compiled(packaged_log_errors())

    for place, row in enumerate(read.rows):
        assert [p for p in row.patterns if row_in(read, f"before {p} behind") != place] == []


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [("severity", "deadly", ""), ("code", "79", "`int`"), ("colour", "red", "")],
)
def test_a_bad_row_is_named_with_file_row_field_value_and_what_was_expected(
    field: str, value: str, expected: str
) -> None:
    text = resources.files("detectors.catalog").joinpath("xid.toml").read_text()
    row = tomllib.loads(text)["xid"][78] | {field: value}

    good, bad = rows_of({"xid": [row]}, "xid", XidRow, file="mine.toml")

    assert not good
    assert (bad[0].file, bad[0].field, bad[0].value) == ("mine.toml", field, repr(value))
    assert all(name in bad[0].where for name in ("[[xid]]", "row 1", f"code {row['code']!r}"))
    assert expected in bad[0].expected
    assert all(name in str(bad[0]) for name in ("mine.toml", bad[0].where, field, repr(value)))


def xid(catalogues: Catalogues, code: int) -> XidRow:
    return XidCatalog.packaged(catalogues.user.of(XIDS)).row(code)


GOOD = """
[[xid]]
code = 13
mnemonic = "MINE"
meaning = "on our boards this is a broken riser"
fault = "device-reset"
origin = "kernel"
severity = "fatal"
remedy = "reset-device"
source = "our own experience"
"""


def test_a_users_rows_win_and_a_bad_one_is_skipped_and_told(tmp_path: Path) -> None:
    extra = tmp_path / "extra.toml"
    extra.write_text(
        GOOD
        + """
[[xid]]
code = 31
mnemonic = "HALF"

[[log_error]]
code = "log-ours"
patterns = ["ours: fatal"]
meaning = "ours"
implies = "own-fault"
source = "ours"
"""
    )

    catalogues = Catalogues.load(Catalogue(extra=str(extra)))

    assert xid(catalogues, 13).mnemonic == "MINE"
    assert xid(catalogues, 31) == ROWS[31]
    assert catalogues.log_errors[0].code == "log-ours"
    assert len(catalogues.problems) == 1
    assert all(name in catalogues.problems[0] for name in ("row 2", "code 31", "meaning"))


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (f"[[xid]]\ncode = 0x{'f' * 5000}\n", "field code"),
        (f'[[xid]]\ncode = "{"7" * 5000}"\n', "...: expected `int`, got `str`"),
        (f"[[xid]]\ncode = 7\nfinal = {'[' * 90}{']' * 90}\n", "(code 7)"),
        ("[[xid]]\ncode = 1979-05-27\n", "(code datetime.date(1979, 5, 27))"),
        (GOOD, "[[xid]] row 2 (code 13)"),
        ('[[log_error]]\ncode = "log-ours"\npatterns = ["oom"]\n', "[[log_error]] row 1 (code 'log-ours')"),
        ("[[xyd]]\ncode = 7\n", "'xyd'"),
        ('[[fabric]]\ncode = "port-lame"\n', "(code 'port-lame')"),
    ],
    ids=[
        "a huge number",
        "a long text",
        "deep",
        "a date",
        "the same again",
        "another table",
        "a typing error",
        "a half row of a port",
    ],
)
def test_whatever_is_wrong_with_a_row_the_others_are_used_and_it_is_named(
    tmp_path: Path, row: str, told: str
) -> None:
    extra = tmp_path / "extra.toml"
    extra.write_text(GOOD + row)

    catalogues = Catalogues.load(Catalogue(extra=str(extra)))

    assert xid(catalogues, 13).mnemonic == "MINE"
    (problem,) = catalogues.problems
    assert problem.startswith(f"{extra}: ")
    assert told in problem
    assert len(problem) < 500


@pytest.mark.parametrize(
    "text",
    ["[[xid", "xid = 3", "\xff", f"code = {'9' * 5000}", f"xid = {'[' * 5000}", f"xid = '{'x' * 100_000}'"],
    ids=["cut off", "a number", "not UTF-8", "a huge number", "deep", "a long text"],
)
def test_a_users_file_that_is_no_catalogue_leaves_the_packaged_one(tmp_path: Path, text: str) -> None:
    extra = tmp_path / "extra.toml"
    extra.write_bytes(text.encode("latin-1"))

    catalogues = Catalogues.load(Catalogue(extra=str(extra)))

    assert xid(catalogues, 79).final
    assert len(catalogues.problems) == 1
    assert str(extra) in catalogues.problems[0]
    assert len(catalogues.problems[0]) < 500


PORT = """
[[fabric]]
code = "{code}"
meaning = "our fabric is managed by others"
fault = "network"
severity = "{severity}"
source = "our own experience"
"""


def test_a_users_row_changes_what_a_state_of_a_port_means(tmp_path: Path) -> None:
    extra = tmp_path / "extra.toml"
    extra.write_text(PORT.format(code="port-dead", severity="suspect"))

    catalogues = Catalogues.load(Catalogue(extra=str(extra)))

    rows = fabric_rows(catalogues.user)
    assert catalogues.problems == ()
    assert (rows["port-dead"].severity, rows["port-down"]) == (Severity.SUSPECT, PORTS["port-down"])


@pytest.mark.parametrize(
    ("code", "severity", "names"),
    [
        ("port-lame", "suspect", ["port-lame", "expected one of port-down, port-dead", "field code"]),
        ("port-dead", "deadly", ["port-dead", "severity", "deadly"]),
    ],
)
def test_a_users_row_of_a_port_that_cannot_be_used_is_told_and_the_others_are_used(
    tmp_path: Path, code: str, severity: str, names: list[str]
) -> None:
    extra = tmp_path / "extra.toml"
    extra.write_text(GOOD + PORT.format(code=code, severity=severity))

    catalogues = Catalogues.load(Catalogue(extra=str(extra)))

    assert fabric_rows(catalogues.user) == PORTS
    assert xid(catalogues, 13).mnemonic == "MINE"
    (problem,) = catalogues.problems
    assert problem.startswith(f"{extra}: [[fabric]] row 1")
    assert all(name in problem for name in names)


def test_the_setting_names_every_table_of_a_users_file() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/settings.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith("| `extra` |"))

    named = set(re.findall(r"`\[\[(\w+)\]\]`", row))
    assert named == {table.name for table in extendable_tables()}


def test_a_missing_users_file_is_told(tmp_path: Path) -> None:
    (problem,) = Catalogues.load(Catalogue(extra=str(tmp_path / "none.toml"))).problems

    assert str(tmp_path / "none.toml") in problem


def test_every_code_has_a_row_even_one_that_is_not_known() -> None:
    assert XidCatalog.packaged().row(4242).severity is Severity.PENDING
