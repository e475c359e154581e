"""One fault is one finding: repeats, consequences, verdicts, storms, boots."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.folds.chain import Chain, Change
from detectors.rules import KernelRules
from detectors.rules.facts import HostFacts, KernelLine
from detectors.service.settings import Chain as ChainSettings
from detectors.wire.contract import FINDINGS_MAX, Fault, Finding, Origin, Remedy, Severity
from detectors.wire.sane import demand_sane

RULES = KernelRules()
START = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
BOOT = "0f1e2d3c-0000-4000-8000-000000000000"


class Log:
    """Feeds lines as the kernel would, with its own sequence numbers."""

    def __init__(self, boot_id: str = BOOT) -> None:
        self.chain = Chain(ChainSettings(), boot_id)
        self.sequence = 0

    def says(self, text: str, at_s: float = 0.0, device: str = "0000:38:00") -> Change:
        self.sequence += 1
        line = KernelLine(
            sequence=self.sequence,
            at=START + timedelta(seconds=at_s),
            text=f"NVRM: Xid (PCI:{device}): {text}",
        )
        draft = RULES.read(line, HostFacts())
        assert draft is not None
        return self.chain.add(draft, line)

    @property
    def counted(self) -> int:
        """Number of lines that the findings and the folded counts account for."""
        return sum(finding.count for finding in self.chain.findings) + sum(
            entry.count for entry in self.chain.folded
        )

    @property
    def only(self) -> Finding:
        (finding,) = self.chain.findings
        return finding


def test_a_count_that_somebody_has_forged_ends_where_a_node_health_does() -> None:
    """A thief of the token of the node's agent writes 2^53, and the next agent continues from there."""
    log = Log()
    log.says("48, DBE", 0)
    forged = msgspec.structs.replace(log.only, count=2**53)
    log.chain = Chain(ChainSettings(), log.only.boot_id)
    log.chain.restore([forged], [])

    log.says("48, DBE", 1)
    log.says("63, Row Remapper: New row marked", 2)

    demand_sane(log.only)
    assert log.only.count == 2**53


def test_an_uncorrectable_error_and_its_consequences_are_one_finding() -> None:
    log = Log()
    log.says("48, DBE", 0)
    log.says("171, GDDR, Uncorrectable DRAM error", 0.5)
    log.says("48, DBE", 0.6)
    log.says("63, Row Remapper: New row marked", 1)
    log.says("154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", 2)

    assert log.only.code == "xid-48"
    assert log.only.chain == ["xid-171", "xid-63", "xid-154"]
    assert (log.only.count, log.only.remedy, log.only.final) == (5, Remedy.RESET_DEVICE, True)


def test_many_45s_after_a_149_are_its_consequences() -> None:
    log = Log()
    log.says("149, NETIR_LINK_EVT Fatal XC0 i0 Link 03", 0)
    changes = [
        log.says(f"45, pid=1, name=p, Ch {n} caused by previous Xid 149", 0.001 * n) for n in range(200)
    ]

    assert (log.only.code, log.only.chain, log.only.count) == ("xid-149", ["xid-45"], 201)
    assert changes.count(Change.EDGE) == 1


def test_a_line_that_names_its_cause_joins_it_after_the_window_too() -> None:
    log = Log()
    log.says("149, NETIR_LINK_EVT Fatal XC0 i0 Link 03", 0)
    log.says("45, pid=1, name=p, Ch 1 caused by previous Xid 149", 30)

    assert log.only.chain == ["xid-45"]


def test_a_graver_line_is_never_hidden_behind_a_tenants() -> None:
    log = Log()
    log.says("13, pid=1, name=p, Graphics SM Warp Exception", 0)
    assert log.says("79, GPU has fallen off the bus.", 1) is Change.EDGE

    assert [finding.code for finding in log.chain.findings] == ["xid-13", "xid-79"]


def test_a_verdict_after_a_tenants_exception_is_a_finding_of_its_own() -> None:
    log = Log()
    log.says("31, pid=1, name=p, MMU Fault", 0)
    log.says("154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", 1)

    tenant, verdict = log.chain.findings
    assert (tenant.code, tenant.final) == ("xid-31", False)
    assert (verdict.code, verdict.final, verdict.remedy) == ("xid-154", True, Remedy.REBOOT_NODE)


def test_what_a_program_repeats_after_a_hardware_fault_is_counted_and_does_not_make_the_fault_newer() -> None:
    log = Log()
    log.says("63, Row Remapper: New row marked", 0)
    for at_s in range(1, 600, 30):
        log.says("31, pid=1, name=p, MMU Fault", at_s)
    assert (log.only.chain, log.only.count) == (["xid-31"], 21)
    assert log.only.last_seen <= START + timedelta(seconds=10), "only the first is a consequence"

    log.says("63, Row Remapper: New row marked", 59)
    assert log.only.last_seen == START + timedelta(seconds=59)


