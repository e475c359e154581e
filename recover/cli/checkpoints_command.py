"""`rekindle checkpoints scan DIR`: lists the checkpoints in a directory, and names the one that a resume
would take.

The scan pod runs the same command, with --message-file. The image of the scan pod has no typer, and the pod's
start counts towards the job's recovery. Therefore argparse reads the arguments, and rich is loaded only to
draw the table.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Annotated

from msgspec import Meta

from detectors.commands.arguments import Parser, told_to_choose
from detectors.commands.exit_status import Exit
from detectors.text.answers import Answer
from recover.checkpoints import READERS
from recover.checkpoints.annotation import REPAIR_EXPECTED, LocationError, parse, parse_repair
from recover.checkpoints.folder import why
from recover.checkpoints.generic import Generic
from recover.checkpoints.marker_template import MARKER_EXPECTED, Template, TemplateError, parse_marker
from recover.checkpoints.scan import NO_KNOWN_FORMAT, TIME_S, ScanError, scan
from recover.checkpoints.scan_result import (
    Checkpoint,
    Repair,
    ScanMessage,
    ScanResult,
    encode_message,
    message_of,
)
from recover.checkpoints.set_aside import repaired, tracker_of, would_repair
from recover.checkpoints.volume import MountedVolume
from recover.cli.output import Output, add_output, print_answer

__all__ = ["CheckpointsAnswer", "run"]

_NO_NAMES = (
    "No entry has the name of a checkpoint, such as step-40, global_step40, iter_0000040, "
    "checkpoint-40, ckpt_40, 40, step-40.pt or epoch=3-step=40.ckpt."
)
_NO_FORMAT = (
    "Rekindle does not know the format of these checkpoints. If the training writes a marker file last into "
    "each directory, for example DONE, name the marker: --format generic --marker DONE, and in the "
    "annotation of the job rekindle.dev/checkpoint: '/ckpt;format=generic;marker=DONE'."
)
_IGNORED_MAX = 5
_ABOUT = "Examine training checkpoints."
_COMMANDS = {"scan": "List the checkpoints of a directory, and choose the newest complete checkpoint."}


def run(args: list[str]) -> int:
    """Returns the exit status."""
    if args[:1] != ["scan"]:
        return told_to_choose("checkpoints", _ABOUT, _COMMANDS, args)
    parser = _parser()
    try:
        options = _located(parser, parser.parse_args(args[1:]))
        if (options.format == Generic.name) != (options.marker is not None):
            parser.error("--format generic needs --marker, and no other format has one")
        if options.write and not options.repair:
            parser.error("--write needs --repair")
        if (options.volume is None) != (options.mounted_at is None):
            parser.error("--volume and --mounted-at need each other")
    except SystemExit as end:  # argparse has printed its message or the help
        return int(end.code or 0)
    try:
        return _scan(options)
    except BrokenPipeError:  # `| head` closed the pipe; the interpreter must not report it at its last flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.GOOD


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


def _scan(options: argparse.Namespace) -> int:
    message_file: Path | None = options.message_file
    try:
        volume = _volume(options)
        result = scan(
            options.dir,
            format_name=options.format,
            template=options.marker,
            exclude=frozenset(options.exclude),
            until_chosen=message_file is not None,
            digests=options.digests,
            time_s=options.time,
            volume=volume,
            other_user=options.other_user,
        )
        lines = _repair(options, result, volume)
        if message_file is not None:
            tracker = tracker_of(options.dir, result.chosen, volume)
            told = tracker.told if tracker is not None else ""
            _write(message_file, message_of(result, repaired=lines, tracker=told))
    except ScanError as error:
        print(f"rekindle: {error}", file=sys.stderr)
        if message_file is not None:
            _write(message_file, ScanMessage(error=str(error)))
        return Exit.UNUSABLE
    except OSError as error:
        print(f"rekindle: the message file cannot be written: {error}", file=sys.stderr)
        return Exit.UNUSABLE

    output = Output(options.output)
    if not output.for_people:
        print_answer(_answer(options.dir, result, lines), output)
    elif message_file is None:
        _print_table(options.dir, result)
        _print_notes(options, result, lines)
    return Exit.GOOD if result.chosen is not None else Exit.NO_ANSWER


class CheckpointsAnswer(Answer, frozen=True, kw_only=True, tag="CheckpointScan"):
    """The answer of `rekindle checkpoints scan`."""

    directory: str
    chosen: Annotated[
        Checkpoint | None,
        Meta(description="the checkpoint from which a resume would start; null: no checkpoint is complete"),
    ]
    checkpoints: Annotated[list[Checkpoint], Meta(description="newest first; paths are below directory")]
    digests: Annotated[
        str, Meta(description="the digests with which the bytes of the chosen checkpoint were compared")
    ]
    repairs: Annotated[list[str], Meta(description="changes that --repair would make, or has made")]
    ignored: Annotated[
        list[str],
        Meta(
            description="names in the directory that look like names of checkpoints, and that Rekindle does "
            "not take for checkpoints; at most 100"
        ),
    ]

    def names(self) -> tuple[str, ...]:
        """Returns the path of the chosen checkpoint."""
        return (str(PurePosixPath(self.directory) / self.chosen.path),) if self.chosen is not None else ()


def _answer(directory: Path, result: ScanResult, lines: list[str]) -> CheckpointsAnswer:
    return CheckpointsAnswer(
        directory=str(directory),
        chosen=result.chosen,
        checkpoints=list(result.checkpoints),
        digests=result.digests,
        repairs=lines,
        ignored=list(result.ignored),
    )


def _volume(options: argparse.Namespace) -> MountedVolume | None:
    """Returns the volume that the options name; None if they name none. Raises ScanError."""
    if options.volume is None:
        return None
    try:
        return MountedVolume(options.volume, options.mounted_at)
    except OSError as error:
        raise ScanError(f"{options.volume}: {why(error)}; expected the folder of a volume") from error


def _repair(options: argparse.Namespace, result: ScanResult, volume: MountedVolume | None) -> list[str]:
    """Returns the changes that were made in the directory, or, without --write, the changes that would be
    made."""
    tracker = tracker_of(options.dir, result.chosen, volume)
    if options.write:
        return repaired(options.dir, result, tracker, options.repair, options.mark, volume)
    return would_repair(options.dir, result, tracker, options.repair, volume)


def _parser() -> argparse.ArgumentParser:
    formats = [reader.name for reader in READERS]
    command = Parser(
        "checkpoints scan",
        "List the checkpoints of a directory, newest first, and choose the newest complete "
        "checkpoint. Without --digests, the command reads only names, sizes, headers and indexes. Without "
        "--write, the command changes nothing.",
        positional="DIR",
        example="rekindle checkpoints scan /ckpt",
    )
    command.add_argument(
        "dir",
        metavar="DIR",
        help="The directory that contains step-40/ and so on; or the text of the annotation "
        "rekindle.dev/checkpoint, such as '/ckpt;format=generic;marker=step-{step}/DONE'.",
    )
    command.add_argument(
        "--format", choices=formats, metavar="NAME",
        help=f"The only format to accept (default: by the names of the files): {', '.join(formats)}.",
    )  # fmt: skip
    command.add_argument(
        "--marker", type=_marker, metavar="FILE",
        help=f"With --format generic, the file that marks a complete checkpoint: {MARKER_EXPECTED}.",
    )  # fmt: skip
    add_output(command, Output)
    command.add_argument(
        "--exclude", type=int, action="append", default=[], metavar="STEP",
        help="Never choose this step, because it failed to load; you can repeat this option.",
    )  # fmt: skip
    command.add_argument(
        "--message-file", type=Path, metavar="FILE",
        help="Write the result in at most 4096 bytes for the controller, and print no table. The command "
                "does not examine older checkpoints than the chosen one.",
    )  # fmt: skip
    command.add_argument(
        "--digests", action="store_true",
        help="Read every byte of the chosen checkpoint, and compare the bytes with the digests that the "
                "format stores.",
    )  # fmt: skip
    command.add_argument(
        "--time", type=_seconds, default=TIME_S, metavar="SECONDS",
        help=f"Time limit in seconds (default: {TIME_S:g}), also of the comparison by --digests. inf means "
                "no limit: --digests then reads the whole checkpoint.",
    )  # fmt: skip
    command.add_argument(
        "--repair", type=_allowed, default=frozenset(), metavar="WHAT",
        help="Show how Rekindle would change the directory so that the framework loads the chosen "
                f"checkpoint. WHAT selects the kinds of changes: {REPAIR_EXPECTED}.",
    )  # fmt: skip
    command.add_argument(
        "--write", action="store_true",
        help="Make the changes of --repair. Use this only while no training writes there. The command "
                "deletes nothing.",
    )  # fmt: skip
    command.add_argument(
        "--volume", type=Path, metavar="FOLDER",
        help="The folder where this machine mounts the training's volume. With this option, DIR is the "
                "path that the training uses, and the command follows only links that stay in the volume.",
    )  # fmt: skip
    command.add_argument(
        "--mounted-at", type=_absolute, metavar="PATH",
        help="The path where the training mounts that volume: the command needs it to follow absolute links.",
    )  # fmt: skip
    command.add_argument(
        "--other-user", action="store_true",
        help="Use this option if the training runs as another user than this command. The command then "
                "fails if it may not read the newest checkpoint, instead of choosing an older one: the "
                "training may have the permission.",
    )  # fmt: skip
    command.add_argument(
        "--mark", type=_name, default="by-hand", metavar="NAME",
        help="The suffix of the names of the backup files and folders that --write makes (default: "
                "by-hand).",
    )  # fmt: skip
    return command


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


def _write(path: Path, message: ScanMessage) -> None:
    """Writes the message in place: the kubelet has bind-mounted the file, so a rename cannot replace it."""
    path.write_bytes(encode_message(message))


def _print_table(root: Path, result: ScanResult) -> None:
    from recover.cli.plain_console import plain_console  # noqa: PLC0415  not in the scan pod's image
    from recover.cli.telling import print_line, print_table  # noqa: PLC0415
    from recover.stories.overview_tables import Table  # noqa: PLC0415

    rows = []
    for found in result.checkpoints:
        mark = "chosen" if found == result.chosen else "yes" if found.complete else "no"
        rows.append((str(found.step), found.path, found.format or "-", mark, _size(found), found.reason))
    console = plain_console()
    if rows:
        columns = ("STEP", "PATH", "FORMAT", "COMPLETE", "SIZE", "REASON")
        print_table(console, Table("", columns, tuple(rows)))
    if result.chosen is None:
        told = f"No complete checkpoint in {str(root)!a}."
    else:
        told = f"Rekindle would resume from step {result.chosen.step} ({root / result.chosen.path})."
    print_line(console, told)


def _print_notes(options: argparse.Namespace, result: ScanResult, lines: list[str]) -> None:
    if not result.checkpoints:
        print(_no_names(options.marker))
    if result.ignored:
        print(_not_considered(result.ignored, options.marker))
    if result.chosen is None and any(found.reason == NO_KNOWN_FORMAT for found in result.checkpoints):
        print(_NO_FORMAT)
    if result.digests:
        print(result.digests)
    if options.repair and result.chosen is None:
        print("Nothing is repaired, because there is no complete checkpoint to resume from.")
    elif options.repair and not lines:
        print("There is nothing to repair.")
    for line in lines:
        print(line)


def _not_considered(names: Sequence[str], marker: Template | None) -> str:
    is_named = marker is not None and marker.entry
    expected = "the marker requires" if is_named else "Rekindle expects for this format"
    shown = ", ".join(f"{name!a:.120}" for name in names[:_IGNORED_MAX])
    more = " and more" if len(names) > _IGNORED_MAX else ""
    return f"Not considered, because these names do not have the form that {expected}: {shown}{more}."


def _no_names(marker: Template | None) -> str:
    """Returns the names that the scan has looked for and not found."""
    if marker is None or not marker.entry:
        return _NO_NAMES
    example = marker.entry.replace("{step}", "40")
    return f"No directory has a name such as {example!a}, which the marker requires."


def _size(found: Checkpoint) -> str:
    """Returns the size in words, or "-" if the size is not known: for an incomplete checkpoint, of which the
    scan measures only the files before the damage, for the generic format, of which only the marker is read,
    and for an unknown format."""
    count_bytes = float(found.bytes)
    if not found.complete or found.format in (Generic.name, ""):
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count_bytes < 1024:
            return f"{count_bytes:.0f} {unit}" if unit == "B" else f"{count_bytes:.1f} {unit}"
        count_bytes /= 1024
    return f"{count_bytes:.1f} TiB"
