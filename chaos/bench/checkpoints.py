"""`rekindle bench checkpoints`: measures how soon a scan finds the newest complete checkpoint of many, and
counts the files that the scan touches.

The checkpoints are in a temporary folder. All shards of a checkpoint are hard links to one tiny file: a scan
reads only names and sizes, and half a million files would take minutes to create. All of these files are in
the page cache. The files of a network volume are not, and each file costs a round trip there, so the counts
say more than the times.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from chaos.bench.arguments import add_count
from chaos.bench.figures import Machine, Row, machine, row, shown, table
from detectors.commands.arguments import Parser
from recover.checkpoints.rekindle_sharded import MARKER, RekindleSharded
from recover.checkpoints.scan import scan
from recover.cli.output import add_output

__all__ = ["ABOUT", "Checkpoints", "Touched", "counted", "measure", "run", "tell"]

ABOUT = "Measure how soon the newest complete checkpoint of many is found."

STEPS_BETWEEN = 100


class Touched(msgspec.Struct, frozen=True):
    """The operations that one scan made on the file system."""

    words: str
    chosen_step: int
    listed: int
    sizes: int
    opened: int
    checkpoints: int
    """Number of checkpoints of which the scan touched the directory, or something in the directory."""
    older_checkpoints: int
    """Number of these checkpoints that are older than the chosen one: 0 if the scan does what it promises."""


class Checkpoints(msgspec.Struct, frozen=True):
    checkpoints: int
    shards: int
    rows: tuple[Row, ...]
    touched: tuple[Touched, ...]
    machine: Machine


def run(args: list[str]) -> int:
    """Returns the exit status. 0: measured; 1: the measurement failed; 2: wrong usage."""
    options = _parser().parse_args(args)
    try:
        with tempfile.TemporaryDirectory(prefix="rekindle-", dir=options.dir) as folder:
            found = measure(Path(folder), options.checkpoints, options.shards, options.broken, options.rounds)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"rekindle bench checkpoints: {error}", file=sys.stderr)
        return 1
    shown(found, tell, options.output)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "bench checkpoints",
        f"{ABOUT} The command also counts the files that the scan opens, in two cases: the newest checkpoint "
        "is complete, or some of the newest checkpoints are incomplete.",
        row="bench",
    )
    add_count(parser, "--checkpoints", "Number of checkpoints", least=2, most=20_000, default=1000)
    add_count(parser, "--shards", "Number of shards of each checkpoint", least=1, most=10_000, default=512)
    add_count(
        parser,
        "--broken",
        "Number of the newest checkpoints that are incomplete",
        least=1,
        most=500,
        default=3,
    )
    add_count(parser, "--rounds", "Number of measurements", least=1, most=1000, default=5)
    parser.add_argument(
        "--dir", metavar="DIR", help="Folder for the checkpoints (default: the temporary directory)."
    )
    add_output(parser)
    return parser


def measure(folder: Path, checkpoints: int, shards: int, broken: int, rounds: int) -> Checkpoints:
    """Fills `folder`, which must be empty. Raises OSError, and CalledProcessError if the scan fails."""
    load_before = os.getloadavg()[0]
    for number in range(1, checkpoints + 1):
        _make(folder / f"step-{number * STEPS_BETWEEN}", number * STEPS_BETWEEN, shards)
    rows, touched = [], []
    for passed_over in (0, min(broken, checkpoints - 1)):
        words = f"{passed_over} newer ones incomplete" if passed_over else "the newest is complete"
        for number in range(checkpoints - passed_over + 1, checkpoints + 1):
            _break(folder / f"step-{number * STEPS_BETWEEN}", shards, number)
        times = [_timed(lambda: scan(folder, until_chosen=True)) for _ in range(rounds)]
        rows.append(row(f"scan-{passed_over}", f"scan, {words}", times))
        touched.append(_touched(folder, words))
    message = folder / "message"
    command = [sys.executable, "-m", "detectors.commands.main", "checkpoints", "scan", str(folder)]
    command += ["--message-file", str(message)]
    times = [_timed(lambda: subprocess.run(command, check=True)) for _ in range(rounds)]
    rows.append(row("command", "  the scan pod's command, with Python's start", times))
    rows.append(row("all", "scan of all, as people call it", [_timed(lambda: scan(folder))]))
    return Checkpoints(checkpoints, shards, tuple(rows), tuple(touched), machine(load_before))


# --- the checkpoints ----------------------------------------------------------------------------------------


def _shard(rank: int, shards: int) -> str:
    return f"shard-{rank}-of-{shards}.npz"


def _make(directory: Path, step: int, shards: int) -> None:
    directory.mkdir()
    names = [_shard(rank, shards) for rank in range(shards)]
    first = directory / names[0]
    first.write_bytes(b"x")
    for name in names[1:]:
        os.link(first, directory / name)
    files = [{"name": name, "bytes": 1} for name in names]
    manifest = {"format": RekindleSharded.name, "step": step, "files": files}
    (directory / MARKER).write_bytes(msgspec.json.encode(manifest))


def _break(directory: Path, shards: int, number: int) -> None:
    """Removes the last shard if `number` is even, and otherwise the marker, as if the save had never
    finished. A lost last shard costs the scan the most."""
    (directory / (MARKER if number % 2 else _shard(shards - 1, shards))).unlink()


# --- measuring ----------------------------------------------------------------------------------------------


def _timed(act: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    act()
    return time.perf_counter() - began_s


@contextmanager
def counted() -> Iterator[dict[str, list[Path]]]:
    """Yields the paths that this process lists, reads the size of, or opens, by the function of `os` that the
    process calls. A directory that is opened for a listing, or on the way to a file, does not count as
    opened."""
    calls: dict[str, list[Path]] = {"scandir": [], "stat": [], "open": []}
    real = {name: getattr(os, name) for name in calls}

    def counting(name: str) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            if name != "open" or not args[0] & os.O_DIRECTORY:
                calls[name].append(_place(path, kwargs.get("dir_fd")))
            return real[name](path, *args, **kwargs)

        return call

    for name in calls:
        setattr(os, name, counting(name))
    try:
        yield calls
    finally:
        for name, function in real.items():
            setattr(os, name, function)


def _place(path: Any, directory: int | None) -> Path:
    if isinstance(path, int):
        return Path(os.readlink(f"/proc/self/fd/{path}"))
    return Path(path) if directory is None else Path(os.readlink(f"/proc/self/fd/{directory}"), path)


def _touched(folder: Path, words: str) -> Touched:
    with counted() as calls:
        chosen = scan(folder, until_chosen=True).chosen
    assert chosen is not None, "only some of the newest were broken"
    paths = {path.relative_to(folder.resolve()).parts for found in calls.values() for path in found}
    steps = {int(parts[0].removeprefix("step-")) for parts in paths if parts}
    return Touched(
        words=words,
        chosen_step=chosen.step,
        listed=len(calls["scandir"]),
        sizes=len(calls["stat"]),
        opened=len(calls["open"]),
        checkpoints=len(steps),
        older_checkpoints=sum(step < chosen.step for step in steps),
    )


# --- telling ------------------------------------------------------------------------------------------------


def tell(console: Console, found: Checkpoints) -> None:
    console.print(table(f"{found.checkpoints} checkpoints of {found.shards} shards", found.rows))
    made = Table(title="What one scan touched", title_justify="left")
    made.add_column("", no_wrap=True)
    for column in ("step", "lists", "sizes", "opens", "checkpoints", "older"):
        made.add_column(column, justify="right")
    for touched in found.touched:
        fields = msgspec.structs.astuple(touched)
        made.add_row(*(str(field) for field in fields))
    console.print(made)
    console.print(
        f"All in the page cache; the shards of a checkpoint are names of one file. {found.machine.words()}.",
        highlight=False,
    )
