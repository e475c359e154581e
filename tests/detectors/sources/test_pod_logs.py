"""Container logs: the lines of the runtime, and real files that come, grow, rotate and go."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors.rules.facts import PodRef
from detectors.service.metrics import Metrics
from detectors.service.settings import Logs
from detectors.sources import pod_logs
from detectors.sources.cgroups import Cgroups
from detectors.sources.cri import Joiner, parse_line
from detectors.sources.logs_followed import told
from detectors.sources.pod_logs import PodLogs

UID = "0b5a4f2e-1111-4222-8333-444455556666"
QUICK = Logs(ended_poll_s=0.02, read_pause_s=0.01)


def line(text: str, tag: str = "F", stream: str = "stdout") -> str:
    return f"2026-11-21T09:30:00.123456789Z {stream} {tag} {text}\n"


class Heard:
    def __init__(self) -> None:
        self.lines: list[tuple[int, str]] = []
        self.pods: set[str] = set()
        self.ended: list[int] = []
        self.removed: list[PodRef] = []
        self.coverage: list[str] = []
        self.open: set[str] = set()
        self.left: list[str] = []
        self.published: set[str] = set()
        self.why = ""
        self.news = asyncio.Event()

    def log_line(self, pod: PodRef, text: str, at: datetime) -> None:
        self.lines.append((pod.instance, text))
        self.pods.add(pod.uid)
        self.news.set()

    def pod_ended(self, pod: PodRef, at: datetime) -> None:
        self.ended.append(pod.instance)
        self.news.set()

    def pods_changed(self) -> None: ...

    def pod_removed(self, pod: PodRef) -> None:
        self.removed.append(pod)
        self.news.set()

    def pod_left(self, pod: PodRef) -> None:
        self.left.append(pod.uid)
        self.news.set()

    def is_silent(self, pod: PodRef) -> bool:
        return pod.uid not in self.published

    def is_open(self, pod: PodRef) -> bool:
        return pod.uid in self.open

    def scanned(self, left_out: frozenset[PodRef]) -> None:
        self.coverage.append("scanned")
        self.news.set()

    def covered(self, why: str, left_out: frozenset[str] = frozenset()) -> None:
        self.why, self.left_out = why, left_out
        self.news.set()

    def blind(self, why: str) -> None:
        self.coverage.append(why)
        self.news.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not holds():
                self.news.clear()
                await self.news.wait()


class Host:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.pods = root / "var/log/pods"
        self.pods.mkdir(parents=True)

    def folder(self, namespace: str = "train", uid: str = UID) -> Path:
        folder = self.pods / f"{namespace}_llm-0_{uid}" / "main"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def write(self, text: str, instance: int = 0, namespace: str = "train", uid: str = UID) -> None:
        with (self.folder(namespace, uid) / f"{instance}.log").open("a") as file:
            file.write(text)

    def cgroup(self, uid: str = UID) -> Path:
        folder = self.root / "sys/fs/cgroup/kubepods/burstable" / f"pod{uid}"
        folder.mkdir(parents=True)
        return folder

    @asynccontextmanager
    async def followed(self, settings: Logs = QUICK, **wants: set[str]) -> AsyncIterator[Heard]:
        heard = Heard()
        heard.open = wants.get("open", set())
        self.logs = PodLogs(self.root, heard, settings, Metrics())
        task = asyncio.create_task(self.logs.run())
        try:
            yield heard
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_line_of_the_runtime_has_time_stream_and_text() -> None:
    found = parse_line(b"2026-11-21T09:30:00.123456789+02:00 stderr F a  b ")

    assert found is not None
    assert found.at == datetime(2026, 11, 21, 7, 30, 0, 123456, UTC)
    assert (found.stream, found.partial, found.text) == ("stderr", False, "a  b ")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"step 12",
        b"2026-11-21T09:30:00Z stdout X a",
        b"2026-11-21T09:30:00 stdout F no zone",
        b"today stdout F a",
    ],
)
def test_another_line_is_none_of_the_runtime(data: bytes) -> None:
    assert parse_line(data) is None


@given(st.binary(max_size=200))
def test_no_bytes_make_the_line_parser_raise(data: bytes) -> None:
    parse_line(data)
    parse_line(b"2026-11-21T09:30:00Z stdout F " + data)


def test_parts_are_joined_per_stream_and_bounded() -> None:
    joiner = Joiner(chars_max=10)
    whole = [
        joiner.add(found)
        for text in (line("abcdef", "P"), line("err", "F", "stderr"), line("ghijkl", "P"), line("mn", "F"))
        if (found := parse_line(text.rstrip("\n").encode())) is not None
    ]

    assert whole == [None, "err", None, "abcdefghij"]


def test_parts_of_one_character_cost_no_more_the_more_there_are() -> None:
    """conmon writes what a program has written so far, whether its line has ended or not."""
    joiner = Joiner(chars_max=16 * 1024)
    part, end = (parse_line(line(".", tag).rstrip("\n").encode()) for tag in ("P", "F"))
    assert part is not None
    assert end is not None
    begin_s = time.process_time()
    for _ in range(50_000):
        joiner.add(part)

    assert time.process_time() - begin_s < 2.0
    assert joiner.add(end) == "." * 16 * 1024
    assert joiner.add(end) == "."


def test_what_a_progress_bar_writes_over_is_handed_on_before_its_line_ends() -> None:
    joiner = Joiner(chars_max=100)
    told = [
        joiner.add(found)
        for text in (line("\r1/9", "P"), line(" [\r2/9 [\r3", "P"), line("/9 [", "P"), line("\r4/9 [\r"))
        if (found := parse_line(text.rstrip("\n").encode())) is not None
    ]

    assert told == ["\r", "1/9 [\r2/9 [\r", None, "3/9 [\r4/9 ["]


async def test_no_character_is_lost_where_the_runtime_splits_a_long_line(host: Host) -> None:
    part = "x" * (16 * 1024 - 4)
    async with host.followed() as heard:
        host.write(line(part + "\rste", "P") + line("p 123"))
        await heard.until(lambda: len(heard.lines) == 2)

    assert [text for _, text in heard.lines] == [part + "\r", "step 123"]


async def test_a_new_pod_is_found_and_read_as_it_grows(host: Host) -> None:
    async with host.followed() as heard:
        await heard.until(lambda: "scanned" in heard.coverage)
        host.write(line("step 1"))
        await heard.until(lambda: len(heard.lines) == 1)
        host.write(line("step 2")[:-8])
        host.write(line("step 2")[-8:])
        await heard.until(lambda: len(heard.lines) == 2)

    assert heard.lines == [(0, "step 1"), (0, "step 2")]


async def test_a_line_that_comes_costs_one_read(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """All ranks of a healthy gang print for weeks, so each line must be cheap."""
    async with host.followed() as heard:
        host.write(line("step 1"))
        await heard.until(lambda: len(heard.lines) == 1)
        await asyncio.sleep(0.2)
        with monkeypatch.context() as patched:
            reads = 0
            pread = os.pread

            def counted(fd: int, size: int, offset: int) -> bytes:
                nonlocal reads
                reads += 1
                return pread(fd, size, offset)

            patched.setattr(os, "pread", counted)
            for number in range(2, 7):
                host.write(line(f"step {number}"))
                await heard.until(lambda number=number: len(heard.lines) == number)  # type: ignore[misc]
                await asyncio.sleep(0.1)

    assert reads == 5


async def test_the_systems_namespaces_are_never_opened(host: Host) -> None:
    host.write(line("secret"), namespace="kube-system", uid="a")
    host.write(line("secret"), namespace="rekindle-system", uid="b")
    host.write(line("step 1"))

    async with host.followed() as heard:
        await heard.until(lambda: bool(heard.lines))

    assert heard.lines == [(0, "step 1")]


async def test_a_rotated_log_is_read_to_its_end_and_then_the_new_one(host: Host) -> None:
    host.write(line("step 1"))
    async with host.followed() as heard:
        await heard.until(lambda: len(heard.lines) == 1)
        host.write(line("step 2"))
        (host.folder() / "0.log").rename(host.folder() / "0.log.20261121-093000")
        host.write(line("step 3"))
        await heard.until(lambda: len(heard.lines) == 3)

    assert [text for _, text in heard.lines] == ["step 1", "step 2", "step 3"]
    assert heard.ended == []


async def test_the_first_line_after_a_rotation_is_read_with_the_last_line_before_it(host: Host) -> None:
    """The runtime opens the new file first. The two lines come together, and no other event reports them."""
    log = host.folder() / "0.log"
    host.write(line("step 1"))
    async with host.followed() as heard:
        await heard.until(lambda: len(heard.lines) == 1)
        with log.open("a") as old:
            log.rename(log.with_suffix(".log.20261121-093000"))
            log.touch()
            await asyncio.sleep(0.2)  # its events are handled
            old.write(line("step 2"))
        host.write(line("step 3"))
        await heard.until(lambda: len(heard.lines) == 3)

    assert [text for _, text in heard.lines] == ["step 1", "step 2", "step 3"]


async def test_the_next_instances_log_ends_the_one_before(host: Host) -> None:
    host.write(line("step 1"))
    async with host.followed() as heard:
        await heard.until(lambda: len(heard.lines) == 1)
        host.write(line("last words"))
        host.write(line("step 1"), instance=1)
        await heard.until(lambda: (1, "step 1") in heard.lines and heard.ended == [0])

    assert (0, "last words") in heard.lines


async def test_a_container_has_ended_when_its_cgroup_is_gone(host: Host) -> None:
    cgroup = host.cgroup()
    host.write(line("step 1"))
    async with host.followed() as heard:
        await heard.until(lambda: len(heard.lines) == 1)
        await asyncio.sleep(0.1)
        assert heard.ended == []
        cgroup.rmdir()
        await heard.until(lambda: heard.ended == [0])


async def test_the_kernel_tells_that_a_cgroup_is_gone_before_anybody_looks(host: Host) -> None:
    """This is also true for a pod that comes later, and for the second of two pods."""
    cgroups = {UID: host.cgroup(), "other": host.cgroup("other")}
    host.write(line("step 1"))
    async with host.followed(Logs(ended_poll_s=60, read_pause_s=0.01)) as heard:
        await heard.until(lambda: len(heard.lines) == 1)
        host.write(line("step 2"), instance=1, uid="other")
        await heard.until(lambda: len(heard.lines) == 2)
        cgroups["other"].rmdir()
        await heard.until(lambda: heard.ended == [1])
        cgroups[UID].rmdir()
        await heard.until(lambda: heard.ended == [1, 0])


async def test_a_watch_that_has_ended_unnoticed_costs_a_look(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent folder was created again, together with the pod's folder."""
    monkeypatch.setattr(pod_logs, "_LOOK_S", 0.2)
    cgroup = host.cgroup()
    host.write(line("step 1"))
    async with host.followed() as heard:
        await heard.until(lambda: len(heard.lines) == 1)
        cgroup.parent.rename(cgroup.parent.with_name("moved"))
        host.cgroup()
        await asyncio.sleep(0.1)
        shutil.rmtree(cgroup.parent)
        await heard.until(lambda: heard.ended == [0])


