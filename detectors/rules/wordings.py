"""The usual wordings of a step, `step 12/100 loss 0.3`, in logs of no framework that has a row. Pure.

A line is plain where it also gives a figure of the training, or says nothing else. Any other line with such
words is vague: `==> Step 1: preparing the data`. step_track.py asks more of those before it believes them.
"""

from __future__ import annotations

import re

import msgspec

__all__ = ["Wording", "count_of", "digits_at", "grouped_at", "wording_in"]

_WORDS = ("global_step", "global step", "train_step", "training_step", "iteration", "step", "iter")
_KINDS = frozenset({"global", "train", "training", "optimizer"})
_NOT_AFTER = frozenset(
    {"from", "at", "for", "to", "after", "until", "every", "per", "last", "latest", "max", "than"}
)
"""`resumed from step 40`, `seconds per step: 3`: such a line tells of a step and makes none."""
_NOT_OF_TRAINING = (
    "checkpoint",
    "saved",
    "val",
    "eval",
    "warmup",
    "warming",
    "sampl",
    "denois",
    "diffus",
    "generat",
    "infer",
    "rollout",
    "predict",
    "test",
    "load",
    "download",
    "tokeniz",
    "preproc",
    "captur",
    "calibrat",
    "compil",
    "autotun",
    "tuning",
    "search",
    "build",
    "decod",
    "profil",
    "benchmark",
)
"""`Validation: iteration 1/32`, `Sampling step 20/50`, `warmup step: 2000`, `Checkpoint saved: step 40`."""
_TOLD_BEFORE = frozenset(
    {"resumed", "resuming", "restored", "restoring", "loaded", "saved", "wandb", "starting", "continuing"}
    | {"parameters", "params", "config", "args", "trial"}
)
"""`Restoring states from the checkpoint path at /ckpt/epoch=0-step=40.ckpt`: of PyTorch Lightning."""
_BETWEEN = " \t:=#[(\"'"
_BETWEEN_CHARS_MAX = 8
_BEFORE_CHARS = 20
_AROUND_WORD = "()[]:,;.*"
_DIGITS_MAX = 15
_GROUP_DIGITS = 3
_PLACES_MAX = 8
_TOTAL = re.compile(r"\s*(?:/|of)\s*(?P<total>\d[\d,]{0,18})")
_FIGURE = re.compile(
    r"(?:loss|lr|learning[_ ]rate|grad_?norm|norm|ppl|perplexity|acc(?:uracy)?|eta|mfu|tflops?|tokens?|"
    r"samples?|time|elapsed|reward|throughput|tgs|tps|bsz|mem(?:ory)?|s/it|it/s)"
    r"\w{0,12}[\"']?[)/\w]{0,12}[ :=(\[|]{1,4}(?:is )?-?\d"
    r"|\w[:=] ?-?\d{1,9}\.\d"
)
"""A figure of the training, or any with a point."""
_SAYS_NOTHING = frozenset(
    {"epoch", "train", "training", "trainer", "finished", "completed", "done", "end", "ended"}
    | {"step", "steps", "iter", "iteration", "iterations", "global", "optimizer", "of", "in"}
    | {"info", "debug", "rank", "main", "root", "stdout", "stderr", "default", "pid", "t", "z"}
)
_DIGITS = re.compile(r"[0-9]{1,16}")
_PART = re.compile(r"\w+")
_WORD = re.compile(r"[a-z]+")


class Wording(msgspec.Struct, frozen=True):
    step: int
    total: int | None
    plain: bool


def wording_in(line: str, lower: str) -> Wording | None:
    """The step that a line names, `lower` being the same in lower case.

    >>> wording_in("Step 12/100", "step 12/100")
    Wording(step=12, total=100, plain=True)
    >>> wording_in("[Step 2/5] Downloading", "[step 2/5] downloading").plain
    False
    """
    return next((found for word in _WORDS if (found := _by_word(line, lower, word)) is not None), None)


