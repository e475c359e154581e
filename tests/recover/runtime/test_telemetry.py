"""Tests what the controller's log may contain."""

from __future__ import annotations

import json

import pytest
import structlog

from recover.runtime.telemetry import configure_logs


def test_an_errors_log_line_names_where_it_happened_and_shows_no_local_variable(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tenants_log = "step 12 password=hunter2"
    configure_logs()
    try:
        tenants_log[0].index("x")
    except ValueError:
        structlog.get_logger("test").exception("look failed", loop="triage")
    finally:
        structlog.reset_defaults()

    line = json.loads(capsys.readouterr().err)
    assert line["exception"][0]["frames"][0]["filename"].endswith("test_telemetry.py")
    assert "hunter2" not in json.dumps(line)
