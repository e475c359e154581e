"""Tests that a change goes into the text of a person's file, and that every line of the person stays."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import yaml

from recover.cli.enable_text import rewritten

SOURCE = {"configMapRef": {"name": "llm-rekindle", "optional": True}}

BLOCK = """\
# A comment at the top
apiVersion: batch/v1
kind: Job
metadata:
  name: llm  # the big one
  labels: {team: nlp}
spec:
  template:
    spec:
      containers:
        - image: trainer   # no name first
          command: ["python", "train.py"]
          name: train

        - name: "beside"
          args:
          - |
            several
            lines
# a comment at the end
"""
INDENTLESS = """\
metadata:
    name: llm
    labels:
spec:
    template:
        spec:
            containers:
            - name: train
              envFrom:
              - secretRef: {name: s}   # theirs

              # a comment after a gap
              image: trainer
"""
ALIASED = """\
metadata: {name: llm}
spec:
  template:
    spec:
      containers:
      - &one
        name: train
        image: trainer
      - *one
"""
MERGED = """\
base: &base {image: trainer}
metadata: {name: llm, labels: {}}
spec:
  template:
    spec:
      containers:
      - <<: *base
        name: train
        envFrom: [{secretRef: {name: s}}]
"""
JSON = json.dumps(yaml.safe_load(BLOCK), indent=2)
TEXTS = {
    "block": BLOCK,
    "lists that are not indented": INDENTLESS,
    "an alias": ALIASED,
    "a merge key": MERGED,
    "JSON": JSON,
    "JSON on one line": json.dumps(yaml.safe_load(BLOCK)),
    "line ends of Windows": BLOCK.replace("\n", "\r\n"),
    "no last line end": INDENTLESS.rstrip("\n"),
    "several documents": f"--- # first\na: 1\n---\n{BLOCK}---\n# nothing\n---\n{INDENTLESS}...\n",
}


def enabled(document: Any) -> Any:
    """Returns the document with a label, and with a source at the end of each container's envFrom."""
    changed = copy.deepcopy(document)
    if not changed or "spec" not in changed:
        return changed
    changed["metadata"]["labels"] = {**(changed["metadata"].get("labels") or {}), "consent": "enabled"}
    for container in changed["spec"]["template"]["spec"]["containers"]:
        others = [source for source in container.get("envFrom", []) if source != SOURCE]
        container["envFrom"] = [*others, SOURCE]
    return changed


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_the_text_says_what_is_wanted_and_keeps_every_line_or_only_adds_to_it(text: str) -> None:
    wanted = [enabled(document) for document in yaml.safe_load_all(text)]

    result = rewritten(text, wanted)

    assert result is not None
    assert list(yaml.safe_load_all(result)) == wanted
    assert is_within(text, result), result


def is_within(text: str, result: str) -> bool:
    """Whether all characters of the text occur in the result, in their order."""
    rest = iter(result)
    return all(character in rest for character in text)


def test_what_comes_stands_below_the_name_and_looks_like_its_surroundings() -> None:
    wanted = [enabled(yaml.safe_load(BLOCK))]

    added = set((rewritten(BLOCK, wanted) or "").splitlines()) - set(BLOCK.splitlines())

    assert added == {
        '  labels: {"consent": "enabled", team: nlp}',
        "          envFrom:",
        "          - configMapRef:",
        "              name: llm-rekindle",
        "              optional: true",
    }


def test_the_last_source_is_ours_and_a_comment_stays_with_its_line() -> None:
    wanted = [enabled(yaml.safe_load(INDENTLESS))]

    lines = (rewritten(INDENTLESS, wanted) or "").splitlines()

    theirs = lines.index("              - secretRef: {name: s}   # theirs")
    assert lines[theirs + 1] == "              - configMapRef:"
    assert '    labels: {"consent": "enabled"}' in lines


def test_a_scalar_is_replaced() -> None:
    text = "labels:\n  consent: disabled  # for now\n"

    assert (
        rewritten(text, [{"labels": {"consent": "enabled"}}]) == 'labels:\n  consent: "enabled"  # for now\n'
    )


def test_nothing_changes_where_nothing_is_wanted() -> None:
    assert rewritten(BLOCK, [yaml.safe_load(BLOCK)]) == BLOCK


def test_a_change_that_would_also_change_something_else_is_not_written() -> None:
    """Both labels are one YAML node, so in this text a change of one label is a change of both."""
    text = "metadata: {labels: &all {app: llm}}\ntemplate: {labels: *all}\n"
    wanted = yaml.safe_load(text)
    wanted["metadata"]["labels"] = {"app": "llm", "consent": "enabled"}

    assert rewritten(text, [wanted]) is None
