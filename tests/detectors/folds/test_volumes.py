"""Findings about volumes of pods over time; healthy volumes cause none."""

from __future__ import annotations

import errno
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.folds.chain import Chain
from detectors.folds.core import AgentCore, Dirty
from detectors.folds.states import Folded
from detectors.folds.volumes import VolumeFold
from detectors.rules.volume_rows import volume_rows
from detectors.rules.volume_states import Volume, VolumeSample
from detectors.service.settings import Chain as ChainSettings
from detectors.service.settings import Volumes as Settings
from detectors.wire.contract import Fault, Origin, Severity, SubjectKind
from detectors.wire.open_findings import is_open
from tests.detectors.folds.ports import agent

GIB, TIB = 2**30, 2**40
EVERY = timedelta(seconds=60)
PODS = frozenset({"uid-0"})
ROWS = volume_rows()


def volume(name: str = "ckpt", **facts: Any) -> Volume:
    shown = {
        "pod": "uid-0",
        "type": "nfs4",
        "source": "nas:/ckpt",
        "device": "0:53",
        "bytes": TIB,
        "bytes_free": TIB // 2,
        "inodes": 10**6,
        "inodes_free": 10**5,
    }
    return Volume(name=name, **(shown | facts))


def unanswered(name: str = "ckpt", **facts: Any) -> Volume:
    none = {"bytes": None, "bytes_free": None, "inodes": None, "inodes_free": None}
    return volume(name, **(none | facts))


class Node:
    def __init__(self, core: AgentCore | None = None) -> None:
        self.core = core or agent()
        self.now = datetime(2026, 11, 25, 8, tzinfo=UTC)
        self.core.mark_written()

    def sample(self, *volumes: Volume, pods: frozenset[str] = PODS, times: int = 1) -> list[str]:
        for _ in range(times):
            self.now += EVERY
            self.core.volumes(VolumeSample(volumes, pods), self.now)
        return [finding.code for finding in self.core.findings if finding.cleared_at is None]


