"""The kubelet's PodResources: requests over gRPC, by a child process that may be lost."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from detectors.commands import extras
from detectors.folds.holders import Claimed, HeldDevices
from detectors.service.settings import PodResources as Settings
from detectors.sources.pod_resources import PodResources
from tests.detectors.sources.kubelet import REAL_ANSWER, SOCKET, answer, kubelet, pod

QUICK = Settings(deadline_s=20, pause_s=0.05, retry_s=0.1)


class Heard:
    """A sink that records what it gets."""

    def __init__(self) -> None:
        self.held: dict[str, dict[str, list[str]]] = {}
        self.claims: dict[str, tuple[Claimed, ...]] = {}
        self.there: frozenset[str] = frozenset()
        self.answers = 0
        self.state: bool | None = None
        self.why = ""
        self.news = asyncio.Event()

    def listed(self, pods: Iterable[HeldDevices], there: frozenset[str]) -> None:
        pods = list(pods)
        self.held = {held.pod.uid: held.given.devices for held in pods}
        self.claims = {held.pod.uid: held.given.claims for held in pods if held.given.claims}
        self.there = there
        self.answers += 1

    def covered(self) -> None:
        self.state, self.why = True, ""
        self.news.set()

    def blind(self, why: str) -> None:
        self.state, self.why = False, why
        self.news.set()

    async def until(self, holds: Callable[[], bool], timeout_s: float = 30.0) -> None:
        async with asyncio.timeout(timeout_s):
            while not holds():
                self.news.clear()
                await self.news.wait()


@pytest.fixture
def root() -> Iterator[Path]:
    """Yields a host root with a short name, because the path of a socket has 107 bytes at most."""
    folder = Path(tempfile.mkdtemp(prefix="kubelet-"))
    (folder / "var/log/pods").mkdir(parents=True)
    yield folder
    shutil.rmtree(folder)


def log_folder(root: Path, name: str, uid: str, namespace: str = "ml") -> Path:
    folder = root / f"var/log/pods/{namespace}_{name}_{uid}"
    folder.mkdir()
    return folder


@asynccontextmanager
async def asking(root: Path, settings: Settings = QUICK) -> AsyncIterator[tuple[PodResources, Heard]]:
    heard = Heard()
    source = PodResources(root, heard, settings)
    task = asyncio.create_task(source.run())
    try:
        yield source, heard
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_kubelets_own_bytes_are_understood(root: Path) -> None:
    log_folder(root, "llm-0", "uid-0")
    log_folder(root, "web", "uid-web", namespace="default")
    with kubelet(root) as played:
        played.answer = REAL_ANSWER
        async with asking(root) as (_, heard):
            await heard.until(lambda: heard.state is True)

    assert heard.held == {"uid-0": {"nvidia.com/gpu": ["GPU-1", "GPU-2"]}}
    assert heard.claims == {"uid-0": (Claimed(driver="d", device="n"),)}
    assert heard.there == {"uid-0", "uid-web"}


async def test_it_is_asked_again_when_somebody_wishes_it_and_not_before(root: Path) -> None:
    log_folder(root, "llm-0", "uid-0")
    with kubelet(root) as played:
        played.answer = answer(pod("llm-0", "GPU-1"))
        async with asking(root) as (source, heard):
            await heard.until(lambda: heard.answers == 1)
            log_folder(root, "llm-1", "uid-1")
            played.answer = answer(pod("llm-0", "GPU-1"), pod("llm-1", "GPU-2"))
            await asyncio.sleep(0.3)
            assert played.calls == 1

            for _ in range(5):
                source.ask_again()
            await heard.until(lambda: heard.answers == 2)
            await asyncio.sleep(0.3)

    assert heard.held == {"uid-0": {"nvidia.com/gpu": ["GPU-1"]}, "uid-1": {"nvidia.com/gpu": ["GPU-2"]}}
    assert played.calls == 2


async def test_a_thousand_pods_are_no_trouble(root: Path) -> None:
    for number in range(1000):
        log_folder(root, f"p-{number}", f"uid-{number}")
    with kubelet(root) as played:
        played.answer = answer(*(pod(f"p-{number}", f"GPU-{number}") for number in range(1000)))
        async with asking(root) as (_, heard):
            await heard.until(lambda: heard.answers == 1)

    assert len(heard.held) == 1000
    assert heard.held["uid-999"] == {"nvidia.com/gpu": ["GPU-999"]}


async def test_a_pod_that_was_made_anew_is_the_one_whose_cgroup_is_there(root: Path) -> None:
    for uid in ("old", "new"):
        log_folder(root, "llm-0", uid)
    cgroups = root / "sys/fs/cgroup/kubepods"
    (cgroups / "podnew").mkdir(parents=True)
    with kubelet(root) as played:
        played.answer = answer(pod("llm-0", "GPU-1"))
        async with asking(root) as (source, heard):
            await heard.until(lambda: heard.answers == 1)
            assert heard.held == {"new": {"nvidia.com/gpu": ["GPU-1"]}}

            (cgroups / "podold").mkdir()
            source.ask_again()
            await heard.until(lambda: heard.answers == 2)

    assert heard.held == {}, "nobody can tell which of the two is meant"
    assert heard.there == {"old", "new"}


async def test_a_pod_that_comes_while_the_kubelet_answers_is_not_taken_for_its_namesake(root: Path) -> None:
    old = log_folder(root, "llm-0", "old")
    with kubelet(root) as played:
        played.goes_on.clear()
        played.answer = answer(pod("llm-0", "GPU-1"))
        async with asking(root) as (source, heard):
            async with asyncio.timeout(30):
                while played.calls == 0:
                    await asyncio.sleep(0.01)
            old.rmdir()
            log_folder(root, "llm-0", "new")
            played.goes_on.set()
            await heard.until(lambda: heard.answers == 1)
            assert heard.held == {}

            source.ask_again()
            await heard.until(lambda: heard.answers == 2)

    assert list(heard.held) == ["new"]


async def test_a_kubelet_that_hangs_is_given_up_and_told(root: Path) -> None:
    with kubelet(root) as played:
        played.goes_on.clear()
        begin_s = time.monotonic()
        async with asking(root, Settings(deadline_s=0.5, pause_s=0.05)) as (source, heard):
            await asyncio.wait_for(source.asked.wait(), 30)

    assert heard.state is False
    assert "0.5 s" in heard.why
    assert time.monotonic() - begin_s < 15


async def test_a_child_that_hangs_is_killed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "grpc.py").write_text(
        f"import os, pathlib, time\npathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))\n"
        "time.sleep(60)\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.getcwd()}")
    monkeypatch.setattr("detectors.sources.pod_resources._START_S", 2.0)
    with kubelet(root):
        async with asking(root, Settings(deadline_s=0.5)) as (source, heard):
            await asyncio.wait_for(source.asked.wait(), 30)

    assert "0.5 s" in heard.why
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_what_is_no_answer_is_told_and_the_next_good_one_counts(root: Path) -> None:
    log_folder(root, "llm-0", "uid-0")
    with kubelet(root) as played:
        played.answer = b"\xff\xfe no such message"
        async with asking(root) as (source, heard):
            await heard.until(lambda: heard.state is False)
            assert "PodResources v1" in heard.why

            played.answer = answer(pod("llm-0", "GPU-1"))
            source.ask_again()
            await heard.until(lambda: heard.state is True)

    assert list(heard.held) == ["uid-0"]


async def test_a_kubelet_without_the_service_is_called_too_old(root: Path) -> None:
    with kubelet(root) as played:
        played.knows_v1 = False
        async with asking(root) as (_, heard):
            await heard.until(lambda: heard.state is False)

    assert "Kubernetes 1.20" in heard.why


async def test_a_socket_that_appears_later_is_found(root: Path) -> None:
    async with asking(root) as (_, heard):
        await heard.until(lambda: heard.state is False)
        assert heard.why == f"{root / SOCKET}: {os.strerror(errno.ENOENT)}"
        with kubelet(root):
            await heard.until(lambda: heard.state is True)


async def test_a_socket_that_nobody_serves_is_told(root: Path) -> None:
    path = root / SOCKET
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as unserved:
        unserved.bind(str(path))
        async with asking(root) as (_, heard):
            await heard.until(lambda: heard.state is False)

    assert "UNAVAILABLE" in heard.why


async def test_without_grpcio_the_missing_package_is_named(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "grpc.py").write_text("raise ImportError('No module named grpc')\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.getcwd()}")
    with kubelet(root):
        async with asking(root) as (_, heard):
            await heard.until(lambda: heard.state is False)

    assert "grpcio" in heard.why
    assert extras.install("agent") in heard.why


async def test_switched_off_it_says_so_and_asks_nobody(root: Path) -> None:
    with kubelet(root) as played:
        async with asking(root, Settings(enabled=False)) as (source, heard):
            await asyncio.wait_for(source.asked.wait(), 5)

    assert (heard.state, played.calls) == (False, 0)
    assert "pod_resources.enabled" in heard.why
