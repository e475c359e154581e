"""Volumes of pods, as a table of mounts and their file systems show them."""

from __future__ import annotations

import asyncio
import errno
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.rules.volume_states import Volume, VolumeSample
from detectors.service.settings import Volumes as Settings
from detectors.sources import volumes_child
from detectors.sources.child import LastingChild
from detectors.sources.volumes import VolumeReader, Volumes, VolumesError
from tests.detectors.sources.volume_tree import VolumeTree, volume_children

SOON = Settings(deadline_s=0.3, every_s=0.05, pause_s=0.01)
PODS = frozenset({"uid-0"})


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VolumeTree:
    return VolumeTree(tmp_path, monkeypatch)


@pytest.fixture
def reader(tmp_path: Path, tree: VolumeTree) -> VolumeReader:
    return VolumeReader(tmp_path, SOON, mountinfo=tree.mountinfo)


async def test_a_volume_is_told_with_its_room_and_where_it_comes_from(
    tree: VolumeTree, reader: VolumeReader
) -> None:
    path = tree.mount("uid-0", "pvc-7", plugin="kubernetes.io~csi", below="mount")
    tree.answers(path, "4000 100 50 20")

    sample = await reader.sample(PODS)
    await reader.end()

    (volume,) = sample.volumes
    assert volume == Volume(
        pod="uid-0",
        name="pvc-7",
        path=str(path),
        device="0:53",
        type="nfs4",
        source="nas:/ckpt",
        bytes=4000,
        bytes_free=100,
        inodes=50,
        inodes_free=20,
    )


async def test_only_volumes_of_the_wanted_pods_are_asked(tree: VolumeTree, reader: VolumeReader) -> None:
    tree.mount("uid-0", "data")
    tree.mount("uid-9", "data")
    tree.mount("uid-0", "token", plugin="kubernetes.io~projected", type_="tmpfs", source="tmpfs")
    tree.mount("uid-0", "data", below="0", volumes="volume-subpaths")
    tree.mount("uid-0", "pvc-7", plugin="kubernetes.io~csi")

    sample = await reader.sample(PODS)
    await reader.end()

    assert [(one.pod, one.name, one.type) for one in sample.volumes] == [("uid-0", "data", "nfs4")]
    assert all(one.bytes for one in sample.volumes), "the real call answers"


async def test_a_volume_that_hangs_is_silent_and_hides_no_other(
    tree: VolumeTree, reader: VolumeReader
) -> None:
    hangs = tree.mount("uid-0", "a", device="0:53")
    tree.mount("uid-0", "b", device="0:53")
    tree.answers(tree.mount("uid-0", "c", device="0:54"), "10 5 10 5")
    tree.answers(hangs, "hang")

    first = await reader.sample(PODS)
    tree.answers(hangs, "10 5 10 5")
    second = await reader.sample(PODS)
    await reader.end()

    assert {one.name: one.silent_s for one in first.volumes} == {"a": 0.3, "b": 0.3, "c": 0.0}
    assert [one.bytes for one in first.volumes if one.name == "c"] == [10]
    assert not [one.name for one in second.volumes if one.silent_s], "the child was replaced"
    assert volume_children() == set()


