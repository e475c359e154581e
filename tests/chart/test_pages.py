"""Everything that the pages tell people to write, run and read exists: values, settings, commands, options,
links."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import msgspec
import pytest

from detectors.commands.main import GROUP
from detectors.service.settings import AgentSettings
from recover.policy.settings import Settings
from tools.docs.chart import CHART

ROOT = CHART.parents[1]
PAGES = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/**/*.md"),
    CHART / "README.md",
    CHART / "templates" / "NOTES.txt",
]
COMMANDS = {point.name: point for point in entry_points(group=GROUP)}
SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_link_leads_to_a_page_and_to_a_heading_of_it(page: Path) -> None:
    text = re.sub(r"(`+).+?\1", "", page.read_text(encoding="utf-8"))  # an example in code is no link
    for link in re.findall(r"\]\(([^)]+)\)", text):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert "://" in link or target.exists(), link
        assert not anchor or anchor in set(anchors(target)), link


def anchors(page: Path) -> Iterator[str]:
    for heading in re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_value_and_setting_that_is_named_is_there(page: Path) -> None:
    groups = [f.name for struct in (Settings, AgentSettings) for f in msgspec.structs.fields(struct)]
    first = "|".join(sorted({*SCHEMA["properties"], *groups}, key=len, reverse=True))
    named = re.findall(
        rf"(?<![\w./-])((?:{first})(?:\.[a-z]\w*)+)", page.read_text(encoding="utf-8"), re.ASCII
    )

    files = re.compile(r".*\.(py|md|toml|yaml)")
    unknown = [one for one in named if not files.fullmatch(one) and not (is_value(one) or is_setting(one))]
    assert unknown == []


def is_value(path: str) -> bool:
    """Whether the chart has this value. A place that takes any key, such as a label or a field of a pod
    template, counts too."""
    place = SCHEMA
    for key in path.split("."):
        place = resolved(place)
        if key not in place.get("properties", {}):
            takes_any = "patternProperties" in place or place.get("additionalProperties", True)
            return place.get("type") == "object" and bool(takes_any)
        place = place["properties"][key]
    return True


def resolved(place: dict[str, Any]) -> dict[str, Any]:
    name = place.get("$ref", "").rpartition("/")[2]
    return dict(SCHEMA["definitions"][name]) if name else place


def is_setting(path: str) -> bool:
    return any(_has(struct(), path.split(".")) for struct in (Settings, AgentSettings))


def _has(group: Any, path: list[str]) -> bool:
    key, *rest = path
    return hasattr(group, key) and (not rest or _has(getattr(group, key), rest))


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_option_that_is_shown_is_one_of_its_command(
    page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = re.findall(
        r"(?:`|^ *|-- |/)rekindle ([a-z-]+)(?: ([a-z]+))?((?: [^`|\n#]*)?)",
        page.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    for command, second, rest in shown:
        options = re.findall(r"(?<=\s)--?[a-z][a-z-]*", rest)
        if command in COMMANDS and options:
            known = helped(command, second, capsys)
            assert [one for one in options if not re.search(rf"(?<![\w-]){one}(?![\w-])", known)] == []


def helped(command: str, second: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Returns the help of the command. If the command has subcommands, returns the help of the second
    word."""
    for args in ([second, "--help"], ["--help"]):
        try:
            status = COMMANDS[command].load()([one for one in args if one])
        except SystemExit as end:  # argparse ends by itself
            status = int(end.code or 0)
        if status == 0:
            break
    return capsys.readouterr().out
