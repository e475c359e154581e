"""The mutants: small wrong decisions, each as somebody might write it by mistake."""

from __future__ import annotations

from tests.mutants.model import Mutant
from tests.mutants.phases import PHASES
from tests.mutants.places import PLACES
from tests.mutants.triage import TRIAGE
from tests.mutants.ways import WAYS

__all__ = ["MUTANTS"]

MUTANTS: tuple[Mutant, ...] = (*TRIAGE, *PHASES, *PLACES, *WAYS)
