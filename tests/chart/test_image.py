"""Everything that the Dockerfile names exists. tests/cluster/test_image.py tests the image itself."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import yaml

from recover.cli import doctor_command

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_what_is_copied_is_there_and_is_sent_to_the_build() -> None:
    copied = {
        source
        for sources in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE)
        for source in sources.split()
    }
    sent = set(re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE))

    assert all((ROOT / source).exists() for source in copied)
    assert {source.partition("/")[0] for source in copied} == sent


def test_the_packages_of_the_wheel_but_chaos_and_its_readme_are_copied() -> None:
    wheel = _project()["tool"]["hatch"]["build"]["targets"]["wheel"]
    wanted = {*wheel["packages"], _project()["project"]["readme"], *_project()["project"]["license-files"]}
    copied = " ".join(re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE)).split()

    assert wanted - set(copied) == {"chaos"}


def test_the_extras_are_there_and_hold_what_the_chart_starts() -> None:
    (extras,) = re.findall(r'"rekindle\[(.*)\]"', DOCKERFILE)
    started = {"agent", "controller", "cleanup", "status"}

    assert set(extras.split(",")) == {"agent", "controller", "cli"}
    assert set(extras.split(",")) <= _project()["project"]["optional-dependencies"].keys()
    assert started | {"checkpoints"} <= {point.name for point in entry_points(group="rekindle.commands")}


def test_the_first_word_of_every_container_is_the_script_of_the_wheel() -> None:
    assert DOCKERFILE.rstrip().endswith('ENTRYPOINT ["rekindle"]')
    assert "rekindle" in _project()["project"]["scripts"]


def test_a_program_of_the_node_is_found_wherever_an_administrator_may_have_put_it() -> None:
    """The pod that reboots a node enters the node, and looks there for systemctl by the image's PATH."""
    (path,) = re.findall(r"^ENV PATH=(\S+)", DOCKERFILE, re.MULTILINE)
    ours, *nodes = path.split(":")

    assert ours == "/opt/rekindle/bin"
    assert nodes == ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]


def test_the_base_is_new_enough_and_named_once() -> None:
    (base,) = re.findall(r"^ARG BASE=python:(\d+\.\d+)-slim$", DOCKERFILE, re.MULTILINE)

    assert _project()["project"]["requires-python"] == f">={base}"
    assert re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE) == ["${BASE}", "scratch"]


def test_the_version_of_the_chart_is_that_of_the_package() -> None:
    chart = yaml.safe_load((ROOT / "charts" / "rekindle" / "Chart.yaml").read_text(encoding="utf-8"))

    assert chart["version"] == chart["appVersion"] == _project()["project"]["version"]


def test_whoever_follows_a_page_builds_the_image_that_the_chart_then_asks_for() -> None:
    version = _project()["project"]["version"]
    pages = [ROOT / "README.md", ROOT / "docs" / "install.md", ROOT / "Dockerfile"]

    for page in pages:
        built = re.findall(r"docker build --tag (\S+)", page.read_text(encoding="utf-8"))
        assert set(built) == {f"REGISTRY/rekindle:{version}"}, page


def test_every_page_that_installs_the_chart_says_where_its_image_is() -> None:
    texts = [page.read_text(encoding="utf-8") for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))]
    texts += [
        (ROOT / "charts" / "rekindle" / "README.md").read_text(encoding="utf-8"),
        doctor_command.INSTALL,
    ]
    installs = [line for text in texts for line in re.findall(r"^helm install .*$", text, re.MULTILINE)]

    assert len(installs) == 4
    assert all("--set image.registry=REGISTRY" in line for line in installs)
    assert (
        f"docker build --tag REGISTRY/rekindle:{_project()['project']['version']} ." in doctor_command.INSTALL
    )


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
