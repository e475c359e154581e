"""Writes what the image is made of: an SBOM (CycloneDX), the licences, and Debian's records of its packages.

root.py calls this module. Scanners find Debian's packages in /var/lib/dpkg/status.d, and wheels by their
metadata.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import platform
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import Distribution, PackagePath, distributions
from pathlib import Path
from typing import Any

FOLDER = "usr/share/doc/rekindle"
COMMON_LICENSES = Path("/usr/share/common-licenses")
"""Debian's notes of copyright name the texts of licences that many packages share by their paths."""
_RULE = "=" * 100


@dataclass(frozen=True)
class Package:
    """A package of Debian's."""

    record: str
    """Its paragraph of dpkg's status file."""
    files: frozenset[Path]

    def told(self, key: str) -> str:
        found = re.search(rf"^{key}: (.*)$", self.record, re.MULTILINE)
        return found[1] if found else ""


@dataclass(frozen=True)
class Component:
    name: str
    version: str
    purl: str
    licenses: list[str]
    """Names, or one SPDX expression."""
    text: str
    """The licence itself, or its notes of copyright."""
    more: dict[str, Any] = field(default_factory=dict)
    """Further fields of the SBOM."""


def installed(dpkg: Path) -> dict[str, Package]:
    """By name. The paths of files are the real ones where the base has merged /lib into /usr/lib."""
    records = (dpkg / "status").read_text(encoding="utf-8").split("\n\n")
    packages = {}
    for record in filter(str.strip, records):
        package = Package(f"{record.strip()}\n", frozenset())
        name, architecture = package.told("Package"), package.told("Architecture")
        listed = [dpkg / "info" / f"{name}.list", dpkg / "info" / f"{name}:{architecture}.list"]
        lines = [
            line for file in listed if file.exists() for line in file.read_text(encoding="utf-8").splitlines()
        ]
        files = frozenset(path.parent.resolve() / path.name for path in map(Path, lines))
        packages[name] = Package(package.record, files)
    return packages


def write_papers(
    root: Path,
    packages: dict[str, Package],
    base_files: Iterable[Path],
    venv: Path,
    wheels: Path,
    base_name: str,
) -> None:
    """`base_files` are the base's. Each is of a package, or below /usr/local, where its maker has put it."""
    owners = {file: name for name, package in packages.items() for file in package.files}
    unknown = [path for path in base_files if path not in owners and not path.is_relative_to("/usr/local")]
    if unknown:
        sys.exit(f"no package of the base has these files: {', '.join(map(str, sorted(unknown)))}")
    used = sorted({owners[path] for path in base_files if path in owners})
    components = [_debian(packages[name]) for name in used]
    if Path(sys.executable).resolve().is_relative_to("/usr/local"):
        components.append(_interpreter())
    (site,) = venv.glob("lib/python3*/site-packages")
    found = {each.name: each for each in distributions(path=[str(site)])}
    components += [_wheel(found[name], wheels) for name in sorted(found, key=str.lower)]

    records = root / "var/lib/dpkg/status.d"
    records.mkdir(parents=True)
    for name in used:
        (records / name).write_text(packages[name].record, encoding="utf-8")
    folder = root / FOLDER
    folder.mkdir(parents=True)
    sbom = _sbom(components, found["rekindle"].version, base_name)
    (folder / "sbom.cdx.json").write_text(f"{json.dumps(sbom, indent=1)}\n", encoding="utf-8")
    (folder / "licences.txt").write_text(_licences(components), encoding="utf-8")


def _debian(package: Package) -> Component:
    name, version = package.told("Package"), package.told("Version")
    notes = Path("/usr/share/doc") / name / "copyright"
    if not notes.exists():
        sys.exit(f"the base has no {notes}, so that the licence of {name} is not known")
    text = notes.read_text(encoding="utf-8", errors="replace")
    short = set(re.findall(r"^License: *(\S.*)$", text, re.MULTILINE)) or _common(text) or {"see licences"}
    purl = f"pkg:deb/debian/{name}@{version.replace('+', '%2B')}?arch={package.told('Architecture')}"
    return Component(name, version, purl, sorted(short), text)


