"""A pytest plugin that records every text which the product gives to the scenes; scenes.py runs it.

The plugin records the texts in the return values of the product's functions, the output of commands, and the
messages of errors. A test may move or assert something else: as long as it calls the same of the product, the
texts are the same. The plugin replaces functions in the test modules, so it is for that process alone.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

import msgspec
import pytest

from tests.golden.text import plain

_PRODUCT = ("recover", "detectors")
_DEPTH_MAX = 12
_told: dict[str, set[str]] = {}
"""Recorded texts by the name of the test function."""
_under_way: list[str] = []
_real_raises = pytest.raises
_real_readouterr = pytest.CaptureFixture.readouterr


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden-tap", help="The file that is written.")
    parser.addoption(
        "--golden-scenes", default="", help="The names of the tests that run; empty: all of them."
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Replaces the product's functions in the test modules. All modules are imported by then."""
    wanted = set(filter(None, config.getoption("--golden-scenes").split(",")))
    if wanted:
        items[:] = [item for item in items if _name(item) in wanted]
    pytest.raises = _raises  # type: ignore[assignment]
    pytest.CaptureFixture.readouterr = _readouterr  # type: ignore[method-assign,assignment]
    wrapped: dict[int, Callable[..., Any]] = {}
    for name, module in list(sys.modules.items()):
        if not name.startswith("tests."):
            continue
        for attribute, value in list(vars(module).items()):
            if isinstance(value, FunctionType) and value.__module__.partition(".")[0] in _PRODUCT:
                setattr(module, attribute, wrapped.setdefault(id(value), _tapped(value)))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _under_way[:] = [_name(item)]
    _told.setdefault(_name(item), set())
    yield
    _under_way.clear()


def pytest_sessionfinish(session: pytest.Session) -> None:
    kept = {name: sorted(lines) for name, lines in sorted(_told.items())}
    Path(session.config.getoption("--golden-tap")).write_bytes(msgspec.json.encode(kept))


def _name(item: pytest.Item) -> str:
    return str(getattr(item, "originalname", item.name))


def _record(value: Any, depth: int = 0) -> None:
    """Records every text in the value. A message is recorded together with its reason."""
    if isinstance(value, str):
        for name in _under_way:
            _told[name].update(plain(line) for line in value.splitlines() if " " in line.strip())
    elif depth > _DEPTH_MAX:
        return
    elif isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        if isinstance(reason := fields.get("reason"), str) and isinstance(said := fields.get("message"), str):
            _record(f"{reason}: {said}")
            del fields["message"]
        _record(fields, depth)
    elif isinstance(value, Mapping):
        for inner in value.values():
            _record(inner, depth + 1)
    elif isinstance(value, list | tuple | set | frozenset):
        for inner in value:
            _record(inner, depth + 1)


def _tapped(function: FunctionType) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            found = await function(*args, **kwargs)
            _record(found)
            return found

        return awaited
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def yielded(*args: Any, **kwargs: Any) -> Iterator[Any]:
            for found in function(*args, **kwargs):
                _record(found)
                yield found

        return yielded

    @functools.wraps(function)
    def returned(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        _record(found)
        return found

    return returned


@contextlib.contextmanager
def _raises(*args: Any, **kwargs: Any) -> Iterator[Any]:
    with _real_raises(*args, **kwargs) as caught:
        yield caught
    _record(str(caught.value))


def _readouterr(fixture: pytest.CaptureFixture[Any]) -> Any:
    found = _real_readouterr(fixture)
    for text in found:
        _record(text if isinstance(text, str) else "")
    return found
