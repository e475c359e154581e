"""Bytes that changed within a file of the right length: the scan finds them on request, if the format has
digests."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import shutil
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from recover.checkpoints.digests import not_checked
from recover.checkpoints.marker_template import parse_marker
from recover.checkpoints.scan import scan
from recover.checkpoints.scan_result import ScanResult, decode_message
from recover.checkpoints.torch_archive import ENTRIES_MAX
from recover.cli.checkpoints_command import run
from tests.facts import names

FIXTURES = Path(__file__).parent / "fixtures"
WITHOUT_DIGESTS = ("orbax-0.12.8/manager", "paddle-3.3.1/folders")


def ticking(step_s: float) -> Iterator[float]:
    """Yields the times of a clock that advances whenever it is read."""
    now = 0.0
    while True:
        yield now
        now += step_s


def checked(root: Path) -> ScanResult:
    return scan(root, digests=True)


def in_words(digests: str) -> str:
    """Returns the text without the sizes, which differ from checkpoint to checkpoint."""
    return re.sub(r"[\d.]+ [kMGT]?B\b", "SIZE", digests)


def changed(path: Path, at: int) -> None:
    """Flips one bit of this byte, as a faulty disk may."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def first_tensor(path: Path) -> int:
    """Returns the offset of the first tensor's bytes, which follow the zip's local header, a name and a
    padding."""
    data = path.read_bytes()
    header = data.rindex(b"PK\x03\x04", 0, data.index(b"/data/0"))
    name_bytes, padding_bytes = struct.unpack_from("<2H", data, header + 26)
    return header + 30 + int(name_bytes) + int(padding_bytes)


@pytest.fixture
def dcp(tmp_path: Path) -> Path:
    """Returns a root with a checkpoint that torch wrote."""
    shutil.copytree(FIXTURES / "torch-dcp-2.15.0/step-40", tmp_path / "step-40")
    return tmp_path


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    shutil.copytree(FIXTURES / "torch-save-2.15.0/ranks/step-40", tmp_path / "step-40")
    return tmp_path


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """Returns a root with the checkpoints of two steps. Each has two shards with their digests."""
    for step in (40, 60):
        folder = tmp_path / f"step-{step}"
        folder.mkdir()
        files = []
        for rank in range(2):
            data = bytes([step, rank]) * 500
            (folder / f"shard-{rank}-of-2.npz").write_bytes(data)
            sha256 = hashlib.sha256(data).hexdigest()
            files.append({"name": f"shard-{rank}-of-2.npz", "bytes": 1000, "sha256": sha256})
        manifest = {"format": "rekindle-sharded", "step": step, "files": files}
        (folder / "commit.json").write_text(json.dumps(manifest))
    return tmp_path


@pytest.mark.parametrize(
    "fixture",
    [
        "accelerate-1.15.0/fsdp",
        "deepspeed-0.19.8/zero-3",
        "megatron-core-0.16.1/torch-dist",
        "torch-dcp-2.15.0",
        "torch-save-2.15.0/ranks",
        "transformers-5.23.0/deepspeed",
    ],
)
def test_what_the_libraries_wrote_agrees_with_their_own_digests(fixture: str) -> None:
    result = checked(FIXTURES / fixture)

    assert result.chosen is not None
    assert "SIZE" in in_words(result.digests)
    assert in_words(result.digests) != in_words(checked(FIXTURES / WITHOUT_DIGESTS[0]).digests)


@pytest.mark.parametrize("fixture", WITHOUT_DIGESTS)
def test_a_format_without_digests_is_read_and_said_to_have_none(fixture: str) -> None:
    result = checked(FIXTURES / fixture)

    assert result.chosen is not None
    assert in_words(result.digests) == in_words(checked(FIXTURES / WITHOUT_DIGESTS[0]).digests)


def test_a_changed_byte_in_a_tensor_is_found_only_where_digests_are_asked_for(saved: Path) -> None:
    first = min((saved / "step-40").iterdir())
    changed(first, first_tensor(first))

    assert scan(saved).chosen is not None
    result = checked(saved)
    assert result.chosen is None
    assert names(result.checkpoints[0].reason, f"'{first.name}'", "CRC-32")


def test_a_changed_byte_within_a_distributed_checkpoint_is_found(dcp: Path) -> None:
    shard = dcp / "step-40/__0_0.distcp"
    changed(shard, first_tensor(shard))

    assert scan(dcp).chosen is not None
    assert checked(dcp).chosen is None


def test_a_shard_that_differs_from_its_sha256_sends_the_gang_to_the_one_before(sharded: Path) -> None:
    changed(sharded / "step-60/shard-1-of-2.npz", 500)

    result = checked(sharded)

    assert result.chosen is not None
    assert result.chosen.step == 40
    assert names(result.digests, "2 kB")
    assert names(result.checkpoints[0].reason, "'shard-1-of-2.npz'", "SHA-256", "commit.json")


@pytest.mark.parametrize("time_s", [4.0, 5.0, 12.0], ids=["at once", "as it begins", "within"])
def test_when_the_time_is_over_the_structure_decides_and_the_rest_is_said(
    sharded: Path, time_s: float
) -> None:
    clock = ticking(1.0)

    result = scan(sharded, digests=True, time_s=time_s, clock=lambda: next(clock))

    assert result.chosen is not None
    assert result.chosen.step == 60
    assert in_words(result.digests) == in_words(not_checked(0, result.chosen.bytes))


