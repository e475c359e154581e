"""Values that the token of one node's agent may write, and that nobody may believe."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import msgspec
import pytest

from detectors.wire.contract import (
    Coverage,
    CoverageState,
    Device,
    DevicePod,
    Fault,
    Finding,
    FoldedFindings,
    LogPosition,
    NodeHealthStatus,
    Origin,
    Severity,
    Source,
    Subject,
    SubjectKind,
)
from detectors.wire.sane import NotSaneError, demand_sane, sane
from detectors.wire.training import Edge, KnownLine, LastSave, LogError, PodProgress

NOW = datetime(2026, 11, 23, tzinfo=UTC)
WHOLE = NodeHealthStatus(
    boot_id="b",
    observed_at=NOW,
    devices=[Device(uuid="GPU-1", pods=[DevicePod(uid="u", namespace="ml", name="llm-0")])],
    coverage=[Coverage(source=Source.KMSG, state=CoverageState.COVERED, since=NOW, why="no\tone line\n")],
    findings=[
        Finding(
            id="b-kmsg-1",
            code="xid-79",
            fault=Fault.DEVICE_LOST,
            origin=Origin.DRIVER,
            severity=Severity.FATAL,
            subject=Subject(kind=SubjectKind.DEVICE, device="GPU-1"),
            boot_id="b",
            first_seen=NOW,
            last_seen=NOW,
            cleared_at=NOW,
            evidence="NVRM:\x1b[2J",
            chain=["xid-31"],
        )
    ],
    folded=[FoldedFindings(code="xid-31", count=2, last_seen=NOW)],
    pods=[
        PodProgress(
            uid="u",
            namespace="ml",
            name="llm-0",
            edge=Edge.ENDED,
            at=NOW,
            first_step_at=NOW,
            last_step_at=NOW,
            last_save=LastSave(at=NOW),
            first_error=LogError(code="oom", at=NOW, text="a\nb"),
            known_lines=[KnownLine(signature="s", at=NOW, text="\x00")],
            tail="1\n2\n",
        )
    ],
    kmsg=LogPosition(boot_id="b", sequence=7),
)
TIMES = re.compile(rb'"2026-11-23T00:00:00Z"')
NAMES = re.compile(rb'"(b|GPU-1|u|ml|llm-0|b-kmsg-1|xid-79|xid-31|oom|s)"')


def with_each(pattern: re.Pattern[bytes], value: str) -> list[NodeHealthStatus]:
    """Returns copies of the whole status, each with another of the matches replaced."""
    text = msgspec.json.encode(WHOLE)
    new = msgspec.json.encode(value)
    changed = [text[: m.start()] + new + text[m.end() :] for m in pattern.finditer(text)]
    return [msgspec.json.decode(one, type=NodeHealthStatus) for one in changed]


def test_what_agents_write_is_believed_whatever_their_logs_say() -> None:
    demand_sane(WHOLE)


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00Z", "1899-12-31T23:59:59Z", "9999-12-31T23:59:59Z"])
def test_no_field_takes_a_time_with_which_nobody_can_calculate(at: str) -> None:
    forged = with_each(TIMES, at)

    assert len(forged) == 12
    for status in forged:
        with pytest.raises(NotSaneError, match=r"1900.*2199.*`\$"):
            demand_sane(status)


@pytest.mark.parametrize(
    "name",
    [
        "a\nWhat to do next\n  - delete it",
        "\x1b[2J",
        "\u202e",
        "\x85",
        "ALL NODES BROKEN",
        "ALL\u2800NODES",
        "n\u043ede",
    ],
)
def test_no_name_takes_a_character_that_steers_who_prints_it(name: str) -> None:
    forged = with_each(NAMES, name)

    assert len(forged) >= 16
    for status in forged:
        with pytest.raises(NotSaneError, match=r"`\$"):
            demand_sane(status)


SAVED = LastSave(at=NOW, step=2**60)
NUMBERS: list[tuple[str, dict[str, object]]] = [
    ("refreshS", {"refresh_s": 1e300}),
    ("refreshS", {"refresh_s": float("nan")}),
    ("kmsg.sequence", {"kmsg": LogPosition(boot_id="b", sequence=2**62)}),
    ("findings[0].count", {"findings": [msgspec.structs.replace(WHOLE.findings[0], count=2**63 - 1)]}),
    ("findings[0].sequence", {"findings": [msgspec.structs.replace(WHOLE.findings[0], sequence=-(2**60))]}),
    ("folded[0].count", {"folded": [msgspec.structs.replace(WHOLE.folded[0], count=2**60)]}),
    ("pods[0].firstStep", {"pods": [msgspec.structs.replace(WHOLE.pods[0], first_step=-(2**63))]}),
    ("pods[0].lastStep", {"pods": [msgspec.structs.replace(WHOLE.pods[0], last_step=2**63 - 1)]}),
    ("pods[0].instance", {"pods": [msgspec.structs.replace(WHOLE.pods[0], instance=2**60)]}),
    ("pods[0].medianStepS", {"pods": [msgspec.structs.replace(WHOLE.pods[0], median_step_s=1e12)]}),
    ("pods[0].medianStepS", {"pods": [msgspec.structs.replace(WHOLE.pods[0], median_step_s=-1.0)]}),
    ("pods[0].lastSave.step", {"pods": [msgspec.structs.replace(WHOLE.pods[0], last_save=SAVED)]}),
]  # fmt: skip


@pytest.mark.parametrize(("field", "changed"), NUMBERS)
def test_no_number_leaves_what_everybody_can_calculate_with(field: str, changed: dict[str, object]) -> None:
    """Rekindle writes sums of these numbers into Recoveries, and the API server accepts no number beyond
    2^63."""
    with pytest.raises(NotSaneError) as error:
        demand_sane(msgspec.structs.replace(WHOLE, **changed))

    assert str(error.value).endswith(f"at `$.{field}`")


def test_an_id_of_the_controllers_that_an_agent_says_back_may_list_things() -> None:
    pod = msgspec.structs.replace(WHOLE.pods[0], last_save=LastSave(at=NOW, served="n1-a, n2-b"))

    demand_sane(msgspec.structs.replace(WHOLE, pods=[pod], served_request="a b", hands_off="a b"))


def test_large_numbers_that_an_honest_agent_may_tell_are_believed() -> None:
    pod = msgspec.structs.replace(
        WHOLE.pods[0],
        first_step=0,
        last_step=10**12,
        median_step_s=86_400.0,
        free_device_bytes=300 * 2**30,
        instance=10**6,
    )

    demand_sane(msgspec.structs.replace(WHOLE, pods=[pod], refresh_s=600.0))


def test_the_error_says_which_field() -> None:
    finding = msgspec.structs.replace(WHOLE.findings[0], last_seen=datetime(9999, 1, 1, tzinfo=UTC))

    with pytest.raises(NotSaneError, match=r"`\$\.status\.findings\[0\]\.lastSeen`"):
        demand_sane(msgspec.structs.replace(WHOLE, findings=[finding]), "$.status")


def test_a_clock_that_was_never_set_hides_no_fault() -> None:
    at = datetime(1969, 12, 31, 23, 59, 50, tzinfo=UTC)
    finding = msgspec.structs.replace(WHOLE.findings[0], first_seen=at, last_seen=at)

    demand_sane(msgspec.structs.replace(WHOLE, findings=[finding]))


def test_a_single_time_that_is_none_is_as_if_it_were_not_told() -> None:
    assert sane(None) is None
    assert sane(datetime(9999, 1, 1, tzinfo=UTC)) is None
    assert sane(datetime(2026, 11, 23)) is None, "of no zone"
    assert sane(NOW) == NOW
