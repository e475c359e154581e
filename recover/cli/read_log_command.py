"""`rekindle read-log FILE`: reads a training's log as the agent would. The command changes nothing."""

from __future__ import annotations

import sys
from pathlib import Path

from detectors.commands.arguments import Parser
from detectors.commands.exit_status import Exit
from recover.cli.output import Output, add_output, print_answer
from recover.cli.read_log_lines import lines_of
from recover.cli.read_log_reading import read_log
from recover.cli.read_log_story import told
from recover.policy.step_words import STEP_TEMPLATE, usable_template

__all__ = ["run"]

_ABOUT = """\
Read the log of a training as the agent reads it, and print its steps, checkpoints, stalls and first error. \
An error that another rank caused, such as a timeout of NCCL, counts as the first error only if the log has \
no other.

The time of a line is the time that the container runtime or `kubectl logs --timestamps` has written \
before the line. The command ignores times that the training prints. If the lines have no time from the \
runtime or kubectl, the command shows neither the pace nor the stalls."""


def run(args: list[str]) -> int:
    """Returns 0 if the log was read, and 2 for wrong usage or a file that cannot be read."""
    options = _parser().parse_args(args)
    template = options.step_template
    if template and not usable_template(template):
        return _unusable(f"--step-template {template!r}: expected text with {{step}} once")
    try:
        if options.file == "-":
            found = read_log(lines_of(sys.stdin.buffer), template)
        else:
            with Path(options.file).open("rb") as file:
                found = read_log(lines_of(file), template)
    except OSError as error:
        return _unusable(f"{options.file}: cannot be read: {error.strerror or error}")
    output = Output(options.output)
    if output.for_people:
        print("\n".join(told(found, wide=output is Output.WIDE)))
    else:
        print_answer(found.answer, output)
    return Exit.GOOD


def _unusable(why: str) -> int:
    print(f"rekindle: {why}", file=sys.stderr)
    return Exit.UNUSABLE


def _parser() -> Parser:
    parser = Parser(
        "read-log",
        _ABOUT,
        positional="FILE",
        example="kubectl logs --timestamps llm-worker-0 | rekindle read-log -",
    )
    parser.add_argument("file", metavar="FILE", help="The file with the log; - is standard input.")
    parser.add_argument(
        "--step-template",
        default="",
        metavar="TEXT",
        help=f"Read steps as for a job with the annotation {STEP_TEMPLATE}: TEXT.",
    )
    add_output(parser, Output)
    return parser
