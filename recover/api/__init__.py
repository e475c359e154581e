"""The objects that Rekindle defines: Incident, Recovery, Recipe; their marks, reasons, schemas and CRDs.

In: plain data.
Out: structs, and CRDs that are generated from them. There is no other store.
Touches: nothing: pure.
"""

from __future__ import annotations

from recover.api.incident import (
    Act,
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
    "Act",
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
