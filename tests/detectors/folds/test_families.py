"""The families that an agent reports as read follow from the registered rules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from detectors import rules
from detectors.folds.core import AgentCore
from detectors.service.settings import AgentSettings
from detectors.wire.contract import Coverage, CoverageState, Family, Source

NOW = datetime(2026, 11, 22, 9, 30, tzinfo=UTC)


def covered(core: AgentCore) -> dict[Source, Coverage]:
    return {row.source: row for row in core.status(NOW).coverage}


def test_every_rule_names_its_family_and_no_other_is_claimed() -> None:
    assert set(rules.families()) == {rule.family for rule in rules.RULES}
    assert Family.GPU_XID in rules.families()


def test_the_kernel_log_is_covered_for_the_families_of_the_rules_only() -> None:
    core = AgentCore(AgentSettings(), boot_id="b")
    core.cover(Source.KMSG, CoverageState.COVERED, NOW)
    core.cover(Source.NVML, CoverageState.COVERED, NOW)

    assert covered(core)[Source.KMSG].families == rules.families()
    assert covered(core)[Source.NVML].families == [Family.GPU_HEALTH]


def test_an_agent_that_reads_more_than_its_predecessor_has_read_that_only_from_now_on() -> None:
    before = AgentCore(AgentSettings(), boot_id="b")
    before.cover(Source.KMSG, CoverageState.COVERED, NOW - timedelta(hours=1))
    before.passed(7)
    older = before.status(NOW)
    (row,) = older.coverage
    older = msgspec.structs.replace(older, coverage=[msgspec.structs.replace(row, families=[])])
    after = AgentCore(AgentSettings(), boot_id="b")

    after.restore(older)
    after.cover(Source.KMSG, CoverageState.COVERED, NOW)

    assert covered(after)[Source.KMSG].since == NOW


def test_an_agent_of_the_same_rules_goes_on_without_a_gap() -> None:
    before = AgentCore(AgentSettings(), boot_id="b")
    before.cover(Source.KMSG, CoverageState.COVERED, NOW - timedelta(hours=1))
    before.passed(7)
    after = AgentCore(AgentSettings(), boot_id="b")

    after.restore(before.status(NOW))
    after.cover(Source.KMSG, CoverageState.COVERED, NOW)

    assert covered(after)[Source.KMSG].since == NOW - timedelta(hours=1)
