"""Folders as a tenant may make them: a scan answers in bounded time and memory, and in plain words.

REKINDLE_MANY_FILES=1000000 makes the tests of full folders create a million files; they then take some
minutes. Without the variable the tests create 20,000 files and lower the limit to match.
"""

import errno
import io
import itertools
import json
import os
import pickle
import re
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from recover.checkpoints import folder as folder_module
from recover.checkpoints import hf_parts
from recover.checkpoints import scan as scan_module
from recover.checkpoints.folder import FORBIDDEN, UNREADABLE
from recover.checkpoints.scan import ScanError, scan
from recover.checkpoints.scan_result import Verdict, encode_message, message_of
from tests.facts import names
from tests.recover.checkpoints.test_other_frameworks import CASES, FIXTURES, Case, newest_files
from tests.recover.checkpoints.test_scan import sharded

MANY = int(os.environ.get("REKINDLE_MANY_FILES", "20000"))
ANSWER_S = 60.0
"""Time limit for an answer, in seconds. The limit is far above the usual time, so that busy machines pass;
a scan that blocks never answers."""
MEMORY_BYTES_MAX = 256 * 2**20


@pytest.fixture
def many_names_max(monkeypatch: pytest.MonkeyPatch) -> int:
    most = min(folder_module.NAMES_MAX, MANY // 2)
    monkeypatch.setattr(folder_module, "NAMES_MAX", most)
    return most


def fill(directory: Path, prefix: str = "x") -> None:
    """Fills the directory with many names of few files, because one file can have at most some 65,000
    names."""
    for number in range(MANY):
        if number % 50_000 == 0:
            first = directory / f"{prefix}{number}"
            first.touch()
        else:
            os.link(first, directory / f"{prefix}{number}")


def test_a_checkpoint_with_too_many_files_is_passed_over(tmp_path: Path, many_names_max: int) -> None:
    sharded(tmp_path, 20)
    fill(sharded(tmp_path, 40))
    began_s = time.monotonic()

    result = scan(tmp_path)

    print(f"{MANY} files in a checkpoint: {time.monotonic() - began_s:.3f} s")
    assert names(result.checkpoints[0].reason, many_names_max)
    assert result.chosen is not None
    assert result.chosen.step == 20
    assert time.monotonic() - began_s < ANSWER_S


TELLS_ITS_PEAK = """
import atexit, pathlib, sys
atexit.register(lambda: sys.stderr.write(pathlib.Path("/proc/self/status").read_text()))
from detectors.commands.main import main
sys.exit(main())
"""
"""A program that prints its own peak of memory. The number that a parent gets for its child includes the
parent's memory, because a child begins as a copy of its parent."""


def test_a_root_with_too_many_names_is_an_error_in_bounded_memory(tmp_path: Path) -> None:
    """Tests the real limit in a separate process. Below the limit the scan keeps all names, so the memory
    for them must also stay small."""
    sharded(tmp_path, 40)
    fill(tmp_path, "step-40-of-a-long-name-that-somebody-chose-")
    began_s = time.monotonic()
    command = [sys.executable, "-c", TELLS_ITS_PEAK, "checkpoints", "scan", str(tmp_path), "--json"]

    process = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_S, check=False)
    out, err = process.stdout, process.stderr
    took_s = time.monotonic() - began_s
    peak_bytes = int(err.rpartition("VmHWM:")[2].split()[0]) * 1024

    print(f"{MANY} files in the root: {took_s:.3f} s with Python's start, {peak_bytes / 2**20:.0f} MiB")
    assert peak_bytes < MEMORY_BYTES_MAX
    if MANY > folder_module.NAMES_MAX:
        assert process.returncode == 2
        assert names(err, tmp_path, folder_module.NAMES_MAX)
    else:
        assert process.returncode == 0
        assert json.loads(out)["chosen"]["step"] == 40