def test_a_verdict_raises_what_was_only_pending() -> None:
    log = Log()
    log.says("63, Row Remapper: New row marked", 0)
    change = log.says("154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", 1)

    assert change is Change.EDGE
    assert (log.only.severity, log.only.final) == (Severity.FATAL, True)


IN_5 = "0000:38:00 GPU-I:05"


@pytest.mark.parametrize(
    ("text", "device", "is_confined"),
    [
        ("63, Row Remapper: New row marked", "0000:38:00", True),
        ("43, pid=1, name=python3, Ch 00000008", IN_5, True),
        ("94, pid=7194, Contained: SM (0x1). RST: No, D-RST: No", IN_5, True),
        ("171, GDDR, Uncorrectable DRAM error", "0000:38:00", False),
        ("154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)", "0000:38:00", False),
        ("154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", "0000:38:00", False),
    ],
)
def test_what_follows_a_contained_error_keeps_it_in_its_instance_unless_it_harms_the_gpu(
    text: str, device: str, is_confined: bool
) -> None:
    log = Log()
    log.says("94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No", device=IN_5)
    assert log.only.confined

    log.says(text, 1, device)

    assert (log.only.confined, log.only.subject.gpu_instance) == (is_confined, 5)


def test_the_same_error_in_another_instance_is_another_finding() -> None:
    log = Log()
    for instance in (5, 6):
        log.says("94, pid=7194, Contained", device=f"0000:38:00 GPU-I:{instance:02}")

    assert [(f.confined, f.subject.gpu_instance) for f in log.chain.findings] == [(True, 5), (True, 6)]


def test_a_verdict_of_none_clears_what_is_open_on_that_device_alone() -> None:
    log = Log()
    log.says("95, Uncontained. RST: Yes, D-RST: No", 0)
    log.says("95, Uncontained. RST: Yes, D-RST: No", 0, device="0000:dc:00")
    log.says("154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", 300)

    ours, other = log.chain.findings
    assert ours.cleared_at == START + timedelta(seconds=300)
    assert other.cleared_at is None


def test_a_fault_after_the_clearing_is_new() -> None:
    log = Log()
    log.says("95, Uncontained", 0)
    log.says("154, GPU recovery action changed from 0x1 (X) to 0x0 (None)", 1)
    log.says("95, Uncontained", 2)

    assert [finding.cleared_at is None for finding in log.chain.findings] == [False, True]


def test_a_fault_that_comes_again_after_a_pause_of_two_seconds_is_a_new_finding() -> None:
    """A person may have returned the node to service in the pause."""
    log = Log()
    log.says("79, GPU has fallen off the bus.", 0)
    assert log.says("79, GPU has fallen off the bus.", 1.9) is Change.COUNT
    assert log.says("79, GPU has fallen off the bus.", 1.9 + 2) is Change.EDGE

    assert [(finding.id, finding.count) for finding in log.chain.findings] == [
        ("0f1e2d3c-kmsg-1", 2),
        ("0f1e2d3c-kmsg-3", 1),
    ]


def test_a_fault_that_comes_every_five_seconds_costs_only_a_few_writes() -> None:
    log = Log()
    changes = [log.says("79, GPU has fallen off the bus.", 5 * number) for number in range(240)]

    assert changes.count(Change.EDGE) == 3
    assert log.counted == 240


def test_a_fault_after_a_pause_of_ten_seconds_is_new_however_often_it_came() -> None:
    log = Log()

    assert {log.says("79, GPU has fallen off the bus.", 10 * number) for number in range(240)} == {
        Change.EDGE
    }
    assert log.counted == 240


def test_a_consequence_that_comes_again_later_is_a_new_finding() -> None:
    """A person may have returned the node to service since."""
    log = Log()
    log.says("48, DBE", 0)
    log.says("95, Uncontained: LTC TAG", 1)
    assert log.says("95, Uncontained: LTC TAG", 2) is Change.COUNT
    assert log.says("95, Uncontained: LTC TAG", 12) is Change.EDGE

    assert [(finding.code, finding.count) for finding in log.chain.findings] == [("xid-48", 3), ("xid-95", 1)]


def test_a_restarted_agent_keeps_the_short_pause_of_a_consequence() -> None:
    log, restarted = Log(), Log()
    log.says("48, DBE", 0)
    log.says("95, Uncontained: LTC TAG", 1)
    restarted.chain.restore(log.chain.findings, [])
    restarted.sequence = log.sequence

    assert restarted.says("95, Uncontained: LTC TAG", 40) is Change.EDGE


