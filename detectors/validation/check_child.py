"""Implements `python -m detectors.validation.check_child NAME NODE`: runs one check and prints its result as
JSON.

run.py starts this module as a process that may be lost. The output of libraries goes to standard error, so
that standard output has only the result.
"""

from __future__ import annotations

import os
import sys

import msgspec

from detectors.validation.checks import CHECKS
from detectors.validation.node_check import CannotRunError, Node, Result
from detectors.wire.step_report import Outcome

__all__ = ["main"]


def main() -> int:
    name, text = sys.argv[1:]
    (check,) = (check for check in CHECKS if check.name == name)
    node = msgspec.json.decode(text, type=Node)
    answer = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        result = check.run(node)
    except CannotRunError as error:
        result = Result(Outcome.NOT_RUN, str(error))
    os.write(answer, msgspec.json.encode(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
