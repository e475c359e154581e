"""Every import that the golden files need, from the product and from the objects of other tests.

If you move a module, change its line here, and nothing else in this folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from chaos.apiserver.kinds import KINDS
from chaos.apiserver.store import Audit
from chaos.bench import BENCHES
from chaos.simulate.drawing import repair_script_of, script_of
from chaos.simulate.play import START, play
from chaos.simulate.script import Script, story_of
from chaos.simulate.world import CONTROLLER, Simulation
from detectors import __version__
from detectors.commands.exit_status import MEANINGS
from detectors.commands.main import GROUP
from detectors.commands.main import main as program
from detectors.service.gpu_metrics import GPU_TABLE
from detectors.service.metrics import Metrics as AgentMetrics
from detectors.validation import checks as node_checks
from detectors.wire import contract, training
from detectors.wire.resource import Resource
from detectors.wire.step_report import Outcome as CheckOutcome
from recover import api
from recover.api import recipe_spec as recipe_model
from recover.api.reasons import EVENT_EXPLANATIONS, EXPLANATIONS, EventReason, Reason
from recover.api.repair_state import (
    CheckRecord,
    Repair,
    RepairPhase,
    RepairPhaseTime,
    RepairStep,
    StepKind,
    StepOutcome,
)
from recover.cli.output import Output, print_answer
from recover.cli.status_command import _print_overview as print_overview
from recover.cli.telling import print_story
from recover.doctor import case as doctor_model
from recover.doctor import checks as job_checks
from recover.doctor import report as job_report
from recover.doctor.installation import all_checks as installation_checks
from recover.doctor.installation import told as installation_report
from recover.k8s.kinds import EVENTS, INCIDENTS, NODEHEALTHS, NODES, RECOVERIES
from recover.kube.cluster import ListPage
from recover.model.judged_recipes import RecipeReason
from recover.model.modes import Mode
from recover.policy.consent import OptIn
from recover.policy.faults import Ladder, QuarantineLevel
from recover.runtime.telemetry import Metrics as ControllerMetrics
from recover.snapshot.find import find
from recover.snapshot.read import ranks_of, read
from recover.stories import keys
from recover.stories.around import Around
from recover.stories.installation import Installed
from recover.stories.job_state import Job
from recover.stories.overview import Overview, StatusFacts, overview
from recover.stories.why_job import job_answer, why_job
from recover.stories.why_node import node_answer, why_node
from recover.stories.words import Story
from tests.recover.doctor import doctor_cases
from tests.recover.doctor.installation import cases as installation_cases
from tests.recover.stories import why_cases

__all__ = [
    "BENCHES",
    "CHECKS",
    "CONTROLLER",
    "ENUMS",
    "EVENTS",
    "EVENT_EXPLANATIONS",
    "EXPLANATIONS",
    "GPU_TABLE",
    "GROUP",
    "INCIDENTS",
    "KEYS",
    "KINDS",
    "MEANINGS",
    "NODEHEALTHS",
    "NODES",
    "NODE_CHECKS",
    "RECOVERIES",
    "START",
    "VERSION",
    "WRITTEN_BY_US",
    "ActOutcome",
    "AgentMetrics",
    "Around",
    "Audit",
    "Blame",
    "CheckOutcome",
    "CheckRecord",
    "ControllerMetrics",
    "Fault",
    "IncidentPhase",
    "Installed",
    "Job",
    "ListPage",
    "OptIn",
    "Overview",
    "Phase",
    "Reason",
    "Repair",
    "RepairPhase",
    "RepairPhaseTime",
    "RepairStep",
    "Resource",
    "Script",
    "Simulation",
    "StatusFacts",
    "StepKind",
    "StepOutcome",
    "Story",
    "doctor_cases",
    "find",
    "installation_cases",
    "installation_report",
    "job_answer",
    "job_report",
    "node_answer",
    "overview",
    "play",
    "print_answer",
    "print_overview",
    "print_story",
    "program",
    "ranks_of",
    "read",
    "repair_script_of",
    "script_of",
    "story_of",
    "why_cases",
    "why_job",
    "why_node",
]

Fault = contract.Fault
Phase = api.Phase
IncidentPhase = api.IncidentPhase
ActOutcome = api.Outcome
Blame = api.Blame
VERSION = __version__
KEYS = keys.KEYS
WRITTEN_BY_US = keys.WRITTEN_BY_US
CHECKS: Mapping[str, Sequence[doctor_model.Check[Any]]] = {
    "a job": job_checks.CHECKS,
    "an installation": installation_checks.CHECKS,
}
NODE_CHECKS = node_checks.CHECKS

ENUMS: dict[str, type[Enum]] = {
    "cause of a fault, from the catalogue": contract.Fault,
    "check of a repaired node: outcome": CheckOutcome,
    "command: form of the answer": Output,
    "consent": OptIn,
    "doctor: severity": doctor_model.Severity,
    "Event: reason": EventReason,
    "finding: origin": contract.Origin,
    "finding: remedy": contract.Remedy,
    "finding: severity": contract.Severity,
    "finding: subject": contract.SubjectKind,
    "Incident: blame": api.Blame,
    "Incident: outcome of an act": api.Outcome,
    "Incident: phase": api.IncidentPhase,
    "label or annotation: form": keys.Form,
    "label or annotation: on what": keys.On,
    "mode": Mode,
    "NodeHealth: edge of a pod's progress": training.Edge,
    "NodeHealth: family of faults": contract.Family,
    "NodeHealth: source": contract.Source,
    "NodeHealth: state of a source": contract.CoverageState,
    "policy: quarantine": QuarantineLevel,
    "policy: where a repair begins": Ladder,
    "reason": Reason,
    "Recipe: framework": recipe_model.Framework,
    "Recipe: hold": recipe_model.Hold,
    "Recipe: reason": RecipeReason,
    "Recipe: relation": recipe_model.Relation,
    "Recipe: what of a request": recipe_model.RequestIs,
    "Recipe: what of a variable": recipe_model.EnvIs,
    "Recovery: outcome of a recipe": api.RecipeOutcome,
    "Recovery: phase": api.Phase,
    "repair: kind of a step": StepKind,
    "repair: outcome of a step": StepOutcome,
    "repair: phase": RepairPhase,
}
"""Enums by the name that people use: a class may be renamed without a change of the golden files."""