def test_a_fault_after_a_harmless_line_of_its_code_has_the_short_pause() -> None:
    log = Log()
    log.says("74, NVLink: fatal error detected on link 14(0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", 0)
    log.says("74, NVLink: fatal error detected on link 14(0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", 5)
    assert [f.severity for f in log.chain.findings] == [Severity.INFO, Severity.FATAL]

    assert log.says(
        "74, NVLink: fatal error detected on link 14(0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", 12
    ) is (Change.EDGE)


def test_after_a_minute_without_a_line_the_pause_is_two_seconds_again() -> None:
    log = Log()
    for at_s in (0, 3, 8, 17, 78, 81):
        log.says("79, GPU has fallen off the bus.", at_s)

    assert [finding.first_seen - START for finding in log.chain.findings] == [
        timedelta(seconds=at_s) for at_s in (0, 3, 8, 17, 78, 81)
    ]


@pytest.mark.parametrize("text", ["13, pid=1, name=p, Graphics", "63, p"])
def test_a_code_that_stops_no_gang_is_one_finding_until_a_minute_without_it(text: str) -> None:
    log = Log()
    if text.startswith("63"):
        log.says("48, DBE", 0)
    log.says(text, 1)
    assert log.says(text, 60.9) is Change.COUNT
    assert log.says(text, 60.9 + 60) is Change.EDGE

    assert len(log.chain.findings) == 2


def test_two_devices_are_two_findings() -> None:
    log = Log()
    log.says("79, GPU has fallen off the bus.", 0)
    log.says("79, GPU has fallen off the bus.", 0, device="0000:dc:00")

    assert len(log.chain.findings) == 2


def test_a_storm_of_many_codes_and_devices_stays_bounded() -> None:
    log = Log()
    edges = 0
    for number in range(40_000):
        device = f"0000:{number % 8:02x}:00"
        edges += log.says(f"{1 + number % 170}, storm", number / 1000, device) is Change.EDGE

    assert len(log.chain.findings) <= FINDINGS_MAX
    assert len(log.chain.folded) <= 64
    assert log.counted == 40_000
    assert edges < 2000
    assert any(finding.code == "xid-79" for finding in log.chain.findings), "the gravest are kept"


def test_what_was_seen_first_on_each_device_survives_hours_of_repeats() -> None:
    log = Log()
    devices = [f"0000:{0x38 + number:02x}:00" for number in range(8)]
    for device in devices:
        log.says("74, NVLink: fatal error detected on link 14", 0, device)
    for minute in range(1, 200):
        for device in devices:
            log.says(
                ("74, NVLink: fatal", "119, Timeout", "46, GPU stopped")[minute % 3], 61 * minute, device
            )

    kept = log.chain.findings
    assert len(kept) == FINDINGS_MAX
    assert [finding.sequence for finding in kept[:8]] == list(range(1, 9)), "the first of each device"
    assert kept[-1].sequence == log.sequence, "and the last"
    assert log.counted == 200 * 8


def test_a_tenants_flood_never_pushes_out_a_lost_device() -> None:
    log = Log()
    log.says("79, GPU has fallen off the bus.", 0)
    for number in range(500):
        log.says("13, pid=1, name=p, Graphics", 100 + 61 * number, device=f"0000:{number % 200:02x}:00")

    assert "xid-79" in [finding.code for finding in log.chain.findings]


def test_a_new_boot_drops_the_findings_of_the_old() -> None:
    log = Log()
    log.says("79, GPU has fallen off the bus.", 0)

    assert log.chain.new_boot("another-boot") is Change.EDGE
    assert log.chain.findings == []


def test_what_another_boot_published_is_not_restored() -> None:
    log, later = Log(), Log("11111111-0000-4000-8000-000000000000")
    log.says("79, GPU has fallen off the bus.", 0)

    later.chain.restore(log.chain.findings, [])

    assert later.chain.findings == []


def test_a_restart_of_the_agent_goes_on_counting() -> None:
    log, restarted = Log(), Log()
    log.says("119, Timeout", 0)
    restarted.chain.restore(log.chain.findings, log.chain.folded)
    restarted.sequence = log.sequence
    restarted.says("119, Timeout", 1)

    assert (restarted.only.id, restarted.only.count) == (log.only.id, 2)


def test_an_agent_that_reads_lines_again_after_its_restart_folds_them_as_it_did_before() -> None:
    """It has published its findings with the second line. Somebody may have answered the fault after the last
    line."""
    log, restarted = Log(), Log()
    for at_s in (0, 3):
        log.says("79, GPU has fallen off the bus.", at_s)
    restarted.chain.restore(log.chain.findings, log.chain.folded)
    restarted.sequence = log.sequence
    for at_s in (6, 9):
        assert log.says("79, GPU has fallen off the bus.", at_s) is Change.COUNT

    for at_s in (6, 9):
        restarted.says("79, GPU has fallen off the bus.", at_s)

    assert restarted.chain.findings == log.chain.findings


