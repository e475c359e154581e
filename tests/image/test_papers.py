"""The packages of the base whose files are in the image, and the report if a package is not known."""

from __future__ import annotations

from pathlib import Path

import pytest

from image.papers import installed, write_papers

STATUS = """Package: libz
Status: install ok installed
Architecture: amd64
Version: 1:1.2.13+1
Description: compression
 of data

Package: base
Architecture: all
Version: 12
"""


@pytest.fixture
def dpkg(tmp_path: Path) -> Path:
    """Returns dpkg's records, on a base that has merged /lib into /usr/lib."""
    folder = tmp_path / "dpkg"
    (folder / "info").mkdir(parents=True)
    (folder / "status").write_text(STATUS, encoding="utf-8")
    (tmp_path / "usr" / "lib").mkdir(parents=True)
    (tmp_path / "lib").symlink_to("usr/lib")
    (folder / "info" / "libz:amd64.list").write_text(f"{tmp_path}/lib/libz.so.1\n", encoding="utf-8")
    (folder / "info" / "base.list").write_text("/etc/os-release\n", encoding="utf-8")
    return folder


def test_a_package_is_known_by_its_record_and_its_files_by_their_real_paths(
    dpkg: Path, tmp_path: Path
) -> None:
    packages = installed(dpkg)

    assert packages.keys() == {"libz", "base"}
    assert packages["libz"].told("Version") == "1:1.2.13+1"
    assert packages["libz"].record.endswith(" of data\n")
    assert packages["libz"].files == {tmp_path / "usr/lib/libz.so.1"}


def test_a_file_of_no_package_ends_the_build(dpkg: Path, tmp_path: Path) -> None:
    files = [Path("/etc/os-release"), Path("/opt/unheard-of.so")]
    with pytest.raises(SystemExit, match=r"/opt/unheard-of\.so"):
        write_papers(tmp_path / "root", installed(dpkg), files, tmp_path, tmp_path, "base")
