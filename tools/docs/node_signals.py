"""The page docs/reference/node-signals.md, from recover/policy/node_signals.toml."""

from __future__ import annotations

from collections.abc import Iterator

from recover.model import SignalKind
from recover.policy.node_signals import PackagedRow, packaged_signals
from tools.docs.structs import one_line

__all__ = ["node_signals_page"]

_HEAD = """\
# Signals of other controllers

Generated from `recover/policy/node_signals.toml` by `make docs`. [Other detectors](../other-detectors.md)
says which effects a signal has, and how you change or add a row.
"""
_TITLES = {
    SignalKind.CONDITION: "Conditions",
    SignalKind.TAINT: "Taints",
    SignalKind.LABEL: "Labels",
}


def node_signals_page() -> str:
    lines = [_HEAD]
    for kind, rows in packaged_signals().items():
        lines += [
            f"## {_TITLES[kind]}",
            "",
            "| name | values | by | class | source |",
            "|---|---|---|---|---|",
        ]
        lines += [*_rows(rows), ""]
    return "\n".join(lines).rstrip() + "\n"


def _rows(rows: tuple[PackagedRow, ...]) -> Iterator[str]:
    for row in rows:
        values = ", ".join(f"`{value}`" for value in row.values) or "any"
        yield f"| `{row.name}` | {values} | {one_line(row.by)} | {row.fault} | {one_line(row.source)} |"
