"""Checks that words and openings that make a reader stop do not occur in texts that users read: pages, the
chart's comments, alerts, descriptions of CRDs, and sentences of the rooms that report on the day of a fault.

Reasons, settings and metrics are read here from their generated pages. docs/glossary.md has the terms to
use.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.golden.templates import in_package

ROOT = Path(__file__).parents[1]
WORDS = re.compile(
    r"\b(?:"
    r"(?<!-)anew|befalls?|blamed|the like|those that|whoever"
    r"|(?:is|was|are|were|be|been) told|tells? of|told of"
    r"|of (?:its|their|your|our|one's) own(?! [a-z`*])|of ours|of yours"
    r"|what (?:is|was|are|were) (?:seen|said|told|done|to be done|found|left|out|there)"
    r"|again and again|all the same|for ever|for good|may well"
    r"|given? back|gives back|gave back|mend(?!\.py)|mends|mended|passe[sd] over"
    r"|takes? out of service|taken out"
    r"|stands? in for|stands? still|called a person|a person is called|lets? go of"
    r")\b",
    re.IGNORECASE,
)
OPENINGS = re.compile(
    r"(?:^|^[-*] |^\d\. |(?<=[.!:] ))(?:What|Who|Whoever|Whose|Of|Such) [a-z]", re.MULTILINE
)
"""Openings of sentences whose subject or verb comes late. Titles of sections and questions may begin in
this way."""
ROOMS = ("diagnose", "doctor", "recovery", "repair", "stories", "triage")
PAGES = [
    ROOT / "README.md",
    ROOT / "SECURITY.md",
    # The glossary has the words to replace.
    *(page for page in ROOT.glob("docs/*.md") if page.name != "glossary.md"),
    *ROOT.glob("docs/decisions/*.md"),
    *ROOT.glob("docs/runbooks/*.md"),
    *(ROOT / f"docs/reference/{name}.md" for name in ("labels", "metrics", "reasons", "settings")),
    *ROOT.glob("charts/rekindle/files/crds/*.yaml"),
    ROOT / "charts/rekindle/files/alerts/rules.yaml",
    ROOT / "charts/rekindle/templates/NOTES.txt",
    ROOT / "charts/rekindle/values.yaml",
]


def stumbles(text: str) -> list[str]:
    """Returns each forbidden word or opening in brackets, with the text around it."""
    found = (*WORDS.finditer(text), *OPENINGS.finditer(text))
    marked = (
        f"{text[max(0, m.start() - 40) : m.start()]}[{m[0]}]{text[m.end() : m.end() + 40]}" for m in found
    )
    return [" ".join(words.split()) for words in marked]


def prose(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    return (
        re.sub(r"^```.*?^```|^#.*?$", "", text, flags=re.DOTALL | re.MULTILINE)
        if page.suffix == ".md"
        else text
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_has_a_forbidden_word_or_opening(page: Path) -> None:
    assert stumbles(prose(page)) == [], "reword: WORDS and OPENINGS above forbid the text in brackets"


def sentences() -> Iterator[tuple[str, str]]:
    for file, texts in in_package("recover").items():
        yield from ((file, text) for text in texts if Path(file).parts[1] in ROOMS)


def test_no_message_of_the_day_of_a_fault_has_a_forbidden_word_or_opening() -> None:
    messages = list(sentences())

    assert len(messages) > 800, "the rooms have moved"
    assert [(file, found) for file, text in messages for found in stumbles(text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "The job was told to end.",
        "The node is out. Of the spares one is free.",
        "What was seen before does not count.",
        "the pod has no volume of its own",
        "the node is given back once it is mended",
    ],
)
def test_such_a_word_is_found(text: str) -> None:
    assert stumbles(text)


@pytest.mark.parametrize(
    "text", ["The recovery waits. The message says why.", "each job has its own ConfigMap"]
)
def test_plain_sentences_pass(text: str) -> None:
    assert stumbles(text) == []


# --- docstrings and comments --------------------------------------------------------------------------------

FRAGMENTS = re.compile(r"(?:Of|What|Who|Whoever|Whose|Such|By|As|None where) [a-z`]")
"""Opening of a clipped note, which leaves out its subject or verb."""
OLD_WORDS = re.compile(
    r"\b(?:(?<!-)anew|befalls?|the like|whoever|tells? of|told of|for ever|all the same|for good"
    r"|given? back|gives back|gave back|mends|mended|lets? go of)\b",
    re.IGNORECASE,
)
CODE = [
    file
    for room in ("recover", "detectors", "chaos", "tools", "tests")
    for file in ROOT.glob(f"{room}/**/*.py")
]


def notes(source: str) -> Iterator[str]:
    """Yields the docstrings of a file, those of attributes included, and its comments."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield " ".join(text.split())
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("# ")


def clipped(note: str) -> list[str]:
    """Returns the opening and the words of a note at which a reader stumbles."""
    opening = FRAGMENTS.match(note)
    found = [*([opening] if opening else []), *OLD_WORDS.finditer(note)]
    return [note[max(0, m.start() - 40) : m.end() + 40] for m in found]


def test_docstrings_and_comments_are_whole_sentences_in_plain_words() -> None:
    found = [
        (str(file.relative_to(ROOT)), words)
        for file in CODE
        for note in notes(file.read_text(encoding="utf-8"))
        for words in clipped(note)
    ]

    assert len(CODE) > 1000, "the rooms have moved"
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        'LIMIT = 3\n"""Of one gang: the first lost rank is enough to know."""',
        'def read() -> None:\n    """None where no agent tells."""',
        "# What comes later joins\n",
        "x = 1  # it is read anew\n",
    ],
)
def test_a_clipped_note_is_found(source: str) -> None:
    assert [words for note in notes(source) for words in clipped(note)]
