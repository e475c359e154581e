"""Tests that the scan reads a DCP index that torch wrote, refuses one that somebody else wrote, and runs
nothing in either."""

from __future__ import annotations

import os
import pickle
import shutil
import tracemalloc
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recover.checkpoints.folder import DamagedError, Folder
from recover.checkpoints.inert_pickle import Inert, load_inert
from recover.checkpoints.scan_result import Verdict
from recover.checkpoints.torch_dcp import INDEX_BYTES_MAX, TorchDcp, pieces_in
from recover.recovery.scan_spec import MEMORY_LIMIT
from tests.facts import names

FIXTURE = Path(__file__).parent / "fixtures" / "torch-dcp-2.15.0" / "step-40"
INDEX = (FIXTURE / ".metadata").read_bytes()


def read(directory: Path) -> Verdict:
    return TorchDcp().read(Folder(directory, lambda: None), step=40)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURE, tmp_path / "step-40"))


def test_what_torch_wrote_is_complete(checkpoint: Path) -> None:
    assert read(checkpoint) == Verdict(complete=True, bytes=1577 + 4415)


def test_a_data_file_one_byte_short_is_incomplete(checkpoint: Path) -> None:
    os.truncate(checkpoint / "__1_0.distcp", 4414)

    assert names(read(checkpoint).reason, "'__1_0.distcp'", 4414, ".metadata", 4415)


def test_a_data_file_that_is_longer_than_needed_is_complete(checkpoint: Path) -> None:
    os.truncate(checkpoint / "__1_0.distcp", 5000)

    assert read(checkpoint).complete


@pytest.mark.parametrize(("said", "complete"), [("20", False), ("40", True), ("60", True), (None, True)])
def test_an_iteration_of_megatron_needs_its_tracker_too(
    said: str | None, complete: bool, checkpoint: Path
) -> None:
    """Megatron's formats torch_dcp and fsdp_dtensor are plain torch-dcp, and Megatron loads the iteration of
    its tracker."""
    if said is not None:
        (checkpoint.parent / "latest_checkpointed_iteration.txt").write_text(said)
    moved = checkpoint.rename(checkpoint.parent / "iter_0000040")

    if complete:
        assert read(moved).complete
    else:
        with pytest.raises(DamagedError, match=r"latest_checkpointed_iteration\.txt says 20"):
            read(moved)


def test_a_missing_data_file_is_incomplete(checkpoint: Path) -> None:
    (checkpoint / "__0_0.distcp").unlink()

    with pytest.raises(DamagedError, match=r"'__0_0\.distcp'"):
        read(checkpoint)


def test_without_its_index_it_was_never_finished(checkpoint: Path) -> None:
    (checkpoint / ".metadata").rename(checkpoint / ".metadata.tmp")

    with pytest.raises(DamagedError, match=r"\.metadata\b.*\b2\b"):
        read(checkpoint)


def test_an_index_per_rank_says_that_it_cannot_be_judged(checkpoint: Path) -> None:
    (checkpoint / ".metadata").rename(checkpoint / "__0.metadata")

    with pytest.raises(DamagedError) as raised:
        read(checkpoint)
    (checkpoint / "__0.metadata").unlink()
    with pytest.raises(DamagedError) as never_finished:
        read(checkpoint)

    assert str(raised.value) != str(never_finished.value)


def test_an_index_that_leads_out_of_the_directory_is_refused(checkpoint: Path) -> None:
    (checkpoint / ".metadata").write_bytes(INDEX.replace(b"__0_0.distcp", b"../../passwd"))

    with pytest.raises(DamagedError, match=r"'\.\./\.\./passwd'"):
        read(checkpoint)


def test_an_entry_without_length_is_refused(checkpoint: Path) -> None:
    (checkpoint / ".metadata").write_bytes(INDEX.replace(b"\x8c\x06length", b"\x8c\x06lengtx"))

    with pytest.raises(DamagedError, match=r"relative_path\b.*\boffset\b.*\blength"):
        read(checkpoint)


@pytest.mark.parametrize("index", [pickle.dumps({"storage_data": {}}), pickle.dumps(None)])
def test_another_pickle_is_not_an_index(index: bytes, checkpoint: Path) -> None:
    (checkpoint / ".metadata").write_bytes(index)

    with pytest.raises(DamagedError, match=r"\.metadata\b.*\bstorage_data"):
        read(checkpoint)