def test_a_full_volume_is_a_note_of_the_tenant_that_is_published_at_once() -> None:
    node = Node()
    assert node.sample(volume(), times=3) == []
    assert node.core.dirty is Dirty.NOTHING

    assert node.sample(volume(bytes_free=GIB // 2)) == ["volume-full"]

    (found,) = node.core.findings
    assert node.core.dirty is Dirty.EDGE
    assert (found.fault, found.origin, found.severity) == (Fault.RESOURCES, Origin.TENANT, Severity.INFO)
    assert (found.subject.kind, found.subject.pod, found.subject.volume) == (SubjectKind.POD, "uid-0", "ckpt")
    assert found.evidence == "volume ckpt (nfs4, nas:/ckpt) has 512 MiB of 1.0 TiB free"
    assert not is_open(found), "it never counts for the node"


def test_as_long_as_it_lasts_it_costs_no_write_and_it_ends_with_room_to_spare() -> None:
    node = Node()
    node.sample(volume(bytes_free=GIB // 2))
    node.core.mark_written()

    assert node.sample(volume(bytes_free=GIB // 4), volume("data"), times=50) == ["volume-full"]
    assert node.sample(volume(bytes_free=3 * GIB // 2), times=50) == ["volume-full"], "hardly any room"
    assert node.core.dirty is Dirty.NOTHING
    assert node.sample(volume(bytes_free=3 * GIB)) == []
    assert node.core.findings[0].cleared_by == "the volume has room"


def test_a_large_share_or_many_bytes_are_room() -> None:
    small = volume("shm", bytes=64 << 20, bytes_free=32 << 20)
    large = volume("lake", bytes=1024 * TIB, bytes_free=2 * GIB)
    assert Node().sample(small, large) == []


def test_inodes_that_are_used_up_are_told_and_a_file_system_without_any_is_not() -> None:
    assert Node().sample(volume(inodes_free=12)) == ["volume-inodes"]
    assert Node().sample(volume(inodes=0, inodes_free=0)) == []


def test_what_takes_no_writes_has_no_room_by_its_nature() -> None:
    node = Node()
    assert node.sample(volume(bytes_free=0, is_read_only=True), times=3) == []
    assert node.sample(volume("image", bytes_free=0, inodes_free=0, is_mounted_read_only=True), times=3) == []


def test_a_file_system_in_user_space_is_full_only_if_it_was_seen_with_room() -> None:
    node = Node()
    assert node.sample(volume(type="fuse.bucket", bytes_free=0), times=3) == []
    node.sample(volume(type="fuse.bucket"))
    assert node.sample(volume(type="fuse.bucket", bytes_free=0)) == ["volume-full"]


def test_a_volume_that_does_not_answer_is_silent_until_it_does() -> None:
    node = Node()
    assert node.sample(unanswered(silent_s=60.0)) == ["volume-silent"]
    (found,) = node.core.findings
    assert (found.fault, found.severity) == (Fault.STORAGE, Severity.INFO)
    assert found.evidence == "volume ckpt (nfs4, nas:/ckpt) has not answered within 60 s"
    assert node.sample(unanswered()) == ["volume-silent"], "nobody asked it"
    assert node.sample(volume()) == []


def test_errors_that_serve_nobody_are_told_and_others_are_not() -> None:
    for number in (errno.EIO, errno.ESTALE, errno.ENOTCONN):
        assert Node().sample(unanswered(errno=number)) == ["volume-broken"]
    for number in (errno.EACCES, errno.ENOENT, errno.ENOSYS, errno.EPERM):
        assert Node().sample(unanswered(errno=number)) == []


def test_a_file_system_that_turned_read_only_is_told_and_one_that_always_was_is_not() -> None:
    node = Node()
    assert node.sample(volume(is_read_only=True), times=3) == []
    assert node.sample(volume("disk")) == []
    assert node.sample(volume("disk", is_read_only=True)) == ["volume-broken"]
    assert node.sample(volume("disk", is_mounted_read_only=True)) == []


def test_a_pod_that_leaves_takes_its_findings_along() -> None:
    node = Node()
    node.sample(volume(bytes_free=0), volume("b", bytes_free=0), unanswered("c", silent_s=60.0))
    assert node.sample(volume(bytes_free=0)) == ["volume-full"]
    assert node.sample(pods=frozenset()) == []
    assert {finding.cleared_by for finding in node.core.findings} == {
        "the volume is no longer mounted",
        "its pod is no longer on the node",
    }


def test_an_earlier_run_of_the_agent_is_gone_on_from() -> None:
    node = Node()
    node.sample(volume(bytes_free=0))
    after = Node(agent())
    after.core.restore(node.core.status(node.now))
    after.now = node.now

    assert after.sample(volume(bytes_free=0)) == ["volume-full"]
    assert len(after.core.findings) == 1
    assert after.sample(volume()) == []


def test_a_file_server_with_many_mounts_does_not_crowd_out_other_findings() -> None:
    node = Node()
    many = [unanswered(f"v{number}", silent_s=60.0) for number in range(100)]
    assert len(node.sample(*many, times=3)) == 12
    node.core.mark_written()
    node.sample(*many, times=30)
    assert node.core.dirty is Dirty.NOTHING


def test_no_packaged_row_is_more_than_a_note() -> None:
    assert {row.severity for row in ROWS.values()} == {Severity.INFO}


# --- what healthy nodes show: nothing -----------------------------------------------------------------------

names = st.sampled_from(["ckpt", "data", "shm", "scratch", "code"])
types = st.sampled_from(["nfs4", "ext4", "xfs", "lustre", "ceph", "tmpfs", "fuse.juicefs", "gpfs", "beegfs"])
sizes = st.sampled_from([64 << 20, 10 * GIB, 400 * GIB, 100 * TIB, 8192 * TIB])


@st.composite
def healthy_volumes(draw: st.DrawFn) -> Volume:
    """Draws a volume with room to spare, one that never has free room, or one about which nothing is
    known."""
    kind = draw(st.sampled_from(["room", "room", "room", "image", "no answer", "no size", "denied"]))
    common = {"type": draw(types), "pod": draw(st.sampled_from("ab"))}
    name = draw(names)
    if kind == "room":
        size = draw(sizes)
        free = int(size * draw(st.floats(0.011, 1.0)))
        inodes = draw(st.sampled_from([0, 10**5, 2**32]))
        return volume(name, bytes=size, bytes_free=free, inodes=inodes, inodes_free=inodes // 2, **common)
    if kind == "image":
        return volume("image", bytes_free=0, inodes_free=0, is_mounted_read_only=True, **common)
    if kind == "no size":
        return volume("bucket", bytes=0, bytes_free=0, inodes=0, inodes_free=0, **common)
    if kind == "denied":
        return unanswered("theirs", errno=draw(st.sampled_from([errno.EACCES, errno.ENOENT])), **common)
    return unanswered(name, **common)


class Quiet:
    """The fold alone, which is faster than a whole agent."""

    def __init__(self) -> None:
        self.chain = Chain(ChainSettings(), "boot")
        self.fold = VolumeFold(Settings(), ROWS)
        self.now = datetime(2026, 11, 25, 8, tzinfo=UTC)

    def sample(self, *volumes: Volume, pods: frozenset[str] = PODS) -> Folded:
        self.now += EVERY
        return self.fold.fold(self.chain, VolumeSample(volumes, pods), self.now)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(healthy_volumes(), max_size=3), min_size=10, max_size=12), st.randoms())
def test_pods_come_and_go_volumes_are_mounted_again_and_servers_stall_for_less_than_the_limit(
    samples: list[list[Volume]], chance: Random
) -> None:
    """The test takes more than 2,000 samples. A stall that is shorter than the deadline is an answer. The
    kubelet may bind a mount read-only after it has mounted it, which is another flag than the flag of the
    file system."""
    node = Quiet()
    for volumes in samples:
        pods = frozenset(pod for pod in "ab" if chance.random() < 0.8)
        shown = {(one.pod, one.name): one for one in volumes if one.pod in pods}
        if chance.random() < 0.2:
            shown = {
                key: msgspec.structs.replace(one, is_mounted_read_only=True) for key, one in shown.items()
            }
        assert node.sample(*shown.values(), pods=pods) == Folded()
    assert node.chain.findings == []


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0.0, 1.0), min_size=3, max_size=20))
def test_garbage_collection_and_checkpoints_move_the_room_up_and_down(shares: list[float]) -> None:
    """However a volume's room changes, only its last bytes become a finding, and then a note."""
    node = Quiet()
    for share in shares:
        node.sample(volume(bytes_free=int(share * TIB)))
    assert bool(node.chain.findings) == any(int(share * TIB) <= GIB for share in shares)
    assert all(finding.severity is Severity.INFO for finding in node.chain.findings)
