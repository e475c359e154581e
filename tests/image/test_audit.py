"""The audit of an image's SBOM: what the registries know, and what the audit reports if a registry does not
answer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from image import audit

ADVISORIES = {
    "pypi/aiohttp/3.14.5/json": [
        {"id": "PYSEC-1", "fixed_in": ["3.14.6"], "withdrawn": None},
        {"id": "PYSEC-2", "fixed_in": [], "withdrawn": None},
        {"id": "PYSEC-3", "fixed_in": ["1"], "withdrawn": "2026-01-01T00:00:00Z"},
    ],
    "pypi/six/1.17.0/json": [],
}
POLICY = """libssl3:
  Installed: (none)
  Candidate: 3.0.22-1~deb12u2
  Version table:
libc6:
  Installed: (none)
  Candidate: 2.36-9+deb12u14
  Version table:
"""


@pytest.fixture
def pypi(tmp_path: Path) -> str:
    """Returns the URL of a folder with PyPI's answer to each path, as files."""
    for path, told in ADVISORIES.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"vulnerabilities": told}), encoding="utf-8")
    return (tmp_path / "pypi").as_uri()


def audited(tmp_path: Path, pypi: str, *purls: str) -> int:
    named = [purl.partition("?")[0].rsplit("/", 1)[1].split("@") for purl in purls]
    components = [
        {"name": name, "version": version.replace("%2B", "+"), "purl": purl}
        for (name, version), purl in zip(named, purls, strict=True)
    ]
    properties = [{"name": "rekindle:suite", "value": "bookworm"}]
    sbom = tmp_path / "sbom.json"
    sbom.write_text(json.dumps({"metadata": {"properties": properties}, "components": components}))
    return audit.main([str(sbom), "--pypi", pypi])


@pytest.fixture(autouse=True)
def debian(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "asked", lambda command: POLICY if command[0] == "apt-cache" else "")


def test_an_image_without_known_weaknesses_is_clean(
    tmp_path: Path, pypi: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audited(tmp_path, pypi, "pkg:pypi/six@1.17.0", "pkg:pypi/rekindle@0.1.0") == 0
    pypi_told, debian_told = capsys.readouterr().out.splitlines()
    assert pypi_told.startswith("PyPI: 0 ")
    assert debian_told.startswith("Debian: 0 ")


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="only dpkg compares Debian's versions")
def test_advisories_and_packages_that_debian_has_fixed_are_told(
    tmp_path: Path, pypi: str, capsys: pytest.CaptureFixture[str]
) -> None:
    packages = (
        "pkg:deb/debian/libssl3@3.0.20-1~deb12u2?arch=amd64",
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u14",
    )

    assert audited(tmp_path, pypi, "pkg:pypi/aiohttp@3.14.5", *packages) == 1
    told = capsys.readouterr().out.splitlines()
    names = [
        ("PyPI", "2"),
        ("aiohttp 3.14.5", "PYSEC-1", "3.14.6"),
        ("aiohttp 3.14.5", "PYSEC-2"),
        ("Debian", "1"),
        ("libssl3 3.0.20-1~deb12u2", "3.0.22-1~deb12u2"),
    ]
    for line, in_it in zip(told, names, strict=True):
        assert all(name in line for name in in_it), line


def test_a_registry_that_does_not_answer_is_no_clean_image(
    tmp_path: Path, pypi: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audited(tmp_path, pypi, "pkg:pypi/unheard-of@1.0") == 3
    assert "/unheard-of/1.0/json" in capsys.readouterr().out
