"""`rekindle bench logs`: measures the CPU time that the agent spends on a line of a log, by kind of line, and
on logs that never pause.

One process folds the log of one container as the agent does, starting with the runtime's bytes. The bench
needs no file and no cluster. The fastest of several rounds counts, because other work on the machine can only
make a round slower.
"""

from __future__ import annotations

import argparse
import os
import random
import string
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import count

import msgspec
from rich.console import Console
from rich.table import Table

from chaos.bench.arguments import add_count
from chaos.bench.figures import Machine, machine, shown
from detectors.commands.arguments import Parser
from detectors.folds.core import AgentCore
from detectors.rules.facts import PodRef
from detectors.service.settings import AgentSettings, Logs
from detectors.sources.cri import Joiner, parse_line
from recover.cli.output import add_output

__all__ = ["ABOUT", "KINDS", "STORMS", "Cost", "Found", "measure", "run", "tell"]

ABOUT = (
    "Measure the CPU time that the agent needs for a line of a log, by kind of line, and for logs "
    "that never pause."
)

_FIRST_AT = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
_POD = PodRef("team-a", "llm-0", "6d3c7b1e-0000-4000-8000-000000000000", "train")
_PART_BYTES = 16 * 1024
"""Number of bytes of each part in which the runtime passes on a line that does not end."""
_BAR = "  1%|▍         | #/100000 [04:16<13:02:24, 25.43s/it]"
_TEXT = "2026-11-21 09:30:00,123 INFO worker fetched 128 records from shard 17 in 0.42 s"
_TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/app/train.py", line 312, in <module>',
    "    main(arguments)",
    '  File "/app/train.py", line 287, in main',
    "    loss = model(batch).mean()",
    "ValueError: expected a batch of 32, got #",
)


class Cost(msgspec.Struct, frozen=True):
    name: str
    us_per_line: float
    """Microseconds per line. For a bar that does not end: per part that the runtime passes on."""
    us_per_kib: float
    core_percent: float
    """Percentage of a core that the agent needs if one container prints as much as the agent reads of one
    container with the default settings."""


class Found(msgspec.Struct, frozen=True):
    lines: int
    rounds: int
    bytes_per_s_max: int
    """Number of bytes a second that the agent reads of one container with the default settings."""
    kinds: tuple[Cost, ...]
    storms: tuple[Cost, ...]
    machine: Machine


def run(args: list[str]) -> int:
    """Returns the exit status. 0: measured; 2: wrong usage."""
    options = _parser().parse_args(args)
    shown(measure(options.lines, options.rounds), tell, options.output)
    return 0


def _parser() -> argparse.ArgumentParser:
    about = (
        f"{ABOUT} The command measures the CPU time of one process that turns log files into the "
        "agent's state."
    )
    parser = Parser("bench logs", about, row="bench")
    add_count(parser, "--lines", "Number of lines of each kind", least=10, most=1_000_000, default=1000)
    text = "Number of measurements of each kind; the command reports the fastest"
    add_count(parser, "--rounds", text, least=1, most=1000, default=9)
    add_output(parser)
    return parser


# --- what is printed ----------------------------------------------------------------------------------------


def _counted(line: str) -> Callable[[int], list[bytes]]:
    """Returns a function that makes lines. The lines differ in the number in the place of `#`."""
    return lambda lines: _written(line.replace("#", str(number)) for number in range(1, lines + 1))


def _varied(lines: int) -> list[bytes]:
    """Returns lines of text that each contain another random word."""
    chance = random.Random(1)
    return _written(f"{_TEXT} {''.join(chance.choices(string.ascii_lowercase, k=12))}" for _ in range(lines))


def _junk(lines: int) -> list[bytes]:
    chance = random.Random(1)
    return _written("".join(chance.choices(string.printable[:94], k=120)) for _ in range(lines))


def _tracebacks(lines: int) -> list[bytes]:
    of_one = len(_TRACEBACK)
    return _written(_TRACEBACK[n % of_one].replace("#", str(n)) for n in range(lines))


def _behind_an_error(lines: int) -> list[bytes]:
    error = "RuntimeError: CUDA error: device-side assert triggered"
    return _written([error, *(_TEXT.replace("17", str(n)) for n in range(lines - 1))])


def _unended_bar(lines: int) -> list[bytes]:
    """Returns a bar with this number of counts, in the parts into which the runtime splits it."""
    drawn = "".join(f"\r{_BAR.replace('#', str(number))}" for number in range(1, lines + 1)).encode()
    parts = (drawn[begin : begin + _PART_BYTES] for begin in range(0, len(drawn), _PART_BYTES))
    return _written((part.decode("utf-8", "ignore") for part in parts), "P")


def _written(lines: Iterable[str], tag: str = "F") -> list[bytes]:
    """Returns the lines as the runtime writes them, one second apart."""
    times = (_FIRST_AT + timedelta(seconds=number) for number in count())
    return [
        f"{at:%Y-%m-%dT%H:%M:%S.%f}000Z stdout {tag} {line}".encode()
        for line, at in zip(lines, times, strict=False)
    ]