LINES = st.tuples(
    st.sampled_from(
        [
            "13, p",
            "45, p",
            "48, p",
            "63, p",
            "79, p",
            "94, p",
            "149, p",
            "45, x caused by previous Xid 149",
            "154, GPU recovery action changed from 0x0 (None) to 0x1 (R)",
            "154, GPU recovery action changed from 0x1 (R) to 0x0 (None)",
        ]
    ),
    st.floats(0, 90),
    st.sampled_from(["0000:38:00", "0000:dc:00"]),
)


@settings(deadline=None)  # the machine may be busy
@given(st.lists(LINES, max_size=60))
def test_no_line_is_lost_and_no_id_comes_twice(lines: list[tuple[str, float, str]]) -> None:
    log, at_s, clears = Log(), 0.0, 0
    for text, after_s, device in lines:
        at_s += after_s
        clears += text.endswith("0x0 (None)")
        log.says(text, at_s, device)

    ids = [finding.id for finding in log.chain.findings]
    assert log.counted == len(lines) - clears
    assert len(ids) == len(set(ids)) <= FINDINGS_MAX


@settings(deadline=None)  # the machine may be busy
@given(st.lists(LINES, max_size=60))
def test_the_same_lines_make_the_same_findings(lines: list[tuple[str, float, str]]) -> None:
    runs = []
    for _ in range(2):
        log, at_s = Log(), 0.0
        for text, after_s, device in lines:
            at_s += after_s
            log.says(text, at_s, device)
        runs.append((log.chain.findings, log.chain.folded))

    assert runs[0] == runs[1]


def test_a_verdict_is_not_lost_in_a_finding_whose_class_takes_no_node_out() -> None:
    """Xid 61 has the class unknown. If the verdict raised this finding, its class would stay unknown, and the
    dead GPU would stay in service."""
    log = Log()
    log.says("61, pid=1, name=p, something", 0)
    log.says("154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", 1)

    assert [(f.code, f.fault, f.severity) for f in log.chain.findings] == [
        ("xid-61", Fault.UNKNOWN, Severity.PENDING),
        ("xid-154", Fault.DEVICE_RESET, Severity.FATAL),
    ]


def test_a_program_that_provokes_a_context_switch_timeout_hides_no_verdict() -> None:
    log = Log()
    log.says("109, pid=1, name=p, Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005", 0)
    log.says("154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", 1)

    assert [(f.origin, f.fault) for f in log.chain.findings] == [
        (Origin.TENANT, Fault.APPLICATION),
        (Origin.DRIVER, Fault.DEVICE_RESET),
    ]


def test_a_graver_line_that_names_a_weaker_one_as_its_cause_stands_by_itself() -> None:
    log = Log()
    log.says("145, RLW_RSPCOL Nonfatal XC0 i0 Link 00 (0x00000005 0x00000001 0x0)", 0)
    log.says(
        "95, pid=7062, Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No caused by previous Xid 145", 1
    )

    assert [f.severity for f in log.chain.findings] == [Severity.INFO, Severity.FATAL]


def lockups(*at_s: float) -> Chain:
    """Returns a chain with lines about a processor that was held up, at these seconds."""
    chain, rules = Chain(ChainSettings(), "boot"), KernelRules()
    for sequence, second in enumerate(at_s):
        text = f"watchdog: BUG: soft lockup - CPU#{sequence} stuck for 22s! [python3:4711]"
        line = KernelLine(
            sequence=sequence, at=datetime(2026, 11, 23, tzinfo=UTC) + timedelta(seconds=second), text=text
        )
        draft = rules.read(line, HostFacts())
        assert draft is not None
        chain.add(draft, line)
    return chain


@pytest.mark.parametrize(
    ("at_s", "severity"),
    [
        ((0,), Severity.INFO),
        ((0, 0, 0, 1, 1, 2), Severity.INFO),
        ((0, 25, 50), Severity.INFO),
        ((0, 60, 120), Severity.SUSPECT),
        ((0, 1700, 3500), Severity.SUSPECT),
        ((0, 1700, 3700), Severity.INFO),
        ((120, 60, 0), Severity.SUSPECT),
    ],
    ids=[
        "one",
        "all at once",
        "one that lasts",
        "three",
        "in an hour",
        "in more than an hour",
        "a clock set back",
    ],
)
def test_lockups_that_come_again_and_again_make_the_node_suspect(
    at_s: tuple[float, ...], severity: Severity
) -> None:
    assert lockups(*at_s).findings[-1].severity is severity