def test_time_that_is_over_within_a_listing_ends_the_scan(tmp_path: Path) -> None:
    fill(tmp_path)
    times = iter([0.0, 1.0])

    with pytest.raises(ScanError, match=re.escape(str(tmp_path))) as raised:
        scan(tmp_path, time_s=5.0, clock=lambda: next(times, 9.0))
    assert isinstance(raised.value.__cause__, folder_module.OutOfTimeError)


def test_time_that_is_over_while_files_are_told_apart_ends_the_scan(tmp_path: Path) -> None:
    """The scan can list names faster than it can examine the files: 190,000 files take some 20 s on
    two busy cores."""
    (tmp_path / "step=40.ckpt").touch()
    times = iter([0.0])

    with pytest.raises(ScanError, match=re.escape(str(tmp_path))) as raised:
        scan(tmp_path, time_s=5.0, clock=lambda: next(times, 9.0))
    assert isinstance(raised.value.__cause__, folder_module.OutOfTimeError)


def test_links_in_circles_end_and_are_no_checkpoint(tmp_path: Path) -> None:
    sharded(tmp_path, 20)
    for step, target in ((40, "."), (60, ".."), (80, "step-80"), (100, "a")):
        (tmp_path / f"step-{step}").mkdir()
        (tmp_path / f"step-{step}" / "a").symlink_to(target)
    (tmp_path / "step-120").symlink_to("step-140")
    (tmp_path / "step-140").symlink_to("step-120")

    result = scan(tmp_path)

    assert result.chosen is not None
    assert result.chosen.step == 20
    reasons = {found.step: found.reason for found in result.checkpoints if found.step > 20}
    assert all(reasons.values())
    assert names(reasons[140], UNREADABLE, os.strerror(errno.ELOOP))


def test_an_orbax_item_that_is_a_link_to_its_own_checkpoint_ends(tmp_path: Path) -> None:
    root = Path(shutil.copytree(FIXTURES / "orbax-0.12.8" / "manager", tmp_path / "run"))
    shutil.rmtree(root / "40" / "state")
    (root / "40" / "state").symlink_to("../40")

    assert scan(root).chosen is None


def test_names_with_newlines_and_bytes_that_are_no_text_are_shown_escaped(tmp_path: Path) -> None:
    sharded(tmp_path, 20)
    (tmp_path / "step-40\n").mkdir()
    (sharded(tmp_path, 60, name="step-60") / "commit.json").unlink()
    for root in (tmp_path, tmp_path / "step-20", tmp_path / "step-60"):
        for name in (
            b"a\nb\x1b[31m",
            b"\xff\xfe",
            b"step-\xff80",
            b"epoch=1-step=\xff.ckpt",
            b"\xff.pdparams",
        ):
            Path(os.fsdecode(os.fsencode(root) + b"/" + name)).touch()
    (tmp_path / "step-80").mkdir()
    inner = os.fsdecode(os.fsencode(tmp_path) + b"/step-80/\xff\n")
    sharded(Path(inner), 80, name="x").rename(tmp_path / "moved")
    shutil.copytree(tmp_path / "moved", inner, dirs_exist_ok=True)
    Path(inner, "commit.json").unlink()

    result = scan(tmp_path)

    assert result.chosen is not None
    assert result.chosen.step == 20
    assert [found.step for found in result.checkpoints] == [80, 60, 20]
    assert names(result.checkpoints[0].reason, r"'\udcff\n'", "commit.json")
    assert msgspec.json.decode(msgspec.json.encode(result))["chosen"]["step"] == 20


def as_fifo(path: Path) -> None:
    os.mkfifo(path)


def as_socket(path: Path) -> None:
    here = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as made:  # /proc keeps the address below 107 characters
        made.bind(f"/proc/self/fd/{here}/{path.name}")
    os.close(here)