async def test_a_container_that_ended_before_its_cgroup_was_seen_is_told_later(host: Host) -> None:
    host.cgroup()
    host.write(line("step 1"))
    async with host.followed() as heard:
        await heard.until(lambda: len(heard.lines) == 1)
        host.write(line("ValueError: bad shape"), uid="quick")
        await heard.until(lambda: heard.ended == [0])

    assert (0, "ValueError: bad shape") in heard.lines


async def test_a_log_whose_folder_is_gone_has_ended(host: Host) -> None:
    host.write(line("step 1"))
    async with host.followed() as heard:
        await heard.until(lambda: len(heard.lines) == 1)
        shutil.rmtree(host.folder().parent)
        await heard.until(lambda: heard.ended == [0] and len(heard.removed) == 1)


async def test_pods_that_had_ended_before_the_agent_came_are_left_alone(host: Host) -> None:
    host.cgroup("another-pod")
    host.write(line("step 1"))
    async with host.followed() as heard:
        await heard.until(lambda: "scanned" in heard.coverage)

    assert (heard.lines, heard.ended) == ([], [])


async def test_a_pod_that_ended_while_the_agent_was_away_is_told_with_its_last_lines(host: Host) -> None:
    host.cgroup("another-pod")
    host.write(line("step 1"))
    async with host.followed(open={UID}) as heard:
        await heard.until(lambda: heard.ended == [0])

    assert heard.lines == [(0, "step 1")]


