"""Generates the page docs/reference/node-signals.md, from recover/policy/node_signals.toml."""

from __future__ import annotations

from collections.abc import Iterator

from recover.model import SignalKind
from recover.policy.node_signals import PackagedRow, left_out, packaged_signals
from tools.docs.structs import one_line

__all__ = ["node_signals_page"]

_HEAD = """\
# Signals of other controllers

Generated from `recover/policy/node_signals.toml` by `make docs`. [Other detectors](../other-detectors.md)
says which effects a signal has, and how you change or add a row.
"""
_LEFT_OUT = """\
## Left out

Rekindle does not read these signals of the same projects. Your own row can add each of them.

| name | kind | by | reason | source |
|---|---|---|---|---|"""
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
    lines += [_LEFT_OUT, *_left_out()]
    return "\n".join(lines).rstrip() + "\n"


def _rows(rows: tuple[PackagedRow, ...]) -> Iterator[str]:
    for row in rows:
        values = ", ".join(f"`{value}`" for value in row.values) or "any"
        if row.ahead_s:
            values = f"a Unix time: from {row.ahead_s / 3600:g} h before that time"
        yield f"| `{row.name}` | {values} | {one_line(row.by)} | {row.fault} | {one_line(row.source)} |"


def _left_out() -> Iterator[str]:
    for one in left_out():
        for name in one.names:
            cells = (f"`{name}`", one.kind, *map(one_line, (one.by, one.why, one.source)))
            yield f"| {' | '.join(cells)} |"
