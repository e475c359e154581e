"""Writes all files that are generated from the code: the pages of docs/reference, the agent's catalogue of
the lines that recipes look for, the chart's descriptions of its values, and the chart's permissions and
policies for `rekindle doctor`. `make docs` runs it; a test fails when a file is stale."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

import msgspec
from prometheus_client.metrics import MetricWrapperBase

import detectors.catalog
import detectors.service.metrics
import detectors.service.settings
import recover.doctor.installation
import recover.policy.settings
import recover.runtime.telemetry
from detectors.service.gpu_metrics import GPU_TABLE
from recover.api.reasons import reference
from tools.docs import admission, chart
from tools.docs.answers import answers_page, answers_schema
from tools.docs.catalogue import catalogue_page, family_pages
from tools.docs.dashboard import dashboard
from tools.docs.device_levels import device_levels_page
from tools.docs.first_errors import first_errors_page
from tools.docs.frameworks import frameworks_page
from tools.docs.node_signals import node_signals_page
from tools.docs.recipes import recipes_page
from tools.docs.shipped import shipped_file
from tools.docs.signatures import signatures_file
from tools.docs.structs import field_name, fields_of, one_line

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
CATALOGUE = Path(detectors.catalog.__file__).parent
DOCTOR = Path(recover.doctor.installation.__file__).parent


_ALERTS = """
## Known issues as alerts

`rekindle_log_signature_total` has one series for each recipe that looks for lines, at 0 before the first
line, so that `rate` also sees the first line. The metric does not name the pod that printed the line. The
chart's PodMonitor adds the label `node`, the node of the agent. Before the agent counts a line, it checks one
kind of condition: sizes within the line, and only for the built-in recipes. The controller checks all other
conditions of a recipe: the job's requests, the node, and versions. The agent does not read namespaces in
`logs.excluded_namespaces`.

If Paddle exports `paddle_gpu_malloc_failed_total`, an increase of either metric is a sign that Paddle's
allocator conflicts with a virtual GPU:

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
    """Returns every generated file and its text."""
    return {
        REFERENCE / "reasons.md": reference(),
        REFERENCE / "settings.md": _settings(),
        REFERENCE / "metrics.md": _metrics(),
        REFERENCE / "answers.md": answers_page(),
        REFERENCE / "answers.schema.json": answers_schema(),
        REFERENCE / "recipes.md": recipes_page(),
        REFERENCE / "node-signals.md": node_signals_page(),
        REFERENCE / "device-levels.md": device_levels_page(),
        REFERENCE / "xid.md": catalogue_page(),
        **{REFERENCE / name: page for name, page in family_pages().items()},
        REFERENCE / "frameworks.md": frameworks_page(),
        REFERENCE / "first-errors.md": first_errors_page(),
        CATALOGUE / "signatures.toml": signatures_file(),
        DOCTOR / "shipped.yaml": shipped_file(),
        chart.CHART / "README.md": chart.readme(),
        chart.CHART / "values.schema.json": chart.schema(),
        chart.CHART / "files" / "policies" / "warnings.yaml": admission.policies(),
        chart.CHART / "files" / "dashboards" / "rekindle.json": dashboard(),
        **chart.repair_templates(),
    }


def _metrics() -> str:
    lines = [
        "# Metrics",
        "",
        "Generated from `recover/runtime/telemetry.py` and `detectors/service/metrics.py` by `make docs`.",
        "Controller and agents serve `/metrics` in the Prometheus format, and `/healthz` and `/readyz`.",
        "",
        "## The controller",
        "",
        *_table_of_metrics(controller_metrics()),
        "",
        "## The agent",
        "",
        *_table_of_metrics(detectors.service.metrics.TABLE),
        "",
        "## GPUs",
        "",
        "The agent exports these metrics if `gpu_metrics.export` is set ([how](../monitoring.md#gpus)).",
        "",
        *_table_of_metrics(GPU_TABLE),
    ]
    return "\n".join(lines) + "\n" + _ALERTS


def controller_metrics() -> list[detectors.service.metrics.Metric]:
    """Returns the controller's metrics, in the form of the agent's table."""
    found = []
    for metric in vars(recover.runtime.telemetry.Metrics()).values():
        if isinstance(metric, MetricWrapperBase):
            (family,) = metric.describe()
            suffix = "_total" if family.type == "counter" else ""
            labels = tuple(metric._labelnames)
            found.append(
                detectors.service.metrics.Metric(
                    family.name + suffix, family.type, family.documentation, labels
                )
            )
    return found


def _table_of_metrics(metrics: Iterable[detectors.service.metrics.Metric]) -> Iterator[str]:
    yield "| metric | type | labels | meaning |"
    yield "|---|---|---|---|"
    for row in metrics:
        labels = ", ".join(f"`{label}`" for label in row.labels)
        yield f"| `{row.name}` | {row.kind} | {labels} | {row.help} |"


def _settings() -> str:
    lines = [
        "# Settings",
        "",
        "Generated from `recover/policy/settings.py` and `detectors/service/settings.py` by `make docs`.",
        "A settings file is TOML, one table for each group; `--set GROUP.FIELD=VALUE` overrides one field.",
        "Rekindle refuses an unknown field. A name that ends in `_s` is in seconds, `_bytes` in bytes,",
        "`_percent` in percent. A *note* is a finding of severity `info`: Rekindle takes no action for it.",
    ]
    for title, module in (
        ("The controller", recover.policy.settings),
        ("The agent", detectors.service.settings),
    ):
        lines += ["", f"## {title}", "", *_groups(module)]
    return "\n".join(lines).rstrip() + "\n"


def _groups(module: ModuleType) -> Iterator[str]:
    """Yields the section of each group: the settings struct first, as the top level of the file, then its
    groups."""
    source = ast.parse(inspect.getsource(module))
    classes = {node.name: node for node in source.body if isinstance(node, ast.ClassDef) and fields_of(node)}
    (root,) = (name for name in classes if name.endswith("Settings"))
    tables = dict(_tables(classes, root))
    for name in [root, *tables]:
        struct = getattr(module, name)
        defaults = {f.name: _default(f) for f in msgspec.structs.fields(struct)}
        rows = [
            f"| `{field_name(field)}` | `{defaults[field_name(field)]}` | {one_line(meaning)} |"
            for field, meaning in fields_of(classes[name])
            if ast.unparse(field.annotation) not in classes
        ]
        if not rows:
            continue
        yield f"### {'Top level' if name == root else f'`[{tables[name]}]`'}"
        yield ""
        if text := ast.get_docstring(classes[name]):
            yield one_line(text)
            yield ""
        yield from ["| field | default | meaning |", "|---|---|---|", *rows, ""]


def _tables(classes: dict[str, ast.ClassDef], name: str, path: str = "") -> Iterator[tuple[str, str]]:
    """Yields the struct of each group with the name of its table. A group within a group is `outer.inner`."""
    for field, _ in fields_of(classes[name]):
        inner = ast.unparse(field.annotation)
        if inner in classes:
            table = f"{path}{field_name(field)}"
            yield inner, table
            yield from _tables(classes, inner, f"{table}.")


def _default(field: msgspec.structs.FieldInfo) -> str:
    is_made = field.default_factory is not msgspec.NODEFAULT
    return msgspec.json.encode(field.default_factory() if is_made else field.default).decode()


if __name__ == "__main__":
    REFERENCE.mkdir(exist_ok=True)
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
