"""Decides which tests run. Tests that need a real control plane run if REKINDLE_CONTROL_PLANE=1, and then
fail if there is none. Tests that need real nodes run if REKINDLE_REAL_NODES=1, and tests that take minutes
run if their own variable is 1. Other tests of these kinds are deselected, and the last line of pytest
counts them."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.control_plane.build import cached
from tests.control_plane.jobset_controller import jobset_controller
from tests.control_plane.operator import training_operator
from tests.control_plane.plane import ControlPlane, started

# A busy machine is slow, which is no fault of the code.
settings.register_profile("rekindle", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rekindle")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if not _is_asked_for(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _is_asked_for(item)]


def _is_asked_for(item: pytest.Item) -> bool:
    needs = {mark.args[0] for mark in item.iter_markers("on_request")}
    if item.get_closest_marker("control_plane"):
        needs.add("REKINDLE_CONTROL_PLANE")
    if item.get_closest_marker("real_nodes"):
        needs.add("REKINDLE_REAL_NODES")
    return all(os.environ.get(name) == "1" for name in needs)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the complaints of the control plane's programs to the report of a failed test."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for used in item.funcargs.values():
            if isinstance(used, ControlPlane):
                report.sections.append(("Control plane", used.troubles()))
    return report


@pytest.fixture(autouse=True)
def logs_of_its_own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Makes no logger keep its configuration. A command that a test runs logs to that test's standard
    error, which is closed when the test ends, and a module's logger would keep it."""
    set_up = structlog.configure
    monkeypatch.setattr(
        structlog, "configure", lambda **words: set_up(**words | {"cache_logger_on_first_use": False})
    )
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def api_server() -> Iterator[ControlPlane]:
    """Yields a real API server to which nothing else writes: every object in it was made by the tests."""
    with started(cached(), controllers=False) as plane:
        yield plane


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """Yields an API server with controller-manager, scheduler and KWOK."""
    with started(cached(), controllers=True) as plane:
        yield plane


@pytest.fixture(scope="session")
def training(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Yields the control plane with the training-operator, which runs PyTorchJobs, PaddleJobs and TFJobs."""
    with training_operator(cached(), control_plane):
        yield control_plane


@pytest.fixture(scope="session")
def jobsets(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Yields the control plane with the JobSet controller, which runs JobSets."""
    with jobset_controller(cached(), control_plane):
        yield control_plane
