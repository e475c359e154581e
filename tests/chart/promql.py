"""Reads the expressions of alerts and panels well enough to compare them with Rekindle's metrics.

This is no parser of PromQL: `python -m tests.chart.promtool` has the real one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from detectors.service.gpu_metrics import GPU_TABLE
from detectors.service.metrics import TABLE
from tools.docs.dashboard import PANELS, Panel
from tools.docs.generate import controller_metrics

__all__ = ["RUNBOOKS", "SCRAPED", "matched", "panel_queries", "runbook_queries", "wrong"]

RUNBOOKS = Path(__file__).parents[2] / "docs" / "runbooks"
SCRAPED = frozenset({"instance", "job", "namespace", "node", "pod"})
"""Labels that a scrape adds."""
_WORDS = frozenset(
    {
        "absent",
        "and",
        "avg",
        "bottomk",
        "by",
        "count",
        "histogram_quantile",
        "increase",
        "max",
        "or",
        "rate",
        "scalar",
        "sum",
    }
    | {"topk", "vector"}
)
_PARTS = ("_bucket", "_count", "_sum")
_TOKEN = re.compile(
    r'"[^"]*"|\[\d+[smhd]\]|[A-Za-z_:][\w:]*|\d+(?:\.\d+)?|=~|!~|!=|==|>=|<=|[-+*/%^(){},=<>]'
)
_PAIRS = {")": "(", "}": "{"}


def panel_queries() -> list[tuple[str, str]]:
    """Returns title and expression of each query of a panel."""
    panels = (panel for panel in PANELS if isinstance(panel, Panel))
    return [(panel.title, expression) for panel in panels for expression, _ in panel.queries]


def runbook_queries() -> list[tuple[str, str]]:
    """Returns the alert's name and the expression of each query in a runbook."""
    pages = {page.stem: page.read_text(encoding="utf-8") for page in sorted(RUNBOOKS.iterdir())}
    found = {name: re.findall(r"```promql\n(.*?)```", page, re.DOTALL) for name, page in pages.items()}
    return [(name, expression) for name, expressions in found.items() for expression in expressions]


def wrong(expression: str) -> Iterator[str]:
    """Yields what does not match any metric, label or function of Rekindle, and what cannot be read at
    all."""
    if left := _TOKEN.sub("", expression).strip():
        yield f"cannot be read: {left}"
    yield from _unbalanced(expression)
    labels = _labels()
    bare = re.sub(r'"[^"]*"|\[\w+\]', "", expression)
    named = {word for word in re.findall(r"[A-Za-z_:][\w:]*", bare) if word not in _WORDS}
    metrics = {word for word in named if word.startswith("rekindle_")}
    if not metrics:
        yield "no metric of ours"
    for metric in metrics - labels.keys():
        yield f"no metric: {metric}"
    known = SCRAPED.union(*(labels.get(metric, ()) for metric in metrics))
    for word in named - metrics - known:
        yield f"neither a label of its metrics nor a function: {word}"
    for metric, asked in re.findall(r"(\w+)\{([^}]*)\}", expression):
        for label in re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"', asked):
            if label not in SCRAPED.union(labels.get(metric, ())):
                yield f"{metric} has no label {label}"


def matched(expression: str, label: str) -> set[str]:
    """Returns the values of a label that the expression selects."""
    asked = re.findall(rf'\b{label}\s*(?:=~|!~|!=|=)\s*"([^"]*)"', expression)
    return {value for values in asked for value in values.split("|")}


def _unbalanced(expression: str) -> Iterator[str]:
    opened: list[str] = []
    for token in _TOKEN.findall(expression):
        if token in _PAIRS.values():
            opened.append(token)
        elif token in _PAIRS and (not opened or opened.pop() != _PAIRS[token]):
            yield f"{token} closes nothing"
    if opened:
        yield f"{opened[-1]} is not closed"


def _labels() -> Mapping[str, frozenset[str]]:
    """Returns the labels of each series that a scrape may find."""
    found: dict[str, frozenset[str]] = {}
    for metric in (*controller_metrics(), *TABLE, *GPU_TABLE):
        if metric.kind == "histogram":
            found |= {metric.name + part: frozenset({*metric.labels, "le"}) for part in _PARTS}
        else:
            found[metric.name] = frozenset(metric.labels)
    return found
