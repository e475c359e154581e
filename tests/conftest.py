"""Which tests run: those that need a real control plane run when REKINDLE_CONTROL_PLANE=1 says so, and then
a missing one is a failure; those that need real nodes, when REKINDLE_REAL_NODES=1; those that take minutes,
when their own variable does. Otherwise they are deselected, and the last line of pytest counts them.
"""

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

# A busy machine is slow, and that is no property of the code.
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
    """With a test that failed stands what the programs of its control plane complained of."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for used in item.funcargs.values():
            if isinstance(used, ControlPlane):
                report.sections.append(("Control plane", used.troubles()))
    return report


@pytest.fixture(autouse=True)
def logs_of_its_own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A command that a test runs sets up its log on that test's standard error, which is closed when the test
    is over. A module's logger would keep it, so none keeps anything.
    """
    set_up = structlog.configure
    monkeypatch.setattr(
        structlog, "configure", lambda **words: set_up(**words | {"cache_logger_on_first_use": False})
    )
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def api_server() -> Iterator[ControlPlane]:
    """A real API server with nothing else that writes: what a test finds there, it has made itself."""
    with started(cached(), controllers=False) as plane:
        yield plane


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """API server, controller-manager, scheduler and KWOK."""
    with started(cached(), controllers=True) as plane:
        yield plane


@pytest.fixture(scope="session")
def training(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with the training-operator, which makes PyTorchJobs and PaddleJobs run."""
    with training_operator(cached(), control_plane):
        yield control_plane


@pytest.fixture(scope="session")
def jobsets(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with the JobSet controller, which makes JobSets run."""
    with jobset_controller(cached(), control_plane):
        yield control_plane
