"""`python image/audit.py SBOM`: known weaknesses of what the image is made of, as PyPI and Debian tell them.

PyPI tells which advisories name a version. Debian puts fixed packages into its archives: an older version in
the image lacks the fix. Weaknesses that Debian has not fixed yet are not found so: a scanner finds them, from
the same SBOM. This program needs apt on this machine, and none of its settings.

Exit status: 0 nothing was found; 1 something was; 3 a registry has not answered, so that not all is known.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PYPI = "https://pypi.org/pypi"
DEBIAN = "http://deb.debian.org"
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
ANSWER_S = 30.0


class NoAnswerError(Exception):
    """The message says which registry, and what came instead."""


def main(args: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sbom", type=Path)
    parser.add_argument("--pypi", default=PYPI, help="PyPI's JSON API, or a mirror of it")
    parser.add_argument("--debian", default=DEBIAN, help="a mirror with debian and debian-security")
    given = parser.parse_args(args)
    sbom = json.loads(given.sbom.read_text(encoding="utf-8"))
    found, unknown = [], 0
    for name, looked in (("PyPI", advisories(sbom, given.pypi)), ("Debian", fixed(sbom, given.debian))):
        try:
            lines = list(looked)
        except NoAnswerError as error:
            print(f"{name}: {error}")
            unknown += 1
            continue
        print(f"{name}: {len(lines)} found", *lines, sep="\n  ")
        found += lines
    return 3 if unknown else int(bool(found))


def advisories(sbom: dict[str, Any], pypi: str) -> Iterator[str]:
    """One line for each. Source: PyPI's JSON API, known vulnerabilities."""
    for part in parts(sbom, "pkg:pypi/"):
        if part["name"] == "rekindle":
            continue
        url = f"{pypi}/{part['name']}/{part['version']}/json"
        try:
            with urllib.request.urlopen(url, timeout=ANSWER_S) as answer:
                told = json.load(answer)["vulnerabilities"]
        except (OSError, ValueError, KeyError) as error:
            raise NoAnswerError(f"{url} gives no list of advisories: {error!r}") from error
        for each in told:
            if not each.get("withdrawn"):
                better = ", ".join(each.get("fixed_in", [])) or "no version yet"
                yield f"{part['name']} {part['version']}: {each['id']}, fixed in {better}"


def fixed(sbom: dict[str, Any], mirror: str) -> Iterator[str]:
    """One line for each package of which the archives have a newer version."""
    suite = next(each["value"] for each in sbom["metadata"]["properties"] if each["name"] == "rekindle:suite")
    packages = {part["name"]: part["version"] for part in parts(sbom, "pkg:deb/")}
    newest = dict(archive(mirror, suite, sorted(packages)))
    for name, version in packages.items():
        best = newest.get(name, version)
        if subprocess.run(["dpkg", "--compare-versions", best, "gt", version], check=False).returncode == 0:
            yield f"{name} {version}: Debian has {best}"


def archive(mirror: str, suite: str, names: list[str]) -> Iterator[tuple[str, str]]:
    """The newest version of each, by apt with sources and a state of its own. Raises NoAnswerError."""
    with tempfile.TemporaryDirectory() as folder:
        places = {f"{mirror}/debian": suite, f"{mirror}/debian-security": f"{suite}-security"}
        sources = Path(folder) / "sources.list"
        lines = [f"deb [signed-by={KEYS}] {url} {name} main" for url, name in places.items()]
        sources.write_text("\n".join([*lines, ""]), encoding="utf-8")
        (Path(folder) / "lists" / "partial").mkdir(parents=True)
        (Path(folder) / "status").touch()
        own = {
            "Dir::Etc::SourceList": str(sources),
            "Dir::Etc::SourceParts": "-",
            "Dir::State::Lists": f"{folder}/lists",
            "Dir::State::Status": f"{folder}/status",
            "Dir::Cache": f"{folder}/",
            "APT::Update::Error-Mode": "any",
        }
        options = [word for key, value in own.items() for word in ("--option", f"{key}={value}")]
        asked(["apt-get", *options, "update"])
        told = asked(["apt-cache", *options, "policy", *names])
    yield from re.findall(r"^(\S+):\n.*\n +Candidate: (\S+)$", told, re.MULTILINE)


def asked(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise NoAnswerError(f"{command[0]} cannot be run: {error}") from error
    if done.returncode:
        raise NoAnswerError(f"{command[0]} failed: {done.stderr.strip()[-500:]}")
    return done.stdout


def parts(sbom: dict[str, Any], kind: str) -> list[dict[str, str]]:
    return [part for part in sbom["components"] if part["purl"].startswith(kind)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
