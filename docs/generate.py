"""Writes what is generated from the code: the pages of docs/reference, the agent's catalogue of the lines
that recipes look for, and what the chart says of its values. `make docs` does it; a test fails when one is
stale."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import msgspec

import detectors.catalog
import detectors.metrics
import detectors.settings
import recover.settings
import recover.telemetry
from docs import chart
from docs.recipes import recipes_page
from docs.signatures import signatures_file
from docs.structs import field_name, fields_of, one_line
from recover.reasons import reference

REFERENCE = Path(__file__).parent / "reference"
CATALOGUE = Path(detectors.catalog.__file__).parent


_ALERTS = """
## Known issues as alerts

`rekindle_log_signature_total` has one series for each recipe that looks for lines, at 0 before the first
one, so that `rate` sees the first line, too. It tells the agent's node, and no pod. Of the figures in a
line only sizes are compared with each other, and only for the built-in recipes: what a recipe asks of the
job's requests, of the node, or of a version is decided in the controller. Namespaces in
`logs.excluded_namespaces` are not read.

Where Paddle exports `paddle_gpu_malloc_failed_total`, either of the two tells that its allocator is in
conflict with a virtual GPU:

```yaml
- alert: GPUAllocConflict
  expr: >-
    rate(rekindle_log_signature_total{signature="paddle-autogrow-oom"}[5m]) > 0
    or rate(paddle_gpu_malloc_failed_total[5m]) > 0
  labels:
    severity: critical
  annotations:
    summary: GPU Memory Allocation Conflict Alert
```
"""


def pages() -> dict[Path, str]:
    """Every generated file and its text."""
    return {
        REFERENCE / "reasons.md": reference(),
        REFERENCE / "settings.md": _settings(),
        REFERENCE / "metrics.md": _metrics(),
        REFERENCE / "recipes.md": recipes_page(),
        CATALOGUE / "signatures.toml": signatures_file(),
        chart.CHART / "README.md": chart.readme(),
        chart.CHART / "values.schema.json": chart.schema(),
    }


def _metrics() -> str:
    lines = [
        "# Metrics",
        "",
        "Generated from `recover/telemetry.py` and `detectors/metrics.py` by `make docs`. Both serve",
        "`/metrics` in the Prometheus format, beside `/healthz` and `/readyz`.",
        "",
        "## The controller",
        "",
        "| metric | type | meaning |",
        "|---|---|---|",
    ]
    for family in recover.telemetry.Metrics().registry.collect():
        suffix = "_total" if family.type == "counter" else ""
        lines.append(f"| `{family.name}{suffix}` | {family.type} | {family.documentation} |")
    lines += ["", "## The agent", "", "| metric | type | labels | meaning |", "|---|---|---|---|"]
    for row in detectors.metrics.TABLE:
        labels = ", ".join(f"`{label}`" for label in row.labels)
        lines.append(f"| `{row.name}` | {row.kind} | {labels} | {row.help} |")
    return "\n".join(lines) + "\n" + _ALERTS


def _settings() -> str:
    lines = [
        "# Settings",
        "",
        "Generated from `recover/settings.py` and `detectors/settings.py` by `make docs`. A settings file is",
        "TOML, one table for each group; `--set GROUP.FIELD=VALUE` overrides one field. An unknown field is",
        "refused. A name that ends in `_s` is in seconds, `_bytes` in bytes, `_percent` in percent.",
    ]
    for title, module in (("The controller", recover.settings), ("The agent", detectors.settings)):
        lines += ["", f"## {title}", "", *_groups(module)]
    return "\n".join(lines).rstrip() + "\n"


def _groups(module: ModuleType) -> Iterator[str]:
    """The settings struct first, as the top level of the file, then its groups."""
    source = ast.parse(inspect.getsource(module))
    classes = {node.name: node for node in source.body if isinstance(node, ast.ClassDef) and fields_of(node)}
    (root,) = (name for name in classes if name.endswith("Settings"))
    tables = {
        str(field.annotation and ast.unparse(field.annotation)): field_name(field)
        for field, _ in fields_of(classes[root])
    }
    for name in [root, *(n for n in tables if n in classes)]:
        yield f"### {'Top level' if name == root else f'`[{tables[name]}]`'}"
        yield ""
        if text := ast.get_docstring(classes[name]):
            yield one_line(text)
            yield ""
        struct = getattr(module, name)
        defaults = {f.name: msgspec.json.encode(f.default).decode() for f in msgspec.structs.fields(struct)}
        yield "| field | default | meaning |"
        yield "|---|---|---|"
        for field, meaning in fields_of(classes[name]):
            if ast.unparse(field.annotation) not in classes:
                default = defaults[field_name(field)]
                yield f"| `{field_name(field)}` | `{default}` | {one_line(meaning)} |"
        yield ""


if __name__ == "__main__":
    REFERENCE.mkdir(exist_ok=True)
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
