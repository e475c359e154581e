"""`rekindle checkpoints scan DIR`: lists the checkpoints in a directory, and names the one that a resume
would take.

The scan pod runs the same command, with --message-file. The image of the scan pod has no typer, and the pod's
start counts towards the job's recovery. Therefore argparse reads the arguments, and rich is loaded only to
draw the table.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated

from msgspec import Meta

from detectors.commands.arguments import told_to_choose
from detectors.commands.exit_status import Exit
from detectors.text.answers import Answer
from recover.checkpoints.folder import why
from recover.checkpoints.generic import Generic
from recover.checkpoints.marker_template import Template
from recover.checkpoints.scan import NO_KNOWN_FORMAT, ScanError, scan
from recover.checkpoints.scan_result import (
    Checkpoint,
    ScanMessage,
    ScanResult,
    encode_message,
    message_of,
)
from recover.checkpoints.set_aside import repaired, tracker_of, would_repair
from recover.checkpoints.volume import MountedVolume
from recover.cli.checkpoints_options import scan_options
from recover.cli.output import Output, print_answer

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
    try:
        options = scan_options(args[1:])
    except SystemExit as end:  # argparse has printed its message or the help
        return int(end.code or 0)
    try:
        return _scan(options)
    except BrokenPipeError:  # `| head` closed the pipe; the interpreter must not report it at its last flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.GOOD


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
