"""A second driver of a family that has a rule already: a type with heads, one call, and toy_driver.toml."""

from pathlib import Path
from typing import ClassVar

from detectors.rules.sentences import SentenceRow, sentence_rule
from detectors.wire.contract import Family


class ToyDriverRow(SentenceRow, frozen=True, forbid_unknown_fields=True, kw_only=True):
    heads: ClassVar[tuple[str, ...]] = ("toydrv ",)


RULE = sentence_rule(Family.GPU_DRIVER, ToyDriverRow, file=str(Path(__file__).with_suffix(".toml")))