def _interpreter() -> Component:
    """The images named python have one that no package of Debian's brought."""
    version = ".".join(map(str, sys.version_info[:3]))
    text = Path(f"/usr/local/lib/python{version.rpartition('.')[0]}/LICENSE.txt").read_text(encoding="utf-8")
    cpe = f"cpe:2.3:a:python:python:{version}:*:*:*:*:*:*:*"
    return Component("python", version, f"pkg:generic/python@{version}", ["PSF-2.0"], text, {"cpe": cpe})


def _wheel(wheel: Distribution, wheels: Path) -> Component:
    meta = wheel.metadata
    name = _normal(wheel.name)
    (file,) = (file for file in wheels.glob("*.whl") if _normal(file.name.split("-")[0]) == name)
    names = re.compile(r"(licen[cs]e|copying|notice|authors|thirdparty)[^/]*$", re.IGNORECASE)
    own = [path for path in wheel.files or [] if len(path.parts) == 1 or path.parts[0].endswith(".dist-info")]
    texts = [path for path in own if names.search(str(path))]
    text = "\n".join(map(_read, texts)) or "".join(_head(path) for path in own if path.suffix == ".py")
    classified = [
        each.rpartition(" :: ")[2] for each in meta.get_all("Classifier", []) if each.startswith("License ::")
    ]
    given = meta.get_all("License-Expression") or classified or meta.get_all("License") or ["see licences"]
    short = [name.partition("\n")[0] for name in given]
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    hashes = {"hashes": [{"alg": "SHA-256", "content": digest}]}
    return Component(name, wheel.version, f"pkg:pypi/{name}@{wheel.version}", short, text, hashes)


def _read(path: PackagePath) -> str:
    return Path(str(path.locate())).read_text(encoding="utf-8", errors="replace")


def _head(path: PackagePath) -> str:
    """The comment that a module begins with."""
    return "".join(
        itertools.takewhile(lambda line: line.startswith("#"), _read(path).splitlines(keepends=True))
    )


def _normal(name: str) -> str:
    """A project's name as PyPI compares it."""
    return re.sub("[-_.]+", "-", name).lower()


def _sbom(components: list[Component], version: str, base_name: str) -> dict[str, Any]:
    """Source: CycloneDX 1.5, JSON."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {"type": "container", "name": "rekindle", "version": version},
            "properties": [
                {"name": "rekindle:base", "value": base_name},
                {"name": "rekindle:suite", "value": platform.freedesktop_os_release()["VERSION_CODENAME"]},
            ],
        },
        "components": [
            {
                "type": "library",
                "bom-ref": each.purl,
                "name": each.name,
                "version": each.version,
                "purl": each.purl,
                "licenses": [{"license": {"name": name}} for name in each.licenses],
                **each.more,
            }
            for each in components
        ],
    }


def _common(text: str) -> set[str]:
    return set(re.findall(rf"{COMMON_LICENSES}/([\w.+-]*\w)", text))


def _licences(components: list[Component]) -> str:
    parts = [
        "The licences of what is in this image. The texts that Debian's packages share stand at the end.\n"
    ]
    for each in components:
        text = each.text or "The package has no text of its licence.\n"
        parts.append(_headed(f"{each.name} {each.version}: {'; '.join(each.licenses)}", text))
    shared = sorted(COMMON_LICENSES / name for name in _common("".join(parts)))
    parts += [_headed(str(file), file.read_text(encoding="utf-8")) for file in shared if file.is_file()]
    return "\n".join(parts)


def _headed(title: str, text: str) -> str:
    return f"{_RULE}\n{title}\n{_RULE}\n{text}"