def test_a_link_in_a_circle_and_a_dangling_one_are_no_part_of_it(saved: Path) -> None:
    (saved / "step-40/again").symlink_to(saved / "step-40")
    (saved / "step-40/gone").symlink_to(saved / "nowhere")

    assert checked(saved).chosen is not None


def test_the_scan_pod_tells_what_was_compared(
    sharded: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    message = tmp_path_factory.mktemp("pod") / "message"

    assert run(["scan", str(sharded), "--digests", "--message-file", str(message)]) == 0

    told = decode_message(message.read_bytes()).digests
    assert names(told, "2 kB")
    assert told == checked(sharded).digests


def zip_of(entries: int, extra: bytes = b"") -> bytes:
    """Returns a file of torch.save with this number of further entries. They are all empty, and have a
    name of one letter and an extra field in the directory."""
    pickled, name = b"\x80\x02}.", b"a/data.pkl"
    crc, size = zlib.crc32(pickled), len(pickled)
    content = struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 0, 0, 0, crc, size, size, len(name), 0)
    content += name + pickled
    first = struct.pack("<4s6H3I5H2I", b"PK\1\2", 20, 0, 0, 0, 0, 0, crc, size, size, len(name), *[0] * 6)
    directory = bytearray(first + name)
    local = struct.pack("<4s5H3I2H", b"PK\3\4", 20, *[0] * 7, 1, 0) + b"a"
    entry = struct.pack("<4s6H3I5HI", b"PK\1\2", 20, *[0] * 8, 1, len(extra), *[0] * 4)
    for number in range(entries):
        directory += entry + struct.pack("<I", len(content) + number * len(local)) + b"a" + extra
    content += local * entries
    at, size, count = len(content), len(directory), entries + 1
    end64 = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, at)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, at + size, 1)
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return content + bytes(directory) + end64 + locator + end


def looks_at_the_clock(root: Path, *, digests: bool) -> int:
    looks = itertools.count()

    result = scan(root, digests=digests, time_s=1e9, clock=lambda: float(next(looks)))

    assert result.chosen is not None
    return next(looks)


@pytest.mark.parametrize(("digests", "more"), [(False, 10), (True, 100_000)])
def test_each_part_of_a_long_zip_directory_is_read_within_the_time(
    digests: bool, more: int, tmp_path: Path
) -> None:
    (tmp_path / "step-40.pt").write_bytes(zip_of(0))
    short = looks_at_the_clock(tmp_path, digests=digests)
    (tmp_path / "step-40.pt").write_bytes(zip_of(100_000))

    assert looks_at_the_clock(tmp_path, digests=digests) >= short + more


@pytest.mark.parametrize("name", ["state.pt", "x.bin"])  # torch-save also reads the directory of state.pt
def test_a_zip_of_more_entries_than_any_trainer_writes_is_damaged(name: str, tmp_path: Path) -> None:
    for step in (20, 40):
        (tmp_path / f"step-{step}").mkdir()
        (tmp_path / f"step-{step}" / "DONE").write_text("x")
    (tmp_path / "step-40" / name).write_bytes(zip_of(ENTRIES_MAX))
    template = parse_marker("DONE") if name == "x.bin" else None

    found = scan(tmp_path, template=template, digests=True).checkpoints[0]

    assert found.step == 40
    assert not found.complete
    assert str(ENTRIES_MAX) in found.reason


def test_a_zip_with_extra_fields_that_would_be_parsed_for_long_is_damaged(tmp_path: Path) -> None:
    """zipfile needs 17 s for 1,000 such entries."""
    (tmp_path / "step-40").mkdir()
    (tmp_path / "step-40" / "DONE").write_text("x")
    (tmp_path / "step-40" / "x.bin").write_bytes(zip_of(20, bytes(65_532)))

    (found,) = scan(tmp_path, template=parse_marker("DONE"), digests=True).checkpoints

    assert not found.complete
    assert names(found.reason, "65532 bytes")


def test_a_zip_whose_directory_would_fill_the_memory_is_damaged(tmp_path: Path) -> None:
    """A tenant can make a directory of 100 GB at no cost, because the file has holes."""
    for step in (20, 40):
        (tmp_path / f"step-{step}").mkdir()
        (tmp_path / f"step-{step}" / "DONE").write_text("x")
    directory_at, end = 4, 100 * 2**30
    with open(tmp_path / "step-40" / "x.bin", "wb") as file:
        file.write(b"PK\x03\x04")
        file.seek(end)
        size = end - directory_at
        file.write(struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, size, directory_at))
        file.write(struct.pack("<4sIQI", b"PK\6\7", 0, end, 1))
        file.write(struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 65535, 65535, 2**32 - 1, 2**32 - 1, 0))

    result = scan(tmp_path, template=parse_marker("DONE"), digests=True)

    assert result.chosen is not None
    assert result.chosen.step == 20
    assert names(result.checkpoints[0].reason, "'x.bin'", 107374182396, 67108864)
