"""Incident and Recovery: what the controller remembers. There is no other store.

The CRDs are generated from these structs (recover/crds.py). The controller alone writes them; `rekindle why`
and kubectl read them.
"""

from __future__ import annotations

from recover.api.incident import (
    ActionRecord,
    Evidence,
    Incident,
    IncidentPhase,
    IncidentSpec,
    IncidentStatus,
    Outcome,
    Suspect,
)
from recover.api.recovery import (
    ACTIVE_PHASES,
    DEFINITION_CHARS_MAX,
    STOPPED_PHASES,
    Cause,
    CheckpointChoice,
    FailedLog,
    Phase,
    PhaseTime,
    RecipeOutcome,
    RecipeUse,
    Recovery,
    RecoverySpec,
    RecoveryStatus,
    Recreation,
    RejectedCheckpoint,
    Requirement,
    Totals,
    Witness,
)
from recover.api.shared import Answered, Blame, Condition, GangRef, Toleration

__all__ = [
    "ACTIVE_PHASES",
    "DEFINITION_CHARS_MAX",
    "STOPPED_PHASES",
    "ActionRecord",
    "Answered",
    "Blame",
    "Cause",
    "CheckpointChoice",
    "Condition",
    "Evidence",
    "FailedLog",
    "GangRef",
    "Incident",
    "IncidentPhase",
    "IncidentSpec",
    "IncidentStatus",
    "Outcome",
    "Phase",
    "PhaseTime",
    "RecipeOutcome",
    "RecipeUse",
    "Recovery",
    "RecoverySpec",
    "RecoveryStatus",
    "Recreation",
    "RejectedCheckpoint",
    "Requirement",
    "Suspect",
    "Toleration",
    "Totals",
    "Witness",
]
