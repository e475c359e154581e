"""Reads the usual wordings of a step, `step 12/100 loss 0.3`, in logs of frameworks without a row. Pure.

A line is plain if it also shows a figure of the training, or contains nothing else. Any other line with such
words is vague: `==> Step 1: preparing the data`. step_track.py requires more of vague lines before it
believes them.
"""

from __future__ import annotations

import re

import msgspec

from detectors.rules.line_words import by_words

__all__ = [
    "Wording",
    "count_of",
    "digits_at",
    "grouped_at",
    "is_of_training",
    "is_other_work",
    "wording_in",
]

_ANCHORS = ("step", "iter", "batch")
_PLACE = re.compile(
    r"(?P<word>step|iteration|iter|batch)(?P<many>s?)(?P<between>[ \t:=#\[(\"']{1,8})(?P<digits>\d{1,16})"
)
_RANKS = {"iteration": 2, "step": 3, "iter": 4, "batch": 5}
"""Ranks of the words. The number with the lowest rank in a line is read: `Step 5/100 | Global Step: 205`."""
_MANY_RANK = 6
"""Rank of a plural: `iterations: 57` may be a count, or the number that there will be."""
_KINDS = frozenset({"global", "train", "training", "optimizer"})
_PER = re.compile(r"(?:\b(?:[mun]?s|secs?|seconds?|time|words?|tok(?:en)?s?|samples?)|batch(?:es)?)/$")
"""The part before a rate: `ms/step 12` and `words/batch 906` are rates; `train/step 12` is a step."""
_PREFIXES = (("global_", 0), ("global ", 0), ("train_", 1), ("training_", 1))
"""Words that may precede the word for a step, and its rank in that case."""
_NOT_AFTER = frozenset(
    {"from", "at", "for", "to", "after", "until", "every", "per", "last", "latest", "best", "max", "than"}
)
"""Words before a step that was not just made: `resumed from step 40`, `seconds per step: 3`."""
_NOT_OF_TRAINING = (
    "checkpoint",
    "saved",
    "val",
    "eval",
    "warmup",
    "micro",
    "inner",
    "setup",
    "experience",
    "quantiz",
    "accum",
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
"""Beginnings of words before steps of other work: `Validation: iteration 1/32`, `Sampling step 20/50`,
`warmup step: 2000`, `Checkpoint saved: step 40`."""
_TOLD_BEFORE = frozenset(
    {"resumed", "resuming", "restored", "restoring", "loaded", "saved", "saving", "wandb", "starting"}
    | {"deleted", "deleting", "removed", "removing"}
    | {"continuing", "skipping", "skipped"}
    | {"parameters", "params", "config", "args", "trial"}
    | {"evaluating", "validating", "loading", "downloading", "uploading", "fetching", "extracting", "caching"}
    | {"building", "compiling", "capturing", "profiling", "benchmarking", "calibrating", "quantizing"}
    | {"tokenizing", "preprocessing", "preparing", "shuffling", "indexing", "converting", "exporting"}
    | {"sampling", "generating", "decoding"}
)
"""Words earlier in the line that show that the step was made before, or is other work: `Restoring states from
the checkpoint path at /ckpt/epoch=0-step=40.ckpt`, by PyTorch Lightning."""
_SET_UP = _TOLD_BEFORE | frozenset(
    {"installing", "pulling", "cloning", "copying", "creating", "checking", "verifying", "configuring"}
    | {"initializing", "launching", "setting", "writing", "processing", "computing", "calling", "performing"}
)
_NEXT_WORD = re.compile(r"[\s\])}:.,|-]{1,6}([a-z]+)")
"""The word after the number. In `[Step 2/5] Installing python:3.11` it shows a preparation."""
_EVALUATION = re.compile(
    r"\b(?:(?:val|valid|validation|validating|eval|evaluation|evaluating)(?:[\])]| [|-]|[,:|](?! *-?[\d.]))"
    r"|(?:val|valid|validation|eval|test) $)"
)
"""An evaluation: `val, rank: 1, epoch: 0, step: 100` and `Test epoch`, but not `val: 0.31`."""
_EVALUATION_IN_CHINESE = ("验证", "评估", "测试", "推理", "预测")
"""Validation, evaluation, test, inference, prediction."""
_BEFORE_CHARS = 20
_AROUND_WORD = str.maketrans("()[]:,;*", "        ")
_DIGITS_MAX = 15
_GROUP_DIGITS = 3
_PLACES_MAX = 8
_EPOCH = re.compile(r"epoch[\"']?[ :=\[(|#]{0,4}\d+(?![\d.]*\d)")
"""The number of an epoch, after which a step counts within the epoch. `'epoch': 0.25` shows the position
itself."""
_IN_SOURCE = re.compile(r"(?:\| +|\[)[\w.<>/-]{1,100}:\w{0,60}$")
"""The part before the name of a function that printed the line: `| trainer:train_step:212 - ` by loguru, and
`[trainer.py:train_step:212]`. The number after the name is that of a source line."""
_SOURCE_CHARS = 170
_TIME = re.compile(r" ?(?:ms|[smhuµ]|secs?|seconds?|min(?:ute)?s?|hours?)\b(?! ?[:=])")
"""A unit of time: `step 12 ms | loss 2.1` shows a duration."""
_TOTAL = re.compile(r"\s*(?:/|of)\s*(?P<total>\d[\d,]{0,18})")
_BUILD = re.compile(
    r" : (?:from|run|copy|add|env|arg|cmd|user|label|shell|expose|volume|workdir|entrypoint|maintainer)\b"
)
"""A step of a container image that is built: `Step 1/6 : FROM nginx:1.21`."""
_FIGURE = re.compile(
    r"(?:loss|lr|learning[_ ]rate|grad_?norm|norm|ppl|perplexity|acc(?:uracy)?|eta|mfu|tflops?|"
    r"(?<!put )tokens?|samples?|time|elapsed|reward|throughput|tgs|tps|bsz|mem(?:ory)?|s/it|it/s)"
    r"\w{0,12}[\"']?[)/\w]{0,12}[ :=(\[|]{1,4}(?:is )?-?(?:\d|nan|inf)"
    r"|[a-z_][\"')\]]?[:=] ?-?\d{1,9}\.\d"
)
"""A figure of the training, or any number with a name and a decimal point: a time such as 09:30:00.5 has no
name. Numbers of input and output tokens are left out: programs that use a language model print them with
steps that are not a training's."""
_SAYS_NOTHING = frozenset(
    {"epoch", "batch", "train", "training", "trainer", "finished", "completed", "done", "end", "ended"}
    | {"step", "steps", "iter", "iteration", "iterations", "global", "optimizer", "optimization", "of", "in"}
    | {"info", "debug", "rank", "main", "root", "stdout", "stderr", "default", "pid", "t", "z", "tensorflow"}
)
_HEADING = re.compile(r"\s*(?:#{1,6}\s|[*>-]\s|\*{1,3}\w)|.*\d[ *\])]{0,8}:[ *]{0,8}$")
"""A heading of text that a language model has generated: `### Step 1`, `**Step 2:**`, `Step 3:`. No such text
knows a total: `Step 12/100:` and `--- Step 12 ---` are lines of trainings."""
_BARE_TOTAL_MIN = 10
"""Least total of a line that contains nothing but the step: a script prints `[Step 1/4]`, too."""
_MONITORED = re.compile(r"epoch \d+, (?:global )?step \d+: \S{1,200} (?:reached|was not in top) ")
"""What Lightning before version 1.6 prints after a validation, hours apart: `Epoch 0, global step 40:
val_loss reached 0.3`. Newer versions print the name in quotes."""
_DIGITS = re.compile(r"[0-9]{1,16}")
_PART = re.compile(r"\w+")
_WORD = re.compile(r"[a-z]+")


class Wording(msgspec.Struct, frozen=True):
    step: int
    total: int | None
    plain: bool
    bare: bool = False
    """Whether a plain line contains nothing but the step."""
    of_epoch: bool = False
    """Whether the line names the epoch before the step. The step then begins again with each epoch, or may do
    so."""
    of_run: bool = False
    """Whether the line says that the step is the global one."""


def wording_in(line: str, lower: str) -> Wording | None:
    """Returns the step that a line names; None if it names none. `lower` is the line in lower case.

    >>> wording_in("Step 12/100", "step 12/100")
    Wording(step=12, total=100, plain=True, bare=True, of_epoch=False, of_run=False)
    >>> wording_in("[Step 2/5] Downloading", "[step 2/5] downloading").plain
    False
    """
    if "' reached " in lower or "' was not in top " in lower:
        return None
    if (" reached " in lower or " was not in top " in lower) and _MONITORED.search(lower) is not None:
        return None
    best: tuple[int, int, int, str] | None = None
    for anchor in _ANCHORS:
        at = lower.find(anchor)
        for _ in range(_PLACES_MAX):
            if at < 0:
                break
            place = _place_at(lower, at)
            if place is not None and (best is None or place[0] < best[0]):
                best = place
            at = lower.find(anchor, at + len(anchor))
    return _wording(line, lower, *best) if best is not None else None


def _place_at(lower: str, at: int) -> tuple[int, int, int, str] | None:
    """Returns the rank of the word that begins at `at`, where it begins, where its number ends, and the
    digits. Returns None if no step begins there."""
    found = _PLACE.match(lower, at)
    if found is None:
        return None
    word, many, between, digits = found.groups()
    rank, begin, end = _MANY_RANK if many else _RANKS[word], at, found.end()
    if rank < _RANKS["batch"] and lower[at - 1 : at] in ("_", " "):
        for prefix, of_prefix in _PREFIXES:
            if lower.endswith(prefix, 0, at):
                rank, begin = of_prefix, at - len(prefix)
                break
    if lower.startswith(",", end):
        digits = grouped_at(lower, found.start("digits"))
        end = found.start("digits") + len(digits)
    if len(digits) > _DIGITS_MAX or not _ends_number(lower, end) or _TIME.match(lower, end) is not None:
        return None
    if between == ":" and _is_source_line(lower, at, end):
        return None
    if _is_listed(lower, between, end) or not _begins_word(lower, begin) or _only_told(lower, begin):
        return None
    return rank, begin, end, digits


def _wording(line: str, lower: str, rank: int, begin: int, end: int, digits: str) -> Wording | None:
    found = _TOTAL.match(lower, end)
    behind = found.end() if found is not None else end
    if _BUILD.match(lower, behind) is not None:
        return None
    following = _NEXT_WORD.match(lower, behind)
    is_setup = following is not None and following[1] in _SET_UP
    total = count_of(found["total"]) if found is not None else None
    of_epoch = rank > 0 and "epoch" in lower and _EPOCH.search(lower, 0, begin) is not None
    may_be_plain = rank < _MANY_RANK and not is_setup
    has_figure = _gives_figure(lower, end)
    is_bare = may_be_plain and not has_figure and _says_no_more(line, lower, end)
    if is_bare and (_HEADING.match(lower) is not None if total is None else total < _BARE_TOTAL_MIN):
        return None
    is_plain = may_be_plain and (has_figure or is_bare)
    if rank == _RANKS["batch"] and not (of_epoch and is_plain):
        return None
    return Wording(count_of(digits), total, is_plain, is_bare, of_epoch, of_run=rank == 0)


def _gives_figure(lower: str, end: int) -> bool:
    """Whether the line shows a figure. Most figures come after the step."""
    return _FIGURE.search(lower, end) is not None or _FIGURE.search(lower) is not None


def _says_no_more(line: str, lower: str, end: int) -> bool:
    """Whether the line contains nothing but the step. A line that is indented, or ends like an entry of a
    list, belongs to a dump of settings."""
    if line[:1].isspace() or lower.rstrip().endswith((",", "(", "{", "[")):
        return False
    head, tail = lower[:end], lower[end:]
    return set(_WORD.findall(tail)) <= {"of"} and _SAYS_NOTHING.issuperset(_WORD.findall(head))


def _is_source_line(lower: str, at: int, end: int) -> bool:
    """Whether the number is that of a source line, in a function whose name ends with the word that begins
    at `at`."""
    is_over = lower.startswith((" - ", "]"), end)
    return is_over and _IN_SOURCE.search(lower[max(0, at - _SOURCE_CHARS) : at]) is not None


def _is_listed(lower: str, between: str, end: int) -> bool:
    """Whether the number is in a list: `step=[8, 11]` is a list; `[12/100]` and `(12)` are not."""
    opened = between.lstrip(" \t:=#")[:1]
    return opened in ("[", "(") and lower[end:].lstrip()[:1] == ","


def _begins_word(lower: str, at: int) -> bool:
    """Whether a word begins here. `--step` is an argument, `SGD(lr=0.1, step=40)` an object, and
    `val_loss=0.21-step=40` a file of Lightning."""
    if at == 0:
        return True
    before = lower[max(0, at - _BEFORE_CHARS) : at]
    if before.endswith("-"):
        word = before[:-1].rpartition(" ")[2]
        return "=" not in word and not word.endswith("-")
    if before.endswith("/") and _PER.search(before) is not None:
        return False
    opened = lower.rfind("(", 0, at)
    if opened > 0 and lower[opened - 1].isalnum() and lower.find(")", opened, at) < 0:
        return False
    return not (before[-1:].isalnum() or before[-1:] == "_")


def _only_told(lower: str, at: int) -> bool:
    """Whether the step that the line may name here was made earlier, or is not the training's."""
    if at == 0 or not _may_be_told(lower[:at]):
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
        or any(word.startswith("warm") for word in words[-2:])
        or is_other_work(lower[:at])
    )


