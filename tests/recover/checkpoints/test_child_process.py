"""Files that keep their reader busy without end, or break it: the scan still chooses the older checkpoint."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
import signal
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from recover.checkpoints import child_process
from recover.checkpoints.child_process import ANSWER_BYTES_MAX, cpu_s_for, in_child
from recover.checkpoints.folder import TOO_LARGE, UNREADABLE, DamagedError, Folder, OutOfTimeError
from recover.checkpoints.scan import ScanError, scan
from recover.checkpoints.torch_archive import outline
from tests.facts import names

FIXTURES = Path(__file__).parent / "fixtures"
LEGACY = FIXTURES / "torch-save-2.15.0/legacy/step-40.pt"
ANSWER_S = 20.0

NESTED = b")" + b"2\x86" * 40
"""A tuple of two tuples of two tuples and so on. Its hash and its text take 2**40 steps."""
HASHED = b"\x80\x02}" + NESTED + b"K\x01s."
COLLIDING = (
    b"\x80\x02}("
    + b"".join(b"\x8a\x0c" + ((2**61 - 1) * n).to_bytes(12, "little") + b"K\x00" for n in range(9, 100_000))
    + b"u."
)
"""Keys with one hash: Python compares each key with all keys before it."""


@pytest.fixture(autouse=True)
def little_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "CPU_S_MIN", 0.3)


def zipped(path: Path, pickled: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)


def lightning(path: Path, step: object) -> None:
    zipped(path, pickle.dumps({"global_step": step, "optimizer_states": []}, protocol=2))


def global_step(value: bytes) -> bytes:
    return b"\x80\x02}X\x0b\x00\x00\x00global_step" + value + b"s."


def as_ckpt(root: Path, content: bytes) -> None:
    zipped(root / "epoch=3-step=60.ckpt", content)


def as_last_ckpt(root: Path, content: bytes) -> None:
    zipped(root / "last.ckpt", content)


def as_legacy(root: Path, content: bytes) -> None:
    (root / "step-60.pt").write_bytes(LEGACY.read_bytes()[:15] + content)


def as_index(root: Path, content: bytes) -> None:
    shutil.copytree(FIXTURES / "torch-dcp-2.15.0" / "step-40", root / "step-60")
    (root / "step-60" / ".metadata").write_bytes(content)


@pytest.mark.parametrize("pickled", [HASHED, COLLIDING], ids=["hashed", "colliding"])
@pytest.mark.parametrize("place", [as_ckpt, as_last_ckpt, as_legacy, as_index])
def test_a_pickle_without_end_is_passed_over(
    place: Callable[[Path, bytes], None], pickled: bytes, tmp_path: Path
) -> None:
    lightning(tmp_path / "epoch=2-step=40.ckpt", 40)
    place(tmp_path, pickled)
    began_s = time.monotonic()

    result = scan(tmp_path)

    assert result.chosen is not None
    assert result.chosen.step == 40
    assert time.monotonic() - began_s < ANSWER_S
    if place is not as_last_ckpt:  # this file names no step, so it is the oldest
        assert UNREADABLE in result.checkpoints[0].reason


HUGE = (10**5000).to_bytes(2077, "little")


@pytest.mark.parametrize(
    "value",
    [
        NESTED,
        b")" + b"\x85" * 200_000,  # nested tuples, deeper than Python can print
        b"\x8b" + struct.pack("<i", len(HUGE)) + HUGE,  # more digits than Python prints
        b"G\x7f\xf8\x00\x00\x00\x00\x00\x00",  # nan
        b"X\x03\x00\x00\x00\xed\xa0\x80",  # a text that is not UTF-8
        b"cos\nsystem\n",
    ],
    ids=["nested", "deep", "digits", "nan", "surrogate", "system"],
)
@pytest.mark.parametrize("place", [as_ckpt, as_last_ckpt])
def test_a_step_that_is_none_takes_the_older_checkpoint_from_nobody(
    place: Callable[[Path, bytes], None], value: bytes, tmp_path: Path
) -> None:
    lightning(tmp_path / "epoch=2-step=40.ckpt", 40)
    place(tmp_path, global_step(value))

    result = scan(tmp_path)

    assert result.chosen is not None
    assert result.chosen.step == 40
    assert [found.complete for found in result.checkpoints if found.step != 40] == [False]


@pytest.mark.parametrize("step", [2**53, 2**60, 2**80, -1, True, 1e300, "60"])
def test_a_step_that_the_controller_would_refuse_is_none(step: object, tmp_path: Path) -> None:
    """Otherwise this step would be the newest, and no older checkpoint would be used."""
    lightning(tmp_path / "last.ckpt", step)
    lightning(tmp_path / "epoch=2-step=40.ckpt", 40)

    chosen = scan(tmp_path).chosen

    assert chosen is not None
    assert chosen.step == 40


# --- the process itself -----------------------------------------------------------------------------------


def busy() -> None:
    while True:
        pass


def sleep() -> None:
    time.sleep(60)


def never() -> None:
    """Does not end the scan, because its time is not over."""


def test_what_is_answered_comes_back_whatever_its_size() -> None:
    """The answer is larger than the 64 KiB that a pipe holds."""
    answer = in_child("x", lambda: list(range(10**6)), list[int], cpu_s=20.0, check_time=never)

    assert answer == list(range(10**6))


def test_an_answer_that_is_too_long_is_refused_by_the_process_that_gives_it() -> None:
    with pytest.raises(DamagedError, match=f"'x' cannot be read: .* {ANSWER_BYTES_MAX} bytes"):
        in_child("'x'", lambda: "y" * ANSWER_BYTES_MAX, str, cpu_s=20.0, check_time=never)


def test_an_answer_that_is_too_long_is_read_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_long(what: str, work: Callable[[], object]) -> tuple[bytes, bytes]:
        return b"+", b"y" * (2 * ANSWER_BYTES_MAX)

    monkeypatch.setattr(child_process, "_answer", too_long)
    with pytest.raises(DamagedError, match=f"'x' cannot be read: .* {ANSWER_BYTES_MAX} bytes"):
        in_child("'x'", lambda: "", str, cpu_s=20.0, check_time=never)


def test_what_is_made_of_a_pickle_may_take_no_more_memory_than_the_pickle_itself() -> None:
    with pytest.raises(DamagedError, match="MemoryError"):
        in_child("'x'", lambda: len(bytearray(2**29)), int, cpu_s=20.0, check_time=never)
    assert in_child(
        "'x'", lambda: len(bytearray(2**29)), int, cpu_s=20.0, check_time=never, memory_bytes=2**30
    )


def test_a_long_name_that_many_keys_share_is_handed_over_by_none(tmp_path: Path) -> None:
    """If the name were repeated, one attribute's name of 1 MiB, to which 1,434 keys of the file refer,
    would make an answer of 1.4 GiB."""
    name = b"X" + struct.pack("<I", 2**20) + b"k" * 2**20
    shared = b"ctorch\nA\n)\x81q\x00}(" + name + b"K\x00X\x05\x00\x00\x00shortK\x01ub0"
    keys = b"".join(b"X\x05\x00\x00\x00%05dh\x00" % number for number in range(1434))
    zipped(tmp_path / "x.ckpt", b"\x80\x02" + shared + b"}(" + keys + name + b"K\x00u.")

    found = outline(Folder(tmp_path, never), "x.ckpt")

    assert len(found) == 1434
    assert found["00000"] == {"short": 1}


def test_the_time_of_the_scan_ends_a_process_that_waits() -> None:
    """This covers a file system that does not answer, as far as the kernel lets the process end."""
    began_s = time.monotonic()

    def over() -> None:
        raise OutOfTimeError

    with pytest.raises(OutOfTimeError):
        in_child("x", sleep, type(None), cpu_s=20.0, check_time=over)
    assert time.monotonic() - began_s < ANSWER_S


def test_a_process_that_is_ended_says_how(capfd: pytest.CaptureFixture[str]) -> None:
    def killed() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def broken() -> None:
        raise AssertionError("a bug")

    def damaged() -> None:
        raise DamagedError("'x' is cut")

    def huge() -> None:
        raise MemoryError

    for work, facts in (
        (busy, ["'x'", UNREADABLE, "0 s"]),
        (killed, ["'x'", TOO_LARGE]),
        (broken, ["'x'", UNREADABLE, 256]),
        (damaged, ["'x' is cut"]),
        (huge, ["MemoryError"]),
    ):
        with pytest.raises(DamagedError) as raised:
            in_child("'x'", work, type(None), cpu_s=0.2, check_time=never)
        assert names(str(raised.value), *facts)
    assert "a bug" in capfd.readouterr().err


def test_without_a_further_process_the_file_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", refused)
    lightning(tmp_path / "last.ckpt", 60)
    lightning(tmp_path / "epoch=2-step=40.ckpt", 40)

    found = scan(tmp_path).checkpoints

    assert names(found[0].reason, "'epoch=2-step=40.ckpt'", UNREADABLE, os.strerror(errno.EAGAIN))
    assert [entry.complete for entry in found] == [False, False]


def test_a_large_index_may_take_its_time() -> None:
    """This index is a torch-dcp's. The sum over its pieces takes 0.06 s for each MiB."""
    assert cpu_s_for(45 * 2**20) > 10 * 45 * 0.06


def test_time_that_is_over_in_an_unpickler_is_told_and_nothing_older_is_chosen(tmp_path: Path) -> None:
    """A pickle that is large enough may take all of the time; then the scan cannot know whether it is
    complete."""
    lightning(tmp_path / "epoch=2-step=40.ckpt", 40)
    as_index(tmp_path, HASHED)

    result = scan(tmp_path, time_s=0.1)

    assert result.chosen is None
    assert (result.checkpoints[0].format, result.checkpoints[0].complete) == ("", False)
    assert names(result.checkpoints[0].reason, "0.1 s")


def test_a_root_whose_undated_file_takes_all_of_the_time_is_an_error(tmp_path: Path) -> None:
    as_last_ckpt(tmp_path, HASHED)

    with pytest.raises(ScanError) as raised:
        scan(tmp_path, time_s=0.1)
    assert isinstance(raised.value.__cause__, OutOfTimeError)
