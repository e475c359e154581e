"""`python -m tests.chart.promtool`: Prometheus' own promtool checks the chart's alerts and plays their cases.

It also parses the queries of the dashboard and the runbooks. promtool is built once, from Go's modules, in
some five minutes, so it is not part of the tests that always run: those compare the expressions with the
metrics that exist (test_alerts.py).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from tests.chart.helm import CHART
from tests.chart.promql import panel_queries, runbook_queries
from tests.control_plane.build import BuildError, Part, build, cached

__all__ = ["CASES", "RULES", "main"]

HERE = Path(__file__).parent
RULES = CHART / "files" / "alerts" / "rules.yaml"
CASES = HERE / "alert_cases.yaml"
COMMAND = "python -m tests.chart.promtool"
PARTS = (
    Part(
        "promtool",
        "github.com/prometheus/prometheus",
        {"promtool": "github.com/prometheus/prometheus/cmd/promtool"},
        wrapper=HERE / "modules" / "promtool",
        tags="remove_all_sd",
    ),
)


def main() -> int:
    """Runs promtool. Returns 1 if a rule is wrong, a case ends in another way, or promtool cannot be
    built."""
    try:
        build(PARTS)
        promtool = cached(PARTS, COMMAND).path("promtool")
    except BuildError as error:
        print(f"{COMMAND}: {error}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        queries = Path(folder) / "queries.yaml"
        queries.write_text(_as_rules([*panel_queries(), *runbook_queries()]), encoding="utf-8")
        checks = (
            ["check", "rules", "--lint=all", "--lint-fatal", str(RULES)],
            ["check", "rules", "--lint=none", str(queries)],
            ["test", "rules", str(CASES)],
        )
        failed = [subprocess.run([promtool, *check], check=False).returncode for check in checks]
    return int(any(failed))


def _as_rules(queries: list[tuple[str, str]]) -> str:
    """Returns the queries as rules, because promtool checks expressions in rules."""
    rules = [{"record": f"query:{number}", "expr": query} for number, (_, query) in enumerate(queries)]
    return yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]})


if __name__ == "__main__":
    raise SystemExit(main())