KINDS: Mapping[str, Callable[[int], list[bytes]]] = {
    "text": _counted(_TEXT.replace("17", "#")),
    "text, new words": _varied,
    "JSON": _counted('{"ts": "2026-11-21T09:30:00Z", "level": "info", "msg": "request handled", "ms": #}'),
    "access log": _counted(
        '10.0.0.1 - - [21/Nov/2026:09:30:00 +0000] "GET /metrics HTTP/1.1" 200 # "-" "curl/8"'
    ),
    "NCCL": _counted("host:1234:1290 [0] NCCL INFO Channel 00/02 :    0   1   2   3   4   5   6   #"),
    "words of a training": _counted("training data loader started with 16 workers, batch size 32, epoch #"),
    "step": _counted("step # loss 0.3"),
    "step of a logger": _counted("2026-11-21 09:30:00 INFO step #/100000 loss 2.31 lr 1.0e-4 tokens/s 12000"),
    "Megatron": _counted(
        " [2026-11-21 09:30:00] iteration        #/  500000 | consumed samples:         3072 | elapsed time "
        "per iteration (ms): 5350.0 | learning rate: 1.5E-04 | lm loss: 9.1E+00 |"
    ),
    "DeepSpeed": _counted(
        "[2026-11-21 09:30:00,000] [INFO] [logging.py:128:log_dist] [Rank 0] step=#, skipped=0, lr=[0.001], "
        "mom=[[0.9, 0.999]]"
    ),
    "torchtitan": _counted(
        "[rank0]:2026-11-21 09:30:00,084 - root - INFO - step: #  loss:  6.2116  memory: 87.04GiB(93.48%)"
    ),
    "figures of HF Trainer": _counted(
        "{'loss': 2.421, 'grad_norm': 1.234, 'learning_rate': 5e-06, 'epoch': 0.#}"
    ),
    "bar of HF Trainer": _counted(_BAR),
    "bar with a name": _counted("Steps:   1%|1         | #/100000 [04:16<13:02:24, 25.43s/it, loss=0.31]"),
    "save": _counted("INFO trainer.py:2926 >> Saving model checkpoint to out/checkpoint-#"),
}
STORMS: Mapping[str, Callable[[int], list[bytes]]] = {
    "errors": _counted("[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate # MiB."),
    "lost peers": _counted("[rank3]:[W] Failed to recv, got 0 bytes. Connection was likely closed, try #."),
    "tracebacks": _tracebacks,
    "text behind an error": _behind_an_error,
    "junk": _junk,
    "bars, a line each": _counted(_BAR),
    "a bar that does not end": _unended_bar,
}

# --- measuring ----------------------------------------------------------------------------------------------


def measure(lines: int, rounds: int) -> Found:
    load_before = os.getloadavg()[0]
    settings = Logs()
    rate = round(settings.read_bytes / settings.read_pause_s)
    return Found(
        lines=lines,
        rounds=rounds,
        bytes_per_s_max=rate,
        kinds=tuple(_cost(name, printed(lines), rounds, rate) for name, printed in KINDS.items()),
        storms=tuple(_cost(name, printed(lines), rounds, rate) for name, printed in STORMS.items()),
        machine=machine(load_before),
    )


def _cost(name: str, printed: list[bytes], rounds: int, bytes_per_s: int) -> Cost:
    spent_us = min(_spent_s(printed) for _ in range(rounds)) * 1e6
    per_byte_us = spent_us / sum(len(line) + 1 for line in printed)
    return Cost(
        name=name,
        us_per_line=round(spent_us / len(printed), 2),
        us_per_kib=round(1024 * per_byte_us, 2),
        core_percent=round(per_byte_us * bytes_per_s / 1e4, 1),
    )


def _spent_s(printed: list[bytes]) -> float:
    """Returns the CPU seconds in which a new agent reads the log of a new container."""
    settings = AgentSettings()
    core, joiner = AgentCore(settings, boot_id="bench"), Joiner(settings.logs.line_bytes_max)
    began_s = time.thread_time()
    for data in printed:
        line = parse_line(data)
        text = joiner.add(line) if line is not None else None
        if line is not None and text is not None:
            core.log_line(_POD, text, line.at)
    return time.thread_time() - began_s


# --- telling ------------------------------------------------------------------------------------------------


def tell(console: Console, found: Found) -> None:
    console.print(_table("A line of a log", found.kinds))
    console.print(_table("Logs that never pause", found.storms))
    console.print(
        f'The fastest of {found.rounds} rounds of {found.lines} lines. "Of a core": if one container prints '
        f"at least {found.bytes_per_s_max / 1e6:.1f} MB a second; the agent reads no more of one. "
        f"{found.machine.words()}.",
        highlight=False,
    )


def _table(title: str, costs: Iterable[Cost]) -> Table:
    made = Table(title=title, title_justify="left")
    made.add_column("", no_wrap=True)
    for column in ("µs a line", "µs a KiB", "of a core"):
        made.add_column(column, justify="right", no_wrap=True)
    for cost in costs:
        figures = (f"{cost.us_per_line:.2f}", f"{cost.us_per_kib:.1f}", f"{cost.core_percent:.1f} %")
        made.add_row(cost.name, *figures)
    return made