async def test_a_pod_that_prints_far_more_than_can_be_read_is_continued_near_its_end(host: Host) -> None:
    settings = Logs(ended_poll_s=0.02, read_pause_s=0.01, read_bytes=64 * 1024, backlog_bytes_max=1024 * 1024)
    host.write("".join(line(f"noise {n} " + "x" * 200) for n in range(12_000)) + line("step 9"))
    async with host.followed(settings) as heard:
        await heard.until(lambda: (0, "step 9") in heard.lines)

    assert len(heard.lines) < 6_000
    assert all(text.startswith(("noise", "step")) for _, text in heard.lines), "it goes on at a whole line"


async def test_what_follows_a_line_of_megabytes_is_read_though_nothing_more_is_written(host: Host) -> None:
    """A runtime that does not split lines writes such long lines."""
    async with host.followed() as heard:
        await heard.until(lambda: "scanned" in heard.coverage)
        host.write(line("x" * 3_000_000) + line("step 9"))
        await heard.until(lambda: (0, "step 9") in heard.lines)


async def test_a_pod_that_prints_much_does_not_hold_up_another(host: Host) -> None:
    host.write("".join(line(f"noise {n} " + "x" * 200) for n in range(20_000)))
    host.write(line("step 1"), uid="quiet")
    async with host.followed() as heard:
        await heard.until(lambda: (0, "step 1") in heard.lines)

        assert len(heard.lines) < 4_000


