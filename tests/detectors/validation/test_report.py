"""The report that a step of a repair hands to the controller."""

import msgspec
import pytest

from detectors.wire.step_report import (
    CHECKS_MAX,
    REPORT_BYTES_MAX,
    Check,
    Outcome,
    ReportError,
    ValidationReport,
    decode,
    encode,
)


def report(*checks: Check) -> ValidationReport:
    return ValidationReport(checks=checks)


def test_a_report_is_read_as_it_was_written() -> None:
    said = report(
        Check(name="devices", outcome=Outcome.PASSED, message='8 of 8, "H100" \u2014 all'),
        Check(name="nccl-pair", outcome=Outcome.NOT_RUN, message="no torch"),
    )

    assert decode(encode(said).decode(), where="pod p") == said


def test_the_failed_checks_are_told_apart() -> None:
    lost = Check(name="devices", outcome=Outcome.FAILED, message="7 of 8")

    assert report(Check(name="kernel-log", outcome=Outcome.NOT_RUN), lost).failed == (lost,)


def test_the_longest_messages_are_cut_until_all_of_it_fits() -> None:
    long = [
        Check(name=f"c{n}", outcome=Outcome.FAILED, message='"\n' * 500 + "\u00e9" * 20) for n in range(5)
    ]
    short = Check(name="devices", outcome=Outcome.FAILED, message="7 of 8 devices answer")

    data = encode(report(*long, short))

    read = decode(data.decode(), where="pod p")
    assert REPORT_BYTES_MAX - 300 < len(data) <= REPORT_BYTES_MAX, "the room is used"
    assert [check.name for check in read.checks] == [check.name for check in (*long, short)]
    assert read.checks[-1] == short
    assert all(check.message.endswith("...") for check in read.checks[:-1])


def test_as_many_checks_as_are_allowed_fit_with_the_longest_names() -> None:
    many = [
        Check(name=f"{n:02}" + "x" * 61, outcome=Outcome.NOT_RUN, message="m" * 1024)
        for n in range(CHECKS_MAX)
    ]

    data = encode(report(*many))

    assert len(data) <= REPORT_BYTES_MAX
    assert len(decode(data.decode(), where="pod p").checks) == CHECKS_MAX


@pytest.mark.parametrize(
    ("message", "names"),
    [
        ("", ("JSON",)),
        ("Killed", ("JSON", "'Killed'")),
        ("[" * 4096, ("JSON",)),
        ('{"checks": [{"name": "devices", "outc', ("JSON", '"outc')),
        ('{"checks": []}', (" checks", "[]")),
        ('{"checks": [{"name": "devices", "outcome": "ok"}]}', ("checks[0].outcome", "'ok'")),
        ('{"checks": [{"name": "No Name", "outcome": "passed"}]}', ("checks[0].name", "'No Name'")),
        ('{"checks": [{"name": "a", "outcome": "passed", "mesage": "x"}]}', ("mesage",)),
        (
            '{"checks": [{"name": "a", "outcome": "passed"}, {"name": "a", "outcome": "failed"}]}',
            ("'a'",),
        ),
    ],
)
def test_what_is_no_report_is_said_with_its_field_and_its_pod(message: str, names: tuple[str, ...]) -> None:
    with pytest.raises(ReportError) as raised:
        decode(message, where="pod repair-1")

    assert str(raised.value).startswith("pod repair-1: ")
    assert all(name in str(raised.value) for name in names), raised.value


def test_the_wire_is_plain_json_that_any_pod_can_write() -> None:
    said = report(Check(name="devices", outcome=Outcome.PASSED))

    assert msgspec.json.decode(encode(said)) == {"checks": [{"name": "devices", "outcome": "passed"}]}
