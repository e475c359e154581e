"""Records what a training itself knows: the step's number at each step, each printed figure and each
checkpoint, one JSON line each.

The trainings run with the Python of another environment, so this module imports only the standard library.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

__all__ = ["Truth"]


class Truth:
    """`what` is `begun`, `step`, `logged` or `saved`: `step` after each optimizer step (with torchtitan
    before it), `logged` after the framework has printed figures, `saved` once a checkpoint is complete."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def tell(self, what: str, step: int) -> None:
        line = {"at": datetime.now(UTC).isoformat(), "what": what, "step": step}
        os.write(self._file, (json.dumps(line) + "\n").encode())
