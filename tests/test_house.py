"""Checks the repository itself: reasons are explained, generated pages are fresh, and the lock file is
portable."""

import re
import subprocess
import tomllib
from pathlib import Path

import msgspec
import pytest

from detectors.service.settings import AgentSettings
from recover.api.reasons import EVENT_EXPLANATIONS, EXPLANATIONS, EventReason, Reason
from recover.policy.settings import Settings
from tools.docs.generate import pages

ROOT = Path(__file__).parents[1]


def test_every_reason_is_explained_with_a_next_step() -> None:
    assert EXPLANATIONS.keys() == set(Reason)
    for reason, told in EXPLANATIONS.items():
        assert told.meaning.endswith("."), reason
        assert told.next_step.endswith("."), reason


def test_every_event_reason_is_explained() -> None:
    assert EVENT_EXPLANATIONS.keys() == set(EventReason)


@pytest.mark.parametrize("reason", [*Reason, *EventReason])
def test_a_reason_is_a_camel_case_word(reason: str) -> None:
    assert re.fullmatch(r"([A-Z][a-z]+)+", reason)


@pytest.mark.parametrize(("page", "text"), pages().items(), ids=lambda value: getattr(value, "name", ""))
def test_a_generated_page_is_fresh(page: Path, text: str) -> None:
    assert page.read_text() == text, "stale: run `make docs`"


def test_every_setting_has_its_row() -> None:
    (page,) = [text for path, text in pages().items() if path.name == "settings.md"]

    groups: list[type[msgspec.Struct]] = [AgentSettings, Settings]
    while groups:
        for field in msgspec.structs.fields(groups.pop()):
            if issubclass(inner := type(field.default), msgspec.Struct):
                groups.append(inner)
            else:
                assert f"| `{field.name}` |" in page, field.name


def test_every_label_annotation_and_taint_is_documented() -> None:
    """The test finds the names where the code builds them: `key("...")`, `_annotated(..., "...")`,
    `rekindle.dev/...`."""
    page = (ROOT / "docs" / "reference" / "labels.md").read_text()
    found = {
        name
        for package in ("detectors", "recover")
        for path in (ROOT / package).rglob("*.py")
        for name in re.findall(
            r'\bkey\("([a-z-]+)"\)|_annotated\([^,]+, "([a-z-]+)"|(?<!cli\.)rekindle\.dev/([a-z-]*[a-z])',
            path.read_text(),
        )
    }
    names = {part for groups in found for part in groups if part}

    assert len(names) > 10, "the pattern finds nothing"
    assert {n for n in names if f"`{n}`" not in page and not re.fullmatch(r"v\d.*", n)} == set()


def test_the_lock_holds_hashes_and_no_address_path_or_host() -> None:
    lock = (ROOT / "requirements" / "dev.lock").read_text()
    pinned = [line for line in lock.splitlines() if "==" in line]

    assert "with Python 3.11" in lock, "made by a newer Python, it may lack what 3.11 needs"
    assert len(pinned) > 20
    assert all(line.endswith("\\") for line in pinned), "a package without a hash"
    assert not re.search(r"://|^-|@ |file:|/\w+/", lock, re.MULTILINE)


def test_every_dependency_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"]] + [d for e in project["optional-dependencies"].values() for d in e]
    locked = set(
        re.findall(r"^([a-z0-9.-]+)==", (ROOT / "requirements" / "dev.lock").read_text(), re.MULTILINE)
    )

    names = {re.split(r"[\[<>=~!;, ]", d)[0].lower().replace("_", "-") for d in wanted} - {"rekindle"}
    assert names - locked == set(), "run `make lock`"


def test_every_make_target_is_in_the_help() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    shown = subprocess.run(
        ["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout

    assert set(re.findall(r"make ([a-z-]+)", shown)) == set(phony.split())


def test_every_command_of_the_readme_exists() -> None:
    readme = (ROOT / "README.md").read_text()
    commands = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][
        "rekindle.commands"
    ]

    mentioned = set(
        re.findall(r"rekindle ([a-z][a-z-]*)", "\n".join(re.findall(r"`[^`]+`|```.*?```", readme, re.DOTALL)))
    )
    assert mentioned <= commands.keys() | {"charts"}
