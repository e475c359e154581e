"""The build reports what is missing, and never takes an unfinished build for a finished one. Needs no Go."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.control_plane import build


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin") + ":/usr/bin:/bin")
    monkeypatch.setattr(build, "GO_FALLBACK", str(tmp_path / "no-go"))
    return tmp_path / "cache" / "rekindle" / "control-plane"


def lay_go(folder: Path, script: str) -> None:
    program = folder / "bin" / "go"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)


def lay_module(folder: Path) -> Path:
    """Creates one module with empty files, in place of all modules that the parts require."""
    module = folder / "module"
    for part in build.PARTS:
        for file in (file for files in part.manifests.values() for file in files):
            (module / file).parent.mkdir(parents=True, exist_ok=True)
            (module / file).touch()
    return module


def stand_in(module: Path) -> str:
    """Returns a script that replaces Go: it creates empty programs at the requested paths, and names the
    module."""
    return f"""case $1 in
    env) echo go1.26.8 ;;
    list) echo {module} ;;
    build) while [ $# -gt 0 ]; do [ "$1" = -o ] && : > "$2"; shift; done ;;
    esac"""


def test_programs_that_were_not_built_are_asked_for_by_the_command_that_builds_them() -> None:
    with pytest.raises(build.BuildError, match=r"python -m tests\.control_plane\.build"):
        build.cached()


def test_a_machine_without_go_is_told_which_one_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build.main() == 1
    assert "Go 1.26" in capsys.readouterr().err


def test_a_go_that_is_too_old_is_named_with_its_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lay_go(tmp_path, "echo go1.19.8")
    assert build.main() == 1
    said = capsys.readouterr().err
    assert "go1.19.8" in said
    assert "Go 1.26" in said


def test_a_build_that_fails_shows_why_and_leaves_nothing_behind(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lay_go(tmp_path, '[ "$1" = env ] && echo go1.26.8 && exit 0; echo "no such module" >&2; exit 1')
    assert build.main() == 1
    assert "no such module" in capsys.readouterr().err
    assert [entry.name for entry in cache.iterdir()] == [".lock"]


def test_what_was_built_is_found_again_without_go(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lay_go(tmp_path, stand_in(lay_module(tmp_path)))
    assert build.main() == 0
    (tmp_path / "bin" / "go").unlink()
    assert build.main() == 0
    found = build.cached()
    assert all(Path(found.path(name)).exists() for part in build.PARTS for name in part.files)
    assert len(list(cache.iterdir())) == 1 + len(build.PARTS)


def test_a_part_that_is_missing_is_named_and_built_alone(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lay_go(tmp_path, stand_in(lay_module(tmp_path)))
    assert build.main() == 0
    capsys.readouterr()
    (etcd,) = cache.glob("etcd-*/etcd")
    etcd.unlink()

    with pytest.raises(build.BuildError, match=f"{cache} lacks {etcd.parent.name}/etcd;"):
        build.cached()
    assert build.main() == 0

    built = [line for line in capsys.readouterr().err.splitlines() if line.startswith("building")]
    assert [line.split()[1] for line in built] == ["etcd"]
    assert etcd.exists()