async def test_a_child_that_cannot_be_ended_is_not_multiplied(
    tree: VolumeTree, reader: VolumeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child in state D, for example, survives SIGKILL."""
    tree.answers(tree.mount("uid-0", "a", device="0:53"), "hang")
    tree.answers(tree.mount("uid-0", "b", device="0:54"), "10 5 10 5")
    left: list[asyncio.subprocess.Process] = []
    ends = LastingChild.end

    async def leaves_the_first(child: LastingChild) -> None:
        if left:
            return await ends(child)
        process, child._child = child._child, None
        assert process is not None
        left.append(process)
        child._outlived.append(process)
        return None

    with monkeypatch.context() as patched:
        patched.setattr(LastingChild, "end", leaves_the_first)
        samples = [await reader.sample(PODS) for _ in range(4)]
        stuck = volume_children()
    for process in left:
        process.kill()
        await process.wait()
    tree.answers(tree.pods / "uid-0/volumes/kubernetes.io~nfs/a", "10 5 10 5")
    after = await reader.sample(PODS)
    await reader.end()

    for sample in samples:
        assert {one.name: bool(one.silent_s) for one in sample.volumes} == {"a": True, "b": False}
    assert len(stuck) == 1, "the one that hangs"
    assert not any(one.silent_s for one in after.volumes)


async def test_with_three_children_that_hang_no_further_one_is_started(
    tree: VolumeTree, reader: VolumeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        tree.answers(tree.mount("uid-0", f"v{number}", device=f"0:{number}"), "hang")
    left: list[asyncio.subprocess.Process] = []

    async def leaves(child: LastingChild) -> None:
        process, child._child = child._child, None
        if process is not None:
            left.append(process)
            child._outlived.append(process)

    with monkeypatch.context() as patched:
        patched.setattr(LastingChild, "end", leaves)
        with pytest.raises(VolumesError, match="hang in a file system and cannot be ended"):
            await reader.sample(PODS)
        with pytest.raises(VolumesError):
            await reader.sample(PODS)
    assert len(left) == 3
    for process in left:
        process.kill()
        await process.wait()


async def test_a_volume_that_is_unmounted_meanwhile_is_not_broken(
    tree: VolumeTree, reader: VolumeReader
) -> None:
    path = tree.mount("uid-0", "data")
    tree.answers(path, str(errno.EIO))
    listed, times = reader._listed, 0

    async def unmounts(pods: frozenset[str]) -> tuple[Volume, ...]:
        nonlocal times
        times += 1
        if times == 2:
            tree.unmount(path)
        return await listed(pods)

    reader._listed = unmounts  # type: ignore[method-assign]
    sample = await reader.sample(PODS)
    await reader.end()

    assert sample == VolumeSample((), PODS)


@pytest.mark.parametrize("pods", [PODS, frozenset()], ids=["pods", "no pods"])
async def test_after_a_sample_no_process_stays(
    tree: VolumeTree, reader: VolumeReader, pods: frozenset[str]
) -> None:
    tree.mount("uid-0", "data")

    assert bool((await reader.sample(pods)).volumes) is bool(pods)
    assert volume_children() == set()


async def test_a_folder_that_does_not_show_later_mounts_is_said(
    tree: VolumeTree, reader: VolumeReader
) -> None:
    tree.propagation("unbindable")
    with pytest.raises(VolumesError, match="mountPropagation: HostToContainer"):
        await reader.sample(PODS)
    await reader.end()


class Heard:
    def __init__(self) -> None:
        self.samples: list[VolumeSample] = []
        self.whys: list[str] = []

    def pods(self) -> frozenset[str]:
        return PODS

    def sampled(self, sample: VolumeSample) -> None:
        self.samples.append(sample)

    def covered(self) -> None:
        self.whys.append("")

    def blind(self, why: str) -> None:
        self.whys.append(why)


async def test_a_node_whose_folder_is_not_mounted_is_blind_and_says_which(tmp_path: Path) -> None:
    heard = Heard()
    task = asyncio.create_task(Volumes(VolumeReader(tmp_path, SOON), heard, SOON).run())
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.wait({task})

    assert set(heard.whys) == {f"{tmp_path}/var/lib/kubelet/pods: No such file or directory"}
    assert not heard.samples


async def test_the_end_of_a_rank_brings_a_sample_at_once(tmp_path: Path, tree: VolumeTree) -> None:
    heard = Heard()
    settings = Settings(pause_s=0.01)
    volumes = Volumes(VolumeReader(tmp_path, settings, mountinfo=tree.mountinfo), heard, settings)
    task = asyncio.create_task(volumes.run())
    began = time.monotonic()
    while len(heard.samples) < 2 and time.monotonic() < began + 10:
        volumes.sample_again()
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait({task})

    assert len(heard.samples) >= 2
    assert volume_children() == set()


@settings(max_examples=60, deadline=None)
@given(st.text("/pods uvolmes-:0123.,~\\\n\0é", max_size=200))
def test_no_line_of_a_table_of_mounts_ends_the_child(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    table = tmp_path_factory.getbasetemp() / "mountinfo"
    table.write_text(text, encoding="utf-8", errors="replace")
    assert volumes_child.mounts("/pods", str(table), ["u"]) in ("mounts later", "mounts never")


async def test_odd_names_of_a_mount_come_out_as_they_are(tree: VolumeTree, reader: VolumeReader) -> None:
    """The kernel writes blanks, tabs, newlines and backslashes as octal numbers, and no other characters."""
    written = "nas:/a\\040b\\011c\\012d\\134e\u00a0f\x85g"
    path = tree.mount("uid-0", "data", source=written)
    nameless = tree.mount("uid-0", "nameless", source="", device="0:54")
    tree.answers(path, "10 5 10 5")
    tree.answers(nameless, "10 5 10 5")

    sample = await reader.sample(PODS)

    assert {one.name: one.source for one in sample.volumes} == {
        "data": "nas:/a b\tc\nd\\e\u00a0f\x85g",
        "nameless": "",
    }
    assert [one.bytes_free for one in sample.volumes] == [5, 5]


def test_what_is_written_in_a_question_is_read_as_it_was() -> None:
    for text in ("/a b", "/a\nb\tc", "/a\\040b", "/a\\134012", "\\"):
        assert volumes_child.unescaped(volumes_child.escaped(text)) == text


def test_the_child_imports_nothing_that_makes_its_start_costly() -> None:
    program = "import sys; sys.path.append(sys.argv[1]); import volumes_child; print(*sys.modules)"
    folder = str(Path(volumes_child.__file__).parent)
    found = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, folder], check=True, capture_output=True, text=True
    )

    assert not {"json", "typing", "re", "collections", "contextlib"} & set(found.stdout.split())
