"""Judges one line of the kernel log or of a container's log, or one sample of the node: does it show a fault,
a state, a step, a checkpoint?

In: lines, samples and catalogue rows.
Out: drafts of findings, observations of states, candidates for steps, checkpoints and errors.
Touches: nothing: pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from detectors.catalog.tables import Table, UserRows
from detectors.rules import (
    driver,
    gpu_driver_lines,
    host_lines,
    host_memory_lines,
    machine_check,
    network_lines,
    oom_lines,
    pcie_lines,
    storage_lines,
    sxid_lines,
    xid_lines,
)
from detectors.rules.base import Rule, is_packet
from detectors.rules.facts import Draft, HostFacts, KernelLine
from detectors.wire.contract import Family

__all__ = ["RULES", "KernelRules", "families", "tables", "wants"]

RULES: tuple[Rule[Any], ...] = (
    xid_lines.RULE,
    driver.RULE,
    gpu_driver_lines.RULE,
    sxid_lines.RULE,
    network_lines.RULE,
    pcie_lines.RULE,
    machine_check.RULE,
    host_memory_lines.RULE,
    storage_lines.RULE,
    oom_lines.RULE,
    host_lines.RULE,
)
"""One entry for each file that reads lines of the kernel log. For each line of the log the agent asks the
rules in this order, and takes the first draft. If two rules can match the same line, the rule that matches
fewer lines comes first. Two rules may list the same head."""


class KernelRules:
    """The registered rules, each with its catalogue."""

    def __init__(self, user: UserRows | None = None) -> None:
        """Raises `detectors.text.strict.BadValueError` for a bad row of the package's own files, and
        `ValueError` if two rules read one table."""
        _demand_distinct(RULES)
        self._rules = [(rule, rule.catalog(user or UserRows())) for rule in RULES]

    def read(self, line: KernelLine, host: HostFacts) -> Draft | None:
        """Returns the first draft that a rule makes of the line, in the order of `RULES`; None if no rule
        makes one."""
        for rule, catalog in self._rules:
            if line.text.startswith(rule.heads):
                draft = rule.match(line, host, catalog)
                if draft is not None and not is_packet(line.text):
                    return draft
        return None


def _demand_distinct(rules: Sequence[Rule[Any]]) -> None:
    """Raises ValueError if two rules read one table. Otherwise the rows of one driver would be checked
    against the heads of the other driver, and the error would blame the rows."""
    by_table: dict[str, list[str]] = {}
    for rule in rules:
        for table in rule.tables:
            by_table.setdefault(table.name, []).append(rule.name)
    for table_name, names in by_table.items():
        if len(names) > 1:
            raise ValueError(
                f"RULES: two rules read the table [[{table_name}]]: {' and '.join(names)}; expected a table "
                "of its own for each rule (sentence_rule takes it from `file`)"
            )


def wants(text: str) -> bool:
    """Whether any rule may read a line with this beginning. Most kernel lines go no further, so the check
    must be cheap."""
    for rule in RULES:  # noqa: SIM110  any() takes three times as long
        if text.startswith(rule.heads):
            return True
    return False


def families() -> list[Family]:
    """Returns the families of the registered rules, which the agent reads from the kernel log."""
    return [family for family in Family if any(rule.family is family for rule in RULES)]


def tables() -> tuple[Table[Any], ...]:
    """Returns the tables of the rules, which a user's file may extend."""
    return tuple(table for rule in RULES for table in rule.tables)
