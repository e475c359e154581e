"""Progress bars, which write over their own line with carriage returns. Pure.

One line of a log then holds many pieces, of which a terminal shows the last. tqdm writes
`Steps:  12%|#2   | 12/100 [00:10<01:15,  1.17it/s, loss=0.31]`, and `<?, ?it/s` before its first count.
"""

from __future__ import annotations

__all__ = ["pieces", "step_of", "without_rate"]

_PIECES_MAX = 4
_CALLED_STEPS = frozenset(
    f"{kind}{word}"
    for kind in ("", "global ", "global_", "train ", "training ")
    for word in ("step", "steps")
)
_DIGITS_MAX = 15


def pieces(text: str) -> list[str]:
    """The first and the last ones, in their order; a line without a carriage return is one piece."""
    if "\r" not in text:
        return [text]
    found = [piece for piece in text.split("\r") if piece]
    return found if len(found) <= 2 * _PIECES_MAX else found[:_PIECES_MAX] + found[-_PIECES_MAX:]


def without_rate(piece: str) -> bool:
    """A bar as it is first drawn, at 0 or where it begins: nothing has been done yet."""
    return "<?, ?" in piece


def step_of(lower: str) -> int | None:
    """What a bar has counted whose name says that it counts training steps.

    A bar without a name may be training, an evaluation or the reading of data: it names no step.

    >>> step_of("steps:  12%|#2   | 12/100 [00:10<01:15,  1.17it/s]")
    12
    >>> step_of(" 12%|#2   | 12/100 [00:10<01:15,  1.17it/s]")
    """
    name, percent, bar = lower.partition("%|")
    called, colon, _ = name.partition(":")
    if not (percent and colon and called.strip() in _CALLED_STEPS):
        return None
    count, slash, total = bar.partition("| ")[2].partition("/")
    is_count = slash and count.isascii() and count.isdigit() and len(count) <= _DIGITS_MAX
    return int(count) if is_count and " [" in total else None