def as_device(path: Path) -> None:
    """Makes a device that never ends, or a link to one if this user may not make devices."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except PermissionError:
        path.symlink_to("/dev/zero")


def as_directory(path: Path) -> None:
    path.mkdir()


def as_link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize("make", [as_fifo, as_socket, as_device, as_directory, as_link_to_itself])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.folder)
def test_what_is_no_plain_file_never_blocks_a_scan(case: Case, make: object, tmp_path: Path) -> None:
    """Replaces each file of a real checkpoint in turn. A file that the reader does not need may be
    anything."""
    assert callable(make)
    began_s = time.monotonic()
    for number, file in enumerate(newest_files(FIXTURES / case.folder, case.step)):
        root = Path(shutil.copytree(FIXTURES / case.folder, tmp_path / str(number)))
        replaced = root / file.relative_to(FIXTURES / case.folder)
        before = scan(root).chosen
        replaced.unlink()
        make(replaced)

        after = scan(root)

        last_of_its_kind = file.parent.name != "d" or len(list(file.parent.iterdir())) == 1
        if last_of_its_kind and not str(file).endswith(case.blind + case.unsized):
            assert after.chosen != before, file
    assert time.monotonic() - began_s < ANSWER_S


@contextmanager
def without_rights() -> Iterator[None]:
    """Runs the block as the user nobody, because root may read everything."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_what_may_not_be_read_is_told_and_the_one_before_is_chosen() -> None:
    with tempfile.TemporaryDirectory() as folder:  # only this user can enter the parent of tmp_path
        root = Path(folder)
        root.chmod(0o755)
        for step in (20, 40, 60, 80):
            sharded(root, step)
        (root / "step-40" / "commit.json").chmod(0)
        (root / "step-60").chmod(0)
        (root / "step-80").chmod(0o644)  # its names can be listed, but no file in it can be opened

        with without_rights():
            result = scan(root)

        assert [(found.step, found.reason) for found in result.checkpoints] == [
            (80, f"'commit.json' {FORBIDDEN}"),
            (60, FORBIDDEN),
            (40, f"'commit.json' {FORBIDDEN}"),
            (20, ""),
        ]
        root.chmod(0)
        with without_rights(), pytest.raises(ScanError, match=os.strerror(errno.EACCES)):
            scan(root)
        root.chmod(0o755)


def test_steps_of_absurd_size_are_no_checkpoints_and_large_ones_are_compared_as_numbers(
    tmp_path: Path,
) -> None:
    sharded(tmp_path, 20)
    sharded(tmp_path, 999_999_999_999_999)
    for name in ("step-" + "9" * 16, "step-" + "9" * 250, "step--1", "step-1e9", "step-0x40"):
        (tmp_path / name).mkdir()

    assert [found.step for found in scan(tmp_path).checkpoints] == [999_999_999_999_999, 20]


HUGE = 2**63 - 1


def zarray(shape: list[int], chunks: list[int]) -> bytes:
    return json.dumps({"shape": shape, "chunks": chunks}).encode()