@by_words
def _may_be_told(head: str) -> bool:
    """Whether the head of a line, without its digits, contains any of the words that `_only_told` searches
    for."""
    asked_for = (*_NOT_OF_TRAINING, *_TOLD_BEFORE, *_EVALUATION_IN_CHINESE, "warm", "val", "test")
    return not _NOT_AFTER.isdisjoint(_PART.findall(head)) or any(word in head for word in asked_for)


def is_other_work(head: str) -> bool:
    """Whether the line is about an evaluation, a preparation or an earlier step. `head` is the beginning of
    the line in lower case."""
    if ("val" in head or "test" in head) and _EVALUATION.search(head) is not None:
        return True
    if not head.isascii() and _evaluates_in_chinese(head):
        return True
    return not _TOLD_BEFORE.isdisjoint(head.translate(_AROUND_WORD).split())


def _evaluates_in_chinese(text: str) -> bool:
    """`推理模型训练` is the training of a model that reasons."""
    return "训练" not in text and any(word in text for word in _EVALUATION_IN_CHINESE)


def is_of_training(name: str) -> bool:
    """Whether no word of a name, in lower case, is about an evaluation, a preparation or similar work."""
    if _evaluates_in_chinese(name):
        return False
    return not any(word.startswith(_NOT_OF_TRAINING) for word in _WORD.findall(name))


def digits_at(text: str, start: int) -> str:
    found = _DIGITS.match(text, start)
    return found[0] if found is not None and len(found[0]) <= _DIGITS_MAX else ""


def grouped_at(text: str, start: int) -> str:
    """Returns the digits with a comma before each three of them, such as `1,234`, if they are grouped that
    way; otherwise the digits without groups."""
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
    """Whether the number ends here. `12.5`, `12ms`, `12%` and `12.ckpt` are no steps; `12.` at the end of a
    sentence is one."""
    after = text[at : at + 2]
    if after[:1].isalnum() or after[:1] in ("_", "%"):
        return False
    return not (after[:1] == "." and after[1:].isalnum())