async def test_many_pods_that_print_much_share_one_rate_and_hold_up_no_other(host: Host) -> None:
    """If each file had only its own rate, the agent would have no time for the kernel's lines."""
    settings = Logs(ended_poll_s=0.02, read_pause_s=0.01, read_bytes=16 * 1024, node_bytes_per_s=200_000)
    for number in range(20):
        host.write("".join(line(f"noise {n} " + "x" * 200) for n in range(400)), uid=f"loud-{number}")
    async with host.followed(settings) as heard:
        await heard.until(lambda: len({uid for uid in heard.pods if uid.startswith("loud")}) == 20)
        host.write(line("step 1"), uid="quiet")
        await heard.until(lambda: (0, "step 1") in heard.lines)

        assert len(heard.lines) < 20 * 400 // 2, "each had its turn, and none was read to its end before"


async def test_between_two_pieces_everything_else_has_its_turn(host: Host) -> None:
    """Ten pods that printed short step lines kept an agent from answering its probes for 20 s."""
    piece = "".join(line(f"step {n}") for n in range(20))
    settings = Logs(ended_poll_s=0.02, read_pause_s=0.001, read_bytes=len(piece), node_bytes_per_s=1e12)
    async with host.followed(settings) as heard:
        await heard.until(lambda: "scanned" in heard.coverage)
        for number in range(12):
            host.write(piece * 20, uid=f"loud-{number}")
        await heard.until(lambda: len({uid for uid in heard.pods if uid.startswith("loud")}) == 12)
        most, before = 0, len(heard.lines)
        while len(heard.lines) < 12 * 20 * 20:
            await asyncio.sleep(0)
            most, before = max(most, len(heard.lines) - before), len(heard.lines)

    assert most <= 3 * 20, "a piece or two, not one of each file"


FEW = Logs(ended_poll_s=0.02, read_pause_s=0.01, containers_max=3)
ANY = PodRef("ml", "any", "uid-any")
"""A pod that stands for any pod: the report about a log that is not read names no pod."""


async def test_a_rank_that_holds_a_gpu_gets_the_place_of_a_small_pod_and_the_rest_is_told(host: Host) -> None:
    for number in range(4):
        host.write(line(f"small {number}"), uid=f"small-{number}")
    async with host.followed(FEW) as heard:
        await heard.until(lambda: len(heard.lines) == 3)
        assert heard.why == told([ANY], frozenset(), 3)
        heard.published = {f"small-{number}" for number in (0, 1, 3)}
        host.logs.prefer(frozenset({"rank"}))
        host.write(line("step 1"), uid="rank")
        await heard.until(lambda: (0, "step 1") in heard.lines)

        assert len(heard.left) == 1
        assert heard.left == ["small-2"] or "small-2" not in followed(heard), "a silent one goes first"
        assert heard.ended == []


async def test_a_rank_that_was_left_out_is_read_once_it_is_known_to_hold_a_gpu(host: Host) -> None:
    uids = [f"pod-{number}" for number in range(4)]
    for uid in uids:
        host.write(line(uid), uid=uid)
    async with host.followed(FEW) as heard:
        await heard.until(lambda: len(heard.lines) == 3 and bool(heard.why))
        (missing,) = set(uids) - followed(heard)
        host.logs.prefer(frozenset({missing}))
        await heard.until(lambda: (0, missing) in heard.lines)


