"""A pytest plugin (`-p tests.mutants.reached_tests`): writes as JSON to the file REKINDLE_MUTANTS_REACHED in
which tests each mutant of the table would have decided otherwise. No other test can notice the mutant. If
REKINDLE_MUTANTS_ONLY is set, only mutants whose name contains it are watched, because fewer mutants are
quicker to watch."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from tests.mutants.tracing import differing, sites

FILE, ONLY = "REKINDLE_MUTANTS_REACHED", "REKINDLE_MUTANTS_ONLY"
_PLACES = sites(os.environ.get(ONLY, ""))
_REACHED: dict[str, list[str]] = {name: [] for name in _PLACES}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with differing(_PLACES) as names:
        answer = yield
    for name in names:
        _REACHED[name].append(item.nodeid)
    return answer


def pytest_sessionfinish() -> None:
    Path(os.environ[FILE]).write_bytes(msgspec.json.encode(_REACHED))
