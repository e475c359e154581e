"""The table of `rekindle bench scale`: a column for each size, and how each figure grows. Pure."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence

import msgspec
from rich.console import Console
from rich.table import Table

from chaos.bench.figures import Machine, percentile
from chaos.bench.scale.size import Size

__all__ = ["AtSize", "Figure", "Scale", "growth", "medians", "of_times", "tell"]


class Figure(msgspec.Struct, frozen=True):
    name: str
    words: str
    unit: str
    value: float
    """Measured value. With `p99` the value is the median of the rounds; otherwise it was measured once, or is
    the mean of the rounds."""
    p99: float | None = None
    """99th percentile. None if the rounds were not measured one by one."""
    rounds: int = 1

    def shown(self) -> str:
        return _short(self.value) if self.p99 is None else f"{_short(self.value)} / {_short(self.p99)}"


class AtSize(msgspec.Struct, frozen=True):
    size: Size
    figures: tuple[Figure, ...]


class Scale(msgspec.Struct, frozen=True):
    measured: str
    """`decisions alone, in process` or `on an API server`."""
    settings: tuple[str, ...]
    """Settings of the controller that differ from its defaults."""
    sizes: tuple[AtSize, ...]
    notes: tuple[str, ...]
    machine: Machine


def of_times(name: str, words: str, seconds: Sequence[float]) -> Figure:
    """Returns a figure in milliseconds."""
    p50, p99 = (1000 * percentile(seconds, percent) for percent in (50, 99))
    return Figure(name, words, "ms", p50, p99, len(seconds))


def medians(runs: Sequence[Sequence[Figure]]) -> list[Figure]:
    """Returns each figure once, in the order of its first run, with the medians of its values over the runs.
    A run may lack a figure, for example because no turn of the loop was long."""
    by_name: dict[str, list[Figure]] = {}
    for figure in itertools.chain.from_iterable(runs):
        by_name.setdefault(figure.name, []).append(figure)
    return [_median(figures) for figures in by_name.values()]


def _median(figures: Sequence[Figure]) -> Figure:
    high = [figure.p99 for figure in figures if figure.p99 is not None]
    value = statistics.median(figure.value for figure in figures)
    return msgspec.structs.replace(figures[0], value=value, p99=statistics.median(high) if high else None)


def growth(first: Figure | None, last: Figure | None) -> float | None:
    """Returns how many times as large the last figure is. Returns None if a figure is missing or the first is
    0."""
    if first is None or last is None or not first.value:
        return None
    return last.value / first.value


def tell(console: Console, found: Scale) -> None:
    sizes = found.sizes
    table = Table(
        title=f"Rekindle's controller by the size of the cluster, {found.measured}", title_justify="left"
    )
    table.add_column("p50 / p99 of CPU time, unless the row says otherwise", no_wrap=True)
    table.add_column("", no_wrap=True)
    for one in sizes:
        words = f"{one.size.nodes} nodes\n{one.size.pods} pods\n{one.size.ranks} ranks"
        table.add_column(words, justify="right", no_wrap=True)
    if len(sizes) > 1:
        table.add_column("grows", justify="right", no_wrap=True)
    for row in _rows(sizes):
        table.add_row(*row)
    console.print(table)
    for note in found.notes:
        console.print(note, highlight=False)
    settings = f"Settings of the controller: {', '.join(found.settings)}, all else as shipped. "
    console.print(f"{settings}{found.machine.words()}.", highlight=False)


def _rows(sizes: Sequence[AtSize]) -> Iterator[list[str]]:
    """Yields one row for each figure, with one cell for each size. Order and words of the rows are those of
    the last size."""
    by_name = [{figure.name: figure for figure in one.figures} for one in sizes]
    for name in dict.fromkeys(name for figures in reversed(by_name) for name in figures):
        of_sizes = [figures.get(name) for figures in by_name]
        known = next(figure for figure in reversed(of_sizes) if figure is not None)
        cells = [figure.shown() if figure is not None else "-" for figure in of_sizes]
        row = [known.words, known.unit, *cells]
        if len(sizes) > 1:
            times = growth(of_sizes[0], of_sizes[-1])
            row.append(f"{_short(times)} x" if times is not None else "-")
        yield row


def _short(value: float) -> str:
    """Returns the value with three significant digits."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}" if value >= 0.001 else f"{value:.1g}"
