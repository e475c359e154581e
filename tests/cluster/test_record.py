"""The record of what a cluster has put on the machine, tested without a cluster."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cluster import record


def test_of_a_clusters_folder_the_record_is_removed_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A removal of gigabytes takes seconds: if it is killed, the next call must find the record."""
    folder, remove = tmp_path / "cluster", shutil.rmtree

    def watched(path: Path) -> None:
        others = [other for other in folder.iterdir() if other.is_dir()]
        assert path != folder or not others, "the record would go with them, in any order"
        remove(path)

    monkeypatch.setattr(record, "FOLDER", folder)
    monkeypatch.setattr(shutil, "rmtree", watched)
    made = record.Record.begin()
    (folder / "worker-1" / "var-lib").mkdir(parents=True)

    made.remove()

    assert not folder.exists()
