"""The options of `rekindle checkpoints scan`. argparse reads them; checkpoints_command.py says why."""

from __future__ import annotations

import argparse
import os
import re
from contextlib import suppress
from pathlib import Path, PurePosixPath

from detectors.commands.arguments import Parser
from recover.checkpoints import READERS
from recover.checkpoints.annotation import REPAIR_EXPECTED, LocationError, parse, parse_repair
from recover.checkpoints.generic import Generic
from recover.checkpoints.marker_template import MARKER_EXPECTED, Template, TemplateError, parse_marker
from recover.checkpoints.scan import TIME_S
from recover.checkpoints.scan_result import Repair
from recover.cli.output import Output, add_output

__all__ = ["scan_options"]


def scan_options(args: list[str]) -> argparse.Namespace:
    """Returns the options, and the directory as a path in `dir`. After a wrong call, and after the help,
    raises SystemExit, as argparse does."""
    parser = Parser(
        "checkpoints scan",
        "List the checkpoints of a directory, newest first, and choose the newest complete "
        "checkpoint. Without --digests, the command reads only names, sizes, headers and indexes. Without "
        "--write, the command changes nothing.",
        positional="DIR",
        example="rekindle checkpoints scan /ckpt",
    )
    _add_what(parser)
    _add_limits(parser)
    _add_repair(parser)
    _add_place(parser)
    options = _located(parser, parser.parse_args(args))
    if (options.format == Generic.name) != (options.marker is not None):
        parser.error("--format generic needs --marker, and no other format has one")
    if options.write and not options.repair:
        parser.error("--write needs --repair")
    if (options.volume is None) != (options.mounted_at is None):
        parser.error("--volume and --mounted-at need each other")
    return options


def _add_what(parser: argparse.ArgumentParser) -> None:
    formats = [reader.name for reader in READERS]
    parser.add_argument(
        "dir",
        metavar="DIR",
        help="The directory that contains step-40/ and so on; or the text of the annotation "
        "rekindle.dev/checkpoint, such as '/ckpt;format=generic;marker=step-{step}/DONE'.",
    )
    parser.add_argument(
        "--format",
        choices=formats,
        metavar="NAME",
        help=f"The only format to accept (default: by the names of the files): {', '.join(formats)}.",
    )
    parser.add_argument(
        "--marker",
        type=_marker,
        metavar="FILE",
        help=f"With --format generic, the file that marks a complete checkpoint: {MARKER_EXPECTED}.",
    )
    add_output(parser, Output)
    parser.add_argument(
        "--exclude",
        type=int,
        action="append",
        default=[],
        metavar="STEP",
        help="Never choose this step, because it failed to load; you can repeat this option.",
    )


def _add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--message-file",
        type=Path,
        metavar="FILE",
        help="Write the result in at most 4096 bytes for the controller, and print no table. The command "
        "does not examine older checkpoints than the chosen one.",
    )
    parser.add_argument(
        "--digests",
        action="store_true",
        help="Read every byte of the chosen checkpoint, and compare the bytes with the digests that the "
        "format stores.",
    )
    parser.add_argument(
        "--time",
        type=_seconds,
        default=TIME_S,
        metavar="SECONDS",
        help=f"Time limit in seconds (default: {TIME_S:g}), also of the comparison by --digests. inf means "
        "no limit: --digests then reads the whole checkpoint.",
    )


def _add_repair(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--repair",
        type=_allowed,
        default=frozenset(),
        metavar="WHAT",
        help="Show how Rekindle would change the directory so that the framework loads the chosen "
        f"checkpoint. WHAT selects the kinds of changes: {REPAIR_EXPECTED}.",
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="Make the changes of --repair. Use this only while no training writes there. The command "
        "deletes nothing.",
    )
    parser.add_argument(
        "--mark",
        type=_name,
        default="by-hand",
        metavar="NAME",
        help="The suffix of the names of the backup files and folders that --write makes (default: by-hand).",
    )


def _add_place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--volume",
        type=Path,
        metavar="FOLDER",
        help="The folder where this machine mounts the training's volume. With this option, DIR is the "
        "path that the training uses, and the command follows only links that stay in the volume.",
    )
    parser.add_argument(
        "--mounted-at",
        type=_absolute,
        metavar="PATH",
        help="The path where the training mounts that volume: the command needs it to follow absolute links.",
    )
    parser.add_argument(
        "--other-user",
        action="store_true",
        help="Use this option if the training runs as another user than this command. The command then "
        "fails if it may not read the newest checkpoint, instead of choosing an older one: the "
        "training may have the permission.",
    )


def _located(parser: argparse.ArgumentParser, options: argparse.Namespace) -> argparse.Namespace:
    """Returns the options with the directory as a path. Options behind the directory have the form of the
    annotation on a job."""
    path, semicolon, _ = options.dir.partition(";")
    if "://" in path and not os.path.lexists(path):
        parser.error(f"{path}: this command cannot scan an object store; expected a directory")
    if not semicolon or os.path.lexists(options.dir):
        options.dir = Path(options.dir)
        return options
    try:
        found = parse(os.path.abspath(path) + options.dir[len(path) :])
    except LocationError as error:
        parser.error(error.why)
    if options.format is not None or options.marker is not None:
        parser.error("give format and marker either behind DIR or by --format and --marker, not both")
    options.dir = Path(path)
    options.format = found.format
    options.marker = parse_marker(found.marker) if found.marker is not None else None
    options.digests = options.digests or found.digests
    return options


def _allowed(text: str) -> frozenset[Repair]:
    try:
        return parse_repair(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!a}: expected {REPAIR_EXPECTED}") from error


def _name(text: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]{0,199}", text) is None:
        raise argparse.ArgumentTypeError(f"{text!a}: expected letters, digits, dots and dashes")
    return text


def _absolute(text: str) -> PurePosixPath:
    if not text.startswith("/"):
        raise argparse.ArgumentTypeError(f"{text!a}: expected an absolute path")
    return PurePosixPath(text)


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if (found := float(text)) >= 0:  # nan is not
            return found
    raise argparse.ArgumentTypeError(f"{text!a}: expected seconds, 0 or more")


def _marker(text: str) -> Template:
    try:
        return parse_marker(text)
    except TemplateError as error:
        raise argparse.ArgumentTypeError(f"{text!a}: {error}; expected {MARKER_EXPECTED}") from error