async def test_where_even_the_ranks_are_too_many_it_is_said_that_some_hold_devices(host: Host) -> None:
    uids = [f"rank-{number}" for number in range(4)]
    async with host.followed(FEW) as heard:
        host.logs.prefer(frozenset(uids))
        for uid in uids:
            host.write(line(uid), uid=uid)
        await heard.until(lambda: heard.why == told([ANY], frozenset({ANY.uid}), 3))

    assert heard.left == []


async def test_an_ended_container_takes_no_place(host: Host) -> None:
    for number in range(4):
        host.cgroup(f"pod-{number}")
        host.write(line(f"pod-{number}"), uid=f"pod-{number}")
    async with host.followed(FEW) as heard:
        await heard.until(lambda: len(heard.lines) == 3 and bool(heard.why))
        await asyncio.sleep(0.1)  # until their cgroups are found
        (host.root / "sys/fs/cgroup/kubepods/burstable" / f"pod{min(followed(heard))}").rmdir()
        await heard.until(lambda: heard.ended == [0])
        host.write(line("step 1"), uid="new")
        await heard.until(lambda: len(heard.lines) == 4)


def followed(heard: Heard) -> set[str]:
    return {text for _, text in heard.lines}


async def test_a_container_that_came_and_went_between_two_samples_is_read_and_told(host: Host) -> None:
    """The container's next instance began within the same second."""
    async with host.followed() as heard:
        await heard.until(lambda: "scanned" in heard.coverage)
        for instance in range(3):
            host.write(line(f"ValueError {instance}"), instance=instance)
        await heard.until(lambda: len(heard.lines) == 3 and len(heard.ended) == 2)

    assert sorted(heard.lines) == [(number, f"ValueError {number}") for number in range(3)]
    assert heard.ended == [0, 1]


async def test_logs_that_are_links_as_docker_makes_them_are_told_as_not_read(host: Host) -> None:
    """The links lead out of the folder that is mounted, to lines in another format."""
    log = host.folder() / "0.log"
    log.symlink_to(host.root / "var/lib/docker/containers/1/1-json.log")
    async with host.followed() as heard:
        await heard.until(lambda: len(heard.coverage) == 2)

    assert heard.coverage == [f"{log}: {os.strerror(errno.ELOOP)}", "scanned"]
    assert heard.why == ""


async def test_a_container_that_crashes_for_weeks_is_not_kept_for_each_of_its_restarts(host: Host) -> None:
    """The kubelet keeps only the logs of the last two instances."""
    async with host.followed() as heard:
        await heard.until(lambda: "scanned" in heard.coverage)
        for instance in range(5):
            host.write(line(f"ValueError {instance}"), instance=instance)
            await heard.until(lambda number=instance: (number, f"ValueError {number}") in heard.lines)
            (host.folder() / f"{instance - 2}.log").unlink(missing_ok=True)
        host.write(line("step 1"), uid="another-pod")  # all folders are read again
        await heard.until(lambda: sorted(ref.instance for ref in heard.removed) == [0, 1, 2])
        host.write(line("step 7"), instance=4)
        await heard.until(lambda: (4, "step 7") in heard.lines)

    assert heard.ended == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "folder",
    [
        f"kubepods/burstable/pod{UID}",
        f"kubepods/pod{UID}",
        f"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID.replace('-', '_')}.slice",
        f"kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice",
        f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UID.replace('-', '_')}.slice",
        f"memory/kubepods/burstable/pod{UID}",
        f"gpu-nodes/kubepods/burstable/pod{UID}",
        f"memory/gpu-nodes/kubepods/burstable/pod{UID}",
        f"gpu.slice/gpu-kubepods.slice/gpu-kubepods-pod{UID.replace('-', '_')}.slice",
    ],
)
def test_the_cgroup_of_a_pod_is_found_in_every_layout(tmp_path: Path, folder: str) -> None:
    path = tmp_path / "sys/fs/cgroup" / folder
    path.mkdir(parents=True)

    assert Cgroups(tmp_path).find(UID) == path
    assert Cgroups(tmp_path).find("another") is None
    assert Cgroups(tmp_path).known()


def test_without_a_cgroup_tree_nothing_is_known(tmp_path: Path) -> None:
    assert not Cgroups(tmp_path).known()