def _by_word(line: str, lower: str, word: str) -> Wording | None:
    at = 0
    for _ in range(_PLACES_MAX):
        at = lower.find(word, at)
        if at < 0:
            return None
        start = at + len(word)
        if _begins_word(lower, at) and not _only_told(lower, at):
            while (
                start < len(lower)
                and lower[start] in _BETWEEN
                and start < at + len(word) + _BETWEEN_CHARS_MAX
            ):
                start += 1
            digits = grouped_at(lower, start) if start > at + len(word) else ""
            end = start + len(digits)
            if digits and _ends_number(lower, end) and not _is_listed(lower, at + len(word), start, end):
                return _wording(line, lower, count_of(digits), end)
        at += len(word)
    return None


def _wording(line: str, lower: str, step: int, end: int) -> Wording:
    found = _TOTAL.match(lower, end)
    total = count_of(found["total"]) if found is not None else None
    return Wording(step, total, _FIGURE.search(lower) is not None or _says_no_more(line, lower, end))


def _says_no_more(line: str, lower: str, end: int) -> bool:
    """Nothing but the step. One that is indented, or ends as an entry of a list, is of a settings dump."""
    if line[:1].isspace() or lower.rstrip().endswith((",", "(", "{", "[")):
        return False
    head, tail = lower[:end], lower[end:]
    return set(_WORD.findall(tail)) <= {"of"} and _SAYS_NOTHING.issuperset(_WORD.findall(head))


def _is_listed(lower: str, between: int, start: int, end: int) -> bool:
    """`step=[8, 11]` is a list; `[12/100]` and `(12)` are not."""
    opened = lower[between:start].lstrip(" \t:=#")[:1]
    return opened in ("[", "(") and lower[end:].lstrip()[:1] == ","


def _begins_word(lower: str, at: int) -> bool:
    """`--step` is an argument, `SGD(step=40)` an object, and `epoch=0-step=40.ckpt` a file of Lightning."""
    before = lower[max(0, at - _BEFORE_CHARS) : at]
    if before.endswith("-"):
        return not before[:-1].rstrip("0123456789").endswith(("-", "epoch="))
    if before.endswith("(") and before[-2:-1].isalnum():
        return False
    return not (before[-1:].isalnum() or before[-1:] == "_")


def _only_told(lower: str, at: int) -> bool:
    """Whether the step that may be named here was made earlier, or is none of the training."""
    if lower.find("' reached ", at) >= 0 or lower.find("' was not in top ", at) >= 0:
        return True  # Lightning: `Epoch 0, global step 40: 'val_loss' reached 0.3`, hours apart
    if at == 0:
        return False
    words = _PART.findall(lower[max(0, at - _BEFORE_CHARS) : at])
    while words and words[-1] in _KINDS:
        words.pop()
    if words[-2:-1] == ["epoch"] and words[-1].isdigit():
        del words[-2:]
    before = words[-1] if words else ""
    return (
        before in _NOT_AFTER
        or before.startswith(_NOT_OF_TRAINING)
        or not _TOLD_BEFORE.isdisjoint([word.strip(_AROUND_WORD) for word in lower[:at].split()])
    )


def digits_at(text: str, start: int) -> str:
    found = _DIGITS.match(text, start)
    return found[0] if found is not None and len(found[0]) <= _DIGITS_MAX else ""


def grouped_at(text: str, start: int) -> str:
    """The same with a comma before each three digits, as `1,234`, where they are laid out so."""
    digits = digits_at(text, start)
    end = start + len(digits)
    if not 1 <= len(digits) <= _GROUP_DIGITS:
        return digits
    while text.startswith(",", end) and len(digits_at(text, end + 1)) == _GROUP_DIGITS:
        end += 1 + _GROUP_DIGITS
    is_list = text.startswith(",", end) and bool(digits_at(text, end + 1))
    return digits if is_list or end - start > _DIGITS_MAX else text[start:end]


def count_of(digits: str) -> int:
    return int(digits.replace(",", ""))


def _ends_number(text: str, at: int) -> bool:
    """`12.5`, `12ms`, `12%` and `12.ckpt` are no steps; `12.` at the end of a sentence is."""
    after = text[at : at + 2]
    if after[:1].isalnum() or after[:1] in ("_", "%"):
        return False
    return not (after[:1] == "." and after[1:].isalnum())
