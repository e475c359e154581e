"""Weights that only the training's own user may read, as safetensors 0.8 leaves them (mode 0600)."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from recover.checkpoints.folder import FORBIDDEN
from recover.checkpoints.scan import ScanError, scan
from recover.checkpoints.scan_result import Repair, ScanResult
from recover.checkpoints.set_aside import would_repair
from tests.facts import names
from tests.recover.checkpoints.test_hostile_folders import without_rights
from tests.recover.checkpoints.test_torch_family import FIXTURES


@pytest.fixture
def root() -> Iterator[Path]:
    """Yields a new folder outside pytest's own folders, because these lie below a folder that only its
    user can enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def laid(root: Path, kind: str) -> list[Path]:
    """Copies checkpoint-40 into the root, and returns its weights, which only their owner may read."""
    shutil.copytree(FIXTURES / "transformers-5.23.0" / kind / "checkpoint-40", root / "checkpoint-40")
    weights = sorted((root / "checkpoint-40").glob("*.safetensors"))
    for file in weights:
        file.chmod(0o600)
    return weights


def scanned(root: Path, *, other_user: bool = True, digests: bool = False) -> ScanResult:
    with without_rights():
        return scan(root, other_user=other_user, digests=digests)


@pytest.mark.parametrize("kind", ["plain", "sharded", "two-ranks"])
def test_weights_that_have_their_name_are_whole_although_nobody_else_may_read_them(
    root: Path, kind: str
) -> None:
    weights = laid(root, kind)
    chosen = scanned(root).chosen
    assert chosen is not None
    assert (chosen.step, chosen.complete) == (40, True)
    assert names(chosen.reason, f"'{weights[0].name}'")
    assert chosen.bytes > sum(file.stat().st_size for file in weights)


def test_a_scan_as_the_training_s_own_user_counts_what_it_may_not_read_as_lost(root: Path) -> None:
    laid(root, "plain")
    (found,) = scanned(root, other_user=False).checkpoints
    assert not found.complete
    assert found.reason == f"'model.safetensors' {FORBIDDEN}"


def test_bytes_that_are_to_be_compared_must_be_read(root: Path) -> None:
    laid(root, "plain")
    with pytest.raises(ScanError, match=re.escape(FORBIDDEN)) as refused:
        scanned(root, digests=True)
    assert names(str(refused.value), 40, "'model.safetensors'")


def test_unread_weights_without_a_byte_are_damaged(root: Path) -> None:
    (file,) = laid(root, "plain")
    file.write_bytes(b"")
    (found,) = scanned(root).checkpoints
    assert not found.complete
    assert names(found.reason, "'model.safetensors'", 0)


def test_unread_weights_that_are_smaller_than_in_the_checkpoint_before_are_damaged(root: Path) -> None:
    """A node that lost its power leaves such files: the names exist, but not all of the bytes do."""
    (file,) = laid(root, "plain")
    before = root / "checkpoint-20"
    shutil.copytree(file.parent, before)
    state = before / "trainer_state.json"
    state.write_text(json.dumps(json.loads(state.read_text()) | {"global_step": 20}))
    size_bytes = file.stat().st_size
    file.write_bytes(file.read_bytes()[:-1])
    result = scanned(root)
    reason = result.checkpoints[0].reason
    assert names(reason, "'model.safetensors'", size_bytes - 1, "'checkpoint-20'", size_bytes)
    assert result.chosen is not None
    assert result.chosen.step == 20
    # The older checkpoint may be of another, larger model that was trained here before.
    assert would_repair(root, result, None, [Repair.SET_ASIDE]) == []


def test_unread_shards_that_are_smaller_than_their_index_says_are_damaged(root: Path) -> None:
    first, *_ = laid(root, "sharded")
    first.write_bytes(first.read_bytes()[:16])
    (found,) = scanned(root).checkpoints
    assert not found.complete
    assert names(found.reason, "'model.safetensors.index.json'")


@pytest.mark.parametrize(
    "metadata",
    [
        {"total_size": 10**9},
        {"total_size": 10**400},
        {"total_size": "1392"},
        {"total_size": None},
        "by hand",
        [1],
        None,
    ],
)
def test_what_an_index_says_of_the_size_is_nothing_to_shards_that_were_read(
    root: Path, metadata: object
) -> None:
    """The library counts the whole memory behind a tensor. This may be more than the saved part, for
    example of a table of 1024 positions that was cut to 512."""
    for file in laid(root, "sharded"):
        file.chmod(0o644)
    index = root / "checkpoint-40" / "model.safetensors.index.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | {"metadata": metadata}))
    chosen = scanned(root).chosen
    assert chosen is not None
    assert (chosen.step, chosen.reason) == (40, "")


@pytest.mark.parametrize("total_size", [10**400, 1e300])
def test_a_size_of_absurd_length_is_told_shortly(root: Path, total_size: float) -> None:
    laid(root, "sharded")
    index = root / "checkpoint-40" / "model.safetensors.index.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | {"metadata": {"total_size": total_size}}))
    (found,) = scanned(root).checkpoints
    assert not found.complete
    assert names(found.reason, "'model.safetensors.index.json'")
    assert len(found.reason) < 250


def test_weights_with_another_mode_were_not_written_under_another_name_first(root: Path) -> None:
    """An older library writes into the file itself, so the file's name does not prove that the write
    ended."""
    (file,) = laid(root, "plain")
    file.chmod(0o620)
    with pytest.raises(ScanError, match=re.escape(FORBIDDEN)) as refused:
        scanned(root)
    assert names(str(refused.value), 40, "'model.safetensors'")


def test_a_save_that_was_cut_off_is_no_checkpoint_whoever_may_read_it(root: Path) -> None:
    """The Trainer writes its state last."""
    laid(root, "plain")
    (root / "checkpoint-40" / "trainer_state.json").unlink()
    (found,) = scanned(root).checkpoints
    assert not found.complete
    assert names(found.reason, "trainer_state.json")
