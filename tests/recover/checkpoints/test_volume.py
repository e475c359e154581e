"""Tests a volume that the scan mounts at another path than the training, and links that a tenant may have
put there."""

from __future__ import annotations

import errno
import os
import re
import stat
import tempfile
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recover.checkpoints.folder import FORBIDDEN
from recover.checkpoints.scan import ScanError, scan
from recover.checkpoints.scan_result import ScanMessage, ScanResult, decode_message
from recover.checkpoints.volume import OUTSIDE, MountedVolume
from recover.cli.checkpoints_command import run
from tests.facts import names
from tests.recover.checkpoints.test_hostile_folders import without_rights
from tests.recover.checkpoints.test_scan import sharded

MOUNT = PurePosixPath("/ckpt")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Returns the path at which the scan has the volume. The training mounts it at /ckpt. The folder
    `elsewhere` beside it is no part of the volume."""
    sharded(tmp_path / "elsewhere", 80)
    (tmp_path / "volume").mkdir()
    return tmp_path / "volume"


def scanned(here: Path, path: str = "/ckpt") -> ScanResult:
    return scan(Path(path), volume=MountedVolume(here, MOUNT))


def step_chosen(result: ScanResult) -> int | None:
    return result.chosen.step if result.chosen else None


@pytest.mark.parametrize(
    "target",
    ["/ckpt/runs/5/step-80", "runs/5/step-80", "../ckpt/runs/5/step-80", "/ckpt/runs/latest/step-80"],
)
def test_a_link_is_followed_in_the_volume_however_the_training_names_its_place(
    here: Path, target: str
) -> None:
    sharded(here, 40)
    sharded(here / "runs" / "5", 80)
    (here / "runs" / "latest").symlink_to("/ckpt/runs/5")
    (here / "step-80").symlink_to(target)

    found = scanned(here).chosen

    assert found is not None
    assert (found.step, found.path) == (80, "step-80")


def test_the_path_of_the_annotation_may_lead_through_links(here: Path) -> None:
    sharded(here / "runs" / "5", 80)
    (here / "latest").symlink_to("/ckpt/runs/5")

    assert step_chosen(scanned(here, "/ckpt/latest")) == 80


@pytest.mark.parametrize(
    "target", ["{elsewhere}/step-80", "../elsewhere/step-80", "/ckpt/../{elsewhere}/step-80"]
)
def test_a_link_that_leads_out_of_the_volume_is_not_followed_and_nothing_older_chosen(
    here: Path, target: str
) -> None:
    """The training may mount the link's target, so the scan cannot know whether the newest checkpoint is
    complete."""
    sharded(here, 40)
    (here / "step-80").symlink_to(target.format(elsewhere=here.parent / "elsewhere"))

    result = scanned(here)

    assert result.chosen is None
    newest, older = result.checkpoints
    assert OUTSIDE in newest.reason
    assert names(newest.reason, "'/ckpt'")
    assert (older.format, older.complete) == ("", False)
    assert names(older.reason, 80)


def test_a_file_of_a_checkpoint_that_is_a_link_is_read_in_the_volume_only(here: Path) -> None:
    inside, outside = sharded(here, 40), sharded(here, 60)
    (inside / "commit.json").rename(here / "kept.json")
    (inside / "commit.json").symlink_to("/ckpt/kept.json")
    assert step_chosen(scanned(here)) == 60

    (outside / "commit.json").unlink()
    (outside / "commit.json").symlink_to(here.parent / "elsewhere" / "step-80" / "commit.json")

    result = scanned(here)
    assert OUTSIDE in result.checkpoints[0].reason
    assert result.chosen is None


def test_a_path_that_leads_out_of_the_volume_is_told_with_the_training_s_own_path(here: Path) -> None:
    (here / "latest").symlink_to(here.parent / "elsewhere")

    for path in ("/ckpt/latest", "/other", "/"):
        with pytest.raises(ScanError, match=re.escape(OUTSIDE)) as raised:
            scanned(here, path)
        assert str(raised.value).startswith(f"{path}: ")


def test_links_in_circles_end(here: Path) -> None:
    (here / "a").symlink_to("/ckpt/b")
    (here / "b").symlink_to("/ckpt/a")

    with pytest.raises(ScanError, match=os.strerror(errno.ELOOP)):
        scanned(here, "/ckpt/a")


def told(here: Path, path: str, *options: str) -> ScanMessage:
    said = here.parent / "said"
    run(["scan", path, "--message-file", str(said), "--volume", str(here), "--mounted-at", "/ckpt", *options])
    return decode_message(said.read_bytes())


def test_the_scan_pod_s_command_tells_the_training_s_paths_and_repairs_in_the_volume(here: Path) -> None:
    sharded(here / "runs" / "5", 40)
    (sharded(here / "runs" / "5", 80) / "commit.json").unlink()
    (here / "latest").symlink_to("/ckpt/runs/5")

    found = told(here, "/ckpt/latest", "--repair", "set-aside", "--write", "--mark", "m")

    assert found.chosen is not None
    assert found.chosen.path == "step-40"
    (line,) = found.repaired
    assert names(line, "'step-80'", "rekindle-set-aside-m")
    assert (here / "runs" / "5" / "rekindle-set-aside-m" / "step-80").is_dir()
    assert names(told(here, "/ckpt/none").error, "/ckpt/none", os.strerror(errno.ENOENT))


def test_nothing_is_repaired_where_a_link_leads_out_of_the_volume(here: Path) -> None:
    elsewhere = here.parent / "elsewhere"
    (sharded(elsewhere, 90) / "commit.json").unlink()
    (here / "latest").symlink_to(elsewhere)

    found = told(here, "/ckpt/latest", "--repair", "set-aside", "--write")

    assert OUTSIDE in found.error
    assert sorted(path.name for path in elsewhere.iterdir()) == ["step-80", "step-90"]


def test_a_volume_needs_its_place_in_the_training_and_the_reverse(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["scan", "/ckpt", "--volume", str(here)]) == 2
    assert run(["scan", "/ckpt", "--mounted-at", "/ckpt"]) == 2
    assert run(["scan", "/ckpt", "--volume", str(here), "--mounted-at", "ckpt"]) == 2
    assert run(["scan", "/ckpt", "--volume", str(here / "none"), "--mounted-at", "/ckpt"]) == 2
    assert names(capsys.readouterr().err, here / "none", os.strerror(errno.ENOENT))


def test_what_only_the_training_s_user_may_read_is_not_replaced_by_an_older_one() -> None:
    """A training that runs as root may make files that other users cannot read, and the scan never runs as
    root."""
    with tempfile.TemporaryDirectory() as folder:  # only this user can enter the parent of tmp_path
        root = Path(folder)
        root.chmod(0o755)
        for step in (40, 60):
            sharded(root, step)
        (root / "step-60" / "commit.json").chmod(0)

        with without_rights():
            assert step_chosen(scan(root)) == 40
            with pytest.raises(ScanError, match=re.escape(FORBIDDEN)) as refused:
                scan(root, other_user=True)
            assert step_chosen(scan(root, other_user=True, exclude={60})) == 40
        assert names(str(refused.value), 60, "'commit.json'", "runAsUser")

        root.chmod(0o700)
        with without_rights(), pytest.raises(ScanError, match="runAsUser") as refused:
            scan(root, other_user=True)
        assert names(str(refused.value), root)


NAMES = st.sampled_from(["a", "b", "c"])
TARGETS = st.lists(st.sampled_from(["a", "b", "c", "..", "."]), min_size=1, max_size=4).map("/".join)


@settings(deadline=None)  # the test makes and removes folders, which takes long on a busy machine
@given(
    links=st.lists(st.tuples(NAMES, NAMES, st.booleans(), TARGETS), max_size=5),
    path=st.lists(st.sampled_from(["a", "b", "c", ".."]), min_size=1, max_size=4),
)
def test_a_path_is_found_where_the_kernel_finds_it_or_not_at_all(
    links: list[tuple[str, str, bool, str]], path: list[str]
) -> None:
    """The volume has the same path here as in the training, so the kernel's answer can be compared."""
    with tempfile.TemporaryDirectory() as folder:
        mount = Path(os.path.realpath(folder)) / "a"
        mount.mkdir()
        for outer, inner, is_absolute, target in links:
            (mount / outer).mkdir(exist_ok=True)
            link = mount / outer / inner
            if not link.is_symlink():
                link.symlink_to(f"{mount}/{target}" if is_absolute else target)
        asked = mount.joinpath(*path)
        try:
            wanted: os.stat_result | int = os.stat(asked)
        except OSError as error:
            wanted = error.errno or 0

        try:
            found: os.stat_result | int = MountedVolume(mount, mount).find(asked).stat()
        except OSError as error:
            found = error.errno or 0

        if isinstance(found, os.stat_result):
            assert isinstance(wanted, os.stat_result)
            assert Path(os.path.realpath(asked)).is_relative_to(mount)
            assert os.path.samestat(found, wanted)
            assert not stat.S_ISLNK(found.st_mode)
        elif found == errno.EXDEV:
            assert isinstance(wanted, int) or not Path(os.path.realpath(asked)).is_relative_to(mount)
        else:
            assert isinstance(wanted, int)