def fields_of_a_zip(count: int) -> bytes:
    """Returns an archive whose directory has this number of entries. Each entry has 16,000 fields, and
    none of them is the field that its length requires."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}.")
    whole = made.getvalue()
    begin, name = whole.index(b"PK\x01\x02"), b"archive/data.pkl"
    entry = bytearray(whole[begin : begin + 46])
    entry[20:24], entry[30:32] = b"\xff" * 4, struct.pack("<H", 65_532)
    directory = (bytes(entry) + name + b"\x02\0\0\0" * 16_383) * count
    return (
        whole[:begin]
        + directory
        + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, len(directory), begin, 0)
    )


@pytest.mark.parametrize(
    ("folder", "name", "content"),
    [
        ("paddle-3.3.1/folders", "step-40/model.pdopt", b"\x80\x04\x8e" + struct.pack("<Q", HUGE) + b"."),
        (
            "paddle-3.3.1/folders",
            "step-40/model.pdopt",
            b"\x80\x04\x95" + struct.pack("<Q", 2**64 - 1) + b".",
        ),
        ("paddle-3.3.1/folders", "step-40/model.pdopt", b"\x80\x02c" + b"x" * 100_000 + b"."),
        ("orbax-0.12.8/bare", "40/manifest.ocdbt", b"\x0c\xdb\x3a\x2a" + b"\xff" * 60),
        ("orbax-0.12.8/bare", "40/_METADATA", b"[" * 100_000),
        ("orbax-0.12.8/bare", "40/_sharding", b"[" * 100_000),
        ("orbax-0.12.8/bare", "40/_CHECKPOINT_METADATA", b"\xff\xfe"),
        (
            "orbax-0.12.8/noocdbt",
            "40/w/.zarray",
            b'{"shape": [1e300, 9223372036854775807], "chunks": [1, 1]}',
        ),
        ("orbax-0.12.8/noocdbt", "40/w/.zarray", b'{"shape": [9223372036854775807], "chunks": [0]}'),
        ("orbax-0.12.8/noocdbt", "40/w/.zarray", zarray([HUGE] * 10**6, [1] * 10**6)),
        ("orbax-0.12.8/noocdbt", "40/w/.zarray", zarray([10**4000] * 2, [1, 1])),
        ("orbax-0.12.8/noocdbt", "40/w/.zarray", zarray([100], [-1])),
        ("orbax-0.12.8/noocdbt", "40/w/.zarray", zarray([-100], [1])),
        (
            "orbax-0.12.8/manager",
            "40/_CHECKPOINT_METADATA",
            b'{"commit_timestamp_nsecs": 1' + b"0" * 5000 + b"}",
        ),
        (
            "paddlenlp-2.8.1/classic",
            "checkpoint-4/trainer_state.json",
            b'{"global_step": 1' + b"0" * 5000 + b"}",
        ),
        ("paddlenlp-2.8.1/classic", "checkpoint-4/rng_state.pth", pickle.dumps([1])[:-1]),
        ("paddlenlp-2.8.1/unified", "checkpoint-4/model-00001-of-99999.safetensors", b""),
        ("paddlenlp-2.8.1/unified", "checkpoint-4/model-00001-of-00001.safetensors", b"\xff" * 64),
        ("lightning-2.6.6/undated", "model-epoch=01.ckpt", fields_of_a_zip(300)),
        (
            "lightning-2.6.6/undated",
            "model-epoch=01.ckpt",
            b"PK\x03\x04" + b"\xff" * 64 + b"PK\x05\x06" + b"\xff" * 18,
        ),
    ],
)
def test_numbers_of_absurd_size_inside_a_file_cost_nothing(
    folder: str, name: str, content: bytes, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(FIXTURES / folder, tmp_path / "run"))
    before = scan(root).chosen
    began_s = time.monotonic()
    (root / name).write_bytes(content)

    result = scan(root)

    assert result.chosen != before
    assert time.monotonic() - began_s < ANSWER_S


def test_ranks_of_absurd_number_cost_nothing(tmp_path: Path) -> None:
    """If the experts are parallel, each rank has a part, and the name of one file gives the number of
    ranks."""
    root = Path(shutil.copytree(FIXTURES / "paddlenlp-2.8.1" / "classic", tmp_path / "run"))
    newest = root / "checkpoint-4"
    (newest / "rng_state.pth").rename(newest / "rng_state_999999999.pth")
    (newest / "model_state.pdparams").rename(newest / "model_state.moe00.pdparams")
    arguments = b"cpaddlenlp\nArguments\n)\x81}X\x13\x00\x00\x00use_expert_parallel\x88sb."
    (newest / "training_args.bin").write_bytes(b"\x80\x02" + arguments)

    (found,) = [found for found in scan(root).checkpoints if found.step == 4]

    assert names(found.reason, "'training_args.bin'", 100000)


def paddle_index(tmp_path: Path, files: Iterable[str]) -> Path:
    """Returns a classic checkpoint that is complete except for the files that an additional index names."""
    root = Path(shutil.copytree(FIXTURES / "paddlenlp-2.8.1" / "classic", tmp_path / "run"))
    weights = {str(number): name for number, name in enumerate(files)}
    (root / "checkpoint-4" / "a.index.json").write_text(json.dumps({"weight_map": weights}))
    return root


def numbered(count: int) -> list[str]:
    return ["m.s.index.json", *(f"m-{number:05}-of-{count:05}.s" for number in range(1, count + 1))]


def test_numbered_parts_of_the_greatest_count_are_each_looked_at_once(tmp_path: Path) -> None:
    root = paddle_index(tmp_path, numbered(99_999))
    began_s = time.monotonic()

    scan(root, time_s=1000.0)

    assert time.monotonic() - began_s < ANSWER_S


def test_the_time_ends_a_look_at_numbered_parts(tmp_path: Path) -> None:
    root = paddle_index(tmp_path, numbered(50_000))
    at_s = itertools.count()

    result = scan(root, time_s=60.0, clock=lambda: float(next(at_s)))

    assert result.chosen is None
    assert "not examined" in result.checkpoints[0].reason


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ([f"{number}.s" for number in range(200_001)], "200000"),
        (["-00001-of-00001" * 100_000 + ".\n"], "1500002"),  # a pattern would try to match this for hours
    ],
    ids=["more files than a directory has", "a name longer than any file has"],
)
def test_an_index_that_names_what_no_directory_holds_is_damaged(
    files: list[str], named: str, tmp_path: Path
) -> None:
    began_s = time.monotonic()

    (found,) = scan(paddle_index(tmp_path, files)).checkpoints

    assert not found.complete
    assert named in found.reason
    assert time.monotonic() - began_s < ANSWER_S


def test_names_of_tensors_are_held_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(shutil.copytree(FIXTURES / "transformers-5.23.0" / "sharded", tmp_path / "run"))
    assert scan(root).chosen is not None

    monkeypatch.setattr(hf_parts, "TENSOR_NAMES_CHARS_MAX", 20)

    assert scan(root).chosen is None


def test_long_lines_in_a_pickle_are_no_trainers(tmp_path: Path) -> None:
    root = Path(shutil.copytree(FIXTURES / "paddle-3.3.1" / "files", tmp_path / "run"))
    before = scan(root).chosen
    assert before is not None
    (newest,) = [path for path in root.glob("*.pdopt") if path.stem == before.path]
    newest.write_bytes(b"\x80\x02" + (b"c" + b"m" * 300 + b"\nname\n0") * 10 + b".")

    result = scan(root)

    assert result.chosen != before
    assert "a line without end" in result.checkpoints[0].reason


class Odd:
    """A reader that raises an error which nobody foresaw."""

    name = "odd"

    def __init__(self, error: type[Exception], size_bytes: int = 0) -> None:
        self.error = error
        self.size_bytes = size_bytes

    def recognises(self, folder: folder_module.Folder) -> bool:
        return "odd" in folder.files

    def read(self, folder: folder_module.Folder, step: int) -> Verdict:
        if self.size_bytes:
            return Verdict(complete=True, bytes=self.size_bytes)
        raise self.error("x" * 500)


@pytest.mark.parametrize("error", [ValueError, OverflowError, RecursionError, MemoryError, UnicodeError])
def test_an_entry_that_breaks_its_reader_takes_the_older_one_from_nobody(
    error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_module, "READERS", (Odd(error), *scan_module.READERS))
    sharded(tmp_path, 20)
    (tmp_path / "step-40").mkdir()
    (tmp_path / "step-40" / "odd").touch()

    result = scan(tmp_path)

    assert result.chosen is not None
    assert result.chosen.step == 20
    assert names(result.checkpoints[0].reason, error.__name__)
    assert len(result.checkpoints[0].reason) < 200


def test_sparse_files_of_absurd_size_can_be_told_in_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_module, "READERS", (Odd(ValueError, 3 * HUGE),))
    (tmp_path / "step-40").mkdir()
    (tmp_path / "step-40" / "odd").touch()

    result = scan(tmp_path)

    assert b'"step":40' in encode_message(message_of(result))
