"""A clone without the history lacks the version from which an upgrade begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chart import earlier


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_a_missing_commit_fails_in_continuous_integration_and_says_how_to_fetch_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ci: str, outcome: type[BaseException]
) -> None:
    missing = "0123456789012345678901234567890123456789"
    monkeypatch.setattr(earlier, "COMMIT", missing)
    monkeypatch.setenv("CI", ci)

    with pytest.raises(outcome, match=f"git fetch --depth=1 origin {missing}"):
        earlier.laid(tmp_path)
