"""Checks that the reference page of reasons names no reason that the code never gives."""

from __future__ import annotations

from pathlib import Path

import recover
from recover.api.reasons import NOT_GIVEN_YET, EventReason, Reason


def test_exactly_the_reasons_that_no_code_gives_are_marked_as_not_given_yet() -> None:
    folder = Path(recover.__file__).parent
    giving = "\n".join(
        path.read_text(encoding="utf-8")
        for path in folder.rglob("*.py")
        if path.name != "reasons.py" and "stories" not in path.parts
    )

    unused = {r for kind in (Reason, EventReason) for r in kind if f"{kind.__name__}.{r.name}" not in giving}

    assert unused == NOT_GIVEN_YET