class Thing:
    """Stands for any class of torch that occurs in an index by the thousand. It has attributes and nothing
    else."""

    def __init__(self, **state: object) -> None:
        vars(self).update(state)


def large_index(count: int) -> bytes:
    """Returns an index as torch writes it: for each piece the place in its tensor and the place in a file."""
    shards = [
        Thing(offsets=Place((rank, 0)), sizes=Place((rank + 1, 28672)))
        for rank in range(100_000, 100_000 + count)
    ]
    stored = {
        Thing(fqn="model.layers.0.mlp.down_proj.weight", offset=Place((rank, 0)), index=rank): Thing(
            relative_path=f"__{rank}_0.distcp", offset=rank, length=rank, transform_descriptors=None
        )
        for rank in range(100_000, 100_000 + count)
    }
    return pickle.dumps(Thing(state_dict_metadata={"weight": Thing(chunks=shards)}, storage_data=stored))


class Place(tuple[int, ...]):
    """Stands for torch.Size, which is pickled by its constructor."""

    def __reduce__(self) -> tuple[type[Place], tuple[tuple[int, ...]]]:
        return Place, (tuple(self),)


def test_the_largest_index_that_is_read_fits_into_the_memory_of_a_scan(checkpoint: Path) -> None:
    """A job of 256 ranks and 723 tensors with two moments each has 555,000 pieces: an index of 83 MB, and
    1.3 GiB of memory here."""
    (checkpoint / ".metadata").write_bytes(index := large_index(4000))
    tracemalloc.start()
    try:
        data = (checkpoint / ".metadata").read_bytes()
        found = list(pieces_in(data))
        assert len(msgspec.msgpack.encode(found)) > 4000  # the form in which the child hands it to its parent
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert MEMORY_LIMIT.endswith("Gi")
    assert peak_bytes / len(index) * INDEX_BYTES_MAX < int(MEMORY_LIMIT.removesuffix("Gi")) * 2**30


class Payload:
    """Runs a shell command in the process that unpickles it in the ordinary way."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (self.command,)


def test_a_pickle_that_would_run_a_command_is_refused_and_nothing_runs(checkpoint: Path) -> None:
    proof = checkpoint / "it-ran"
    malicious = pickle.dumps(Payload(f"touch {proof}"))
    (checkpoint / ".metadata").write_bytes(malicious)

    with pytest.raises(DamagedError, match=r"\bposix\.system\b"):
        read(checkpoint)
    assert not proof.exists()

    pickle.loads(malicious)  # the payload does run, so the test above can fail
    assert proof.exists()


@pytest.mark.parametrize(
    "name",
    ["builtins eval", "builtins exec", "builtins __import__", "subprocess Popen", "os system", "nt system"],
)
def test_functions_of_the_standard_library_are_not_even_looked_up(name: str) -> None:
    module, function = name.split()
    with pytest.raises(ValueError, match=rf"\b{module}\.{function}\b"):
        load_inert(f"c{module}\n{function}\n.".encode())


def test_a_class_that_nobody_knows_becomes_a_stand_in_with_its_state() -> None:
    made = load_inert(b"cmegatron.core\nMetadata\n)\x81}X\x01\x00\x00\x00aK\x07sb.")

    assert isinstance(made, Inert)
    assert made.state == {"a": 7}


@pytest.mark.parametrize(
    "bomb",
    [
        b"K\x01r\xff\xff\xff\x7f.",  # a memo slot with a high number: a table of 32 GiB
        b"\x96\x00\x00\x00\x00\x10\x00\x00\x00.",  # a bytearray of 64 GiB whose bytes are missing
    ],
)
def test_a_few_bytes_cannot_ask_for_gigabytes(bomb: bytes) -> None:
    with pytest.raises(ValueError, match=r"MemoryError|UnpicklingError|EOFError"):
        load_inert(bomb)


@settings(max_examples=300, deadline=None)
@given(at=st.integers(0, len(INDEX) - 1), value=st.integers(0, 255))
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_index_with_any_byte_changed_is_read_or_refused(at: int, value: int) -> None:
    damaged = INDEX[:at] + bytes([value]) + INDEX[at + 1 :]

    with suppress(ValueError):
        load_inert(damaged)
