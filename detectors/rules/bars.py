"""Reads progress bars, which overwrite their own line with carriage returns. Pure.

One line of a log then contains many pieces, of which a terminal shows the last. tqdm writes:

    Steps:  12%|#2   | 12/100 [00:10<01:15,  1.17it/s, loss=0.31]

Before its first count the rate is `<?, ?it/s`. In a terminal without width tqdm leaves out the part between
the `|`. A bar that is drawn below another one moves the cursor up again after itself.
"""

from __future__ import annotations

import re

import msgspec

from detectors.text.log_template import without_colours

__all__ = ["Bar", "bar_in", "gives_loss", "pieces", "without_rate"]

_PIECES_MAX = 4
_NAME_CHARS_MAX = 120
_CURSOR_UP = "\x1b[A"
_COUNT = re.compile(r"[|%]\s{0,4}(?P<count>\d{1,15})/(?P<total>\d{1,15}|\?) \[\d[\d:]*<")
_PERCENT = re.compile(r"\s*\d{1,3}%$")
_END = re.compile(r"\](?=[^\s\],)}=:])")
"""The end of a bar after which another line follows at once: a bar does not end its line, and a logger that
writes to the same stream begins none."""
_LOSS = re.compile(
    r"(?<!val_)(?<!eval_)(?<!test_)(?<!valid_)loss(?:/[a-z_/]{1,40})?[\"']?[:= ] {0,4}-?(?:\d|nan\b|inf\b)"
)
_RANK = re.compile(r"^\s*(?:\[[^\] ]{1,40}\]:|\([^)]{1,80}\)|\d{1,6}:)\s")
"""Prefix of a rank: `[rank3]: ` by torch, `(TaskRunner pid=1234) ` by Ray, `3: ` by srun --label."""


class Bar(msgspec.Struct, frozen=True):
    """The content of a bar. `total` is None if it is unknown."""

    name: str
    count: int
    total: int | None
    behind: str
    """The rest of the bar after the count."""
    is_inner: bool = False
    """Whether the bar is drawn below another bar."""


def pieces(text: str) -> list[str]:
    """Returns the first and the last pieces of a line, in their order; a line without a carriage return is
    one piece. Codes of the terminal are removed, except one that moves the cursor up after a bar, which stays
    at the end of its piece."""
    if "\r" not in text:
        return [_plain(text)]
    found = [piece for piece in text.split("\r") if piece]
    kept = found if len(found) <= 2 * _PIECES_MAX else found[:_PIECES_MAX] + found[-_PIECES_MAX:]
    return [_plain(piece) for piece in kept]


def _plain(piece: str) -> str:
    if "\x1b" not in piece:
        return piece
    plain = without_colours(piece)
    is_inner = _CURSOR_UP in piece and _COUNT.search(plain) is not None
    return f"{plain}{_CURSOR_UP}" if is_inner else plain


def without_rate(piece: str) -> bool:
    """Whether the piece is a bar as tqdm first draws it, at 0 or at the count where the bar begins: nothing
    has been done yet."""
    return "<?, ?" in piece


def gives_loss(bar: Bar) -> bool:
    """Whether the bar shows a loss beside its count, or in its name."""
    return _names_loss(bar.behind.lower()) or _names_loss(bar.name.lower())


def _names_loss(lower: str) -> bool:
    return "loss" in lower and _LOSS.search(lower) is not None


def bar_in(piece: str) -> Bar | None:
    """Returns the bar that a piece of a line draws; None if there is none.

    >>> bar_in("(Runner pid=7) Steps:  12%|#2   | 12/100 [00:10<01:15,  1.17it/s]")
    Bar(name='Steps', count=12, total=100, behind='01:15,  1.17it/s]', is_inner=False)
    >>> bar_in(" 12%|#2   | 12/100 [00:10<01:15,  1.17it/s]").name
    ''
    """
    found = _COUNT.search(piece)
    if found is None:
        return None
    opening = piece.rfind("|", 0, found.start())
    head = piece[: opening if opening >= 0 else found.start() + 1]
    name = _PERCENT.sub("", head[-_NAME_CHARS_MAX:])
    if name and not name.isspace():
        name = _RANK.sub("", name).strip().rstrip(": ")
    else:
        name = ""
    count, total = found.groups()
    rest, up, _ = piece[found.end() :].partition(_CURSOR_UP)
    ended = _END.search(rest)
    behind = rest[: ended.end()] if ended is not None else rest
    return Bar(name, int(count), None if total == "?" else int(total), behind, is_inner=bool(up))
