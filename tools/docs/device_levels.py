"""Generates the page docs/reference/device-levels.md, from recover/policy/device_levels.toml."""

from __future__ import annotations

from collections.abc import Iterator

from recover.model.device_reports import Part
from recover.policy.device_levels import packaged_levels
from tools.docs.structs import one_line

__all__ = ["device_levels_page"]

_HEAD = """\
# Levels that device plugins report

Generated from `recover/policy/device_levels.toml` by `make docs`. [Other detectors](../other-detectors.md)
says where Rekindle reads these levels, which effects they have, and how you raise a level.

The column *after* says how long a report must last before it makes its node a suspect.
"""
_TITLES = {
    Part.CHIP: "Chips (Ascend device plugin)",
    Part.SWITCH: "Switches between chips (Ascend device plugin)",
    Part.NODE: "Other parts of the server (NodeD)",
}
_TABLE = ("| level | severity | after | class | meaning | source |", "|---|---|---|---|---|---|")


def device_levels_page() -> str:
    lines = [_HEAD]
    for part in Part:
        lines += [f"## {_TITLES[part]}", "", *_TABLE, *_levels(part), ""]
    lines += [
        "## Devices that are not allocatable (Iluvatar)",
        "",
        "| resource | severity | after | class | meaning | source |",
        _TABLE[1],
        *_resources(),
        "",
        "## Fault codes of Ascend chips",
        "",
        "Rekindle acts on a level above `suspect` only for these codes. Source: MindCluster,",
        "`kg-config.json` of ascend-faultdiag (meaning) and `faultCode.json` of ascend-device-plugin",
        "(level as shipped).",
        "",
        "| code | class | meaning |",
        "|---|---|---|",
        *(f"| `{row.code}` | {row.fault} | {one_line(row.meaning)} |" for row in packaged_levels().code),
    ]
    return "\n".join(lines) + "\n"


def _levels(part: Part) -> Iterator[str]:
    for row in packaged_levels().level:
        if row.part is part:
            yield _row(row.name, row.severity, row.settles_s, row.fault, row.meaning, row.source)


def _resources() -> Iterator[str]:
    for row in packaged_levels().resource:
        yield _row(row.name, row.severity, row.settles_s, row.fault, row.meaning, row.source)


def _row(name: str, severity: str, settles_s: float, fault: str, meaning: str, source: str) -> str:
    settles = f"{settles_s:g} s" if settles_s else ""
    return f"| `{name}` | {severity} | {settles} | {fault} | {one_line(meaning)} | {one_line(source)} |"
