"""Every stable reason a user can meet, with its plain meaning and next step. Pure data.

guard, plan and phases put a `Reason` into an Incident's action or a Recovery's reason and conditions; loops
put an `EventReason` into Kubernetes Events; words.py tells them. docs/reference/reasons.md is generated from
this file, and a test fails when an explanation is missing or the page is stale.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

__all__ = [
    "EVENT_EXPLANATIONS",
    "EXPLANATIONS",
    "NOT_GIVEN_YET",
    "EventReason",
    "Explanation",
    "Reason",
    "reference",
]


class Reason(StrEnum):
    """Why something was not done, or how a recovery ended or waits."""

    # Why an action was refused.
    NOT_OPTED_IN = "NotOptedIn"
    OBSERVE_MODE = "ObserveMode"
    HELD = "Held"
    BUDGET_EXHAUSTED = "BudgetExhausted"
    FLEET_BRAKE = "FleetBrake"
    NO_CAPACITY = "NoCapacity"
    STALE_EVIDENCE = "StaleEvidence"
    BLIND = "Blind"
    FOREIGN_OWNER = "ForeignOwner"
    TERMINAL_JOB = "TerminalJob"
    STILL_TRAINING = "StillTraining"
    CRASH_LOOP = "CrashLoop"
    UNSUPPORTED = "Unsupported"
    # How a recovery stands or ended.
    CHECKPOINT_UNVERIFIED = "CheckpointUnverified"
    RESUMED_OLDER = "ResumedOlder"
    RESUMED_FROM_SCRATCH = "ResumedFromScratch"
    SUCCEEDED_UNVERIFIED = "SucceededUnverified"
    NO_STEPS = "NoSteps"
    PODS_STUCK = "PodsStuck"
    NEEDS_FENCING_PROOF = "NeedsFencingProof"
    FRAMEWORK_BACKOFF = "FrameworkBackoff"
    FRAMEWORK_SILENT = "FrameworkSilent"
    START_REFUSED = "StartRefused"
    RANKS_ENDED = "RanksEnded"
    DELETION_HELD = "DeletionHeld"
    KNOWN_ISSUE = "KnownIssue"
    JOB_GONE = "JobGone"
    JOB_COMPLETED = "JobCompleted"


class EventReason(StrEnum):
    """Reasons of the Kubernetes Events that the controller emits."""

    FAULT_DETECTED = "FaultDetected"
    FAULT_CLEARED = "FaultCleared"
    RECOVERY_PLANNED = "RecoveryPlanned"
    RECOVERY_STARTED = "RecoveryStarted"
    RECOVERY_SUCCEEDED = "RecoverySucceeded"
    RECOVERY_FAILED = "RecoveryFailed"
    RECOVERY_BLOCKED = "RecoveryBlocked"
    KNOWN_ISSUE = "KnownIssue"
    NODE_QUARANTINED = "NodeQuarantined"
    NODE_RELEASED = "NodeReleased"


class Explanation(msgspec.Struct, frozen=True):
    """What a reason means, and what a person can do next."""

    meaning: str
    next_step: str


EXPLANATIONS: dict[Reason, Explanation] = {
    Reason.NOT_OPTED_IN: Explanation(
        "The job did not ask for automatic recovery, so Rekindle leaves it alone.",
        "Put the label or annotation rekindle.dev/auto-recovery: enabled on the job or its namespace.",
    ),
    Reason.OBSERVE_MODE: Explanation(
        "Rekindle only observes here: it says what it would do and changes nothing.",
        'Set mode = "recover" in the controller\'s settings, or remove rekindle.dev/mode: observe from '
        "the namespace.",
    ),
    Reason.HELD: Explanation(
        "A person froze this object with rekindle.dev/hold, or has suspended the job, or started it again.",
        "Remove rekindle.dev/hold and rekindle.dev/hold-until, or let the job run, when automation may act.",
    ),
    Reason.BUDGET_EXHAUSTED: Explanation(
        "A limit on how much may be taken out, or on how often one job may be restarted, is used up.",
        "Release repaired nodes, or raise the limit under budgets in the controller's settings.",
    ),
    Reason.FLEET_BRAKE: Explanation(
        "The same fault appeared on many nodes at once. That points to a common cause such as a driver, a "
        "network or the detection itself, so nothing disruptive is done.",
        "Look for the common cause. The brake ends by itself when its window has passed.",
    ),
    Reason.NO_CAPACITY: Explanation(
        "There are not enough healthy nodes for the whole gang.",
        "Add or release nodes. The recovery goes on by itself once the gang fits.",
    ),
    Reason.STALE_EVIDENCE: Explanation(
        "The evidence is older than the node's boot, the device's reset, a person's release or the present "
        "mode, so it no longer counts.",
        "Nothing to do. If the fault comes back, it counts again.",
    ),
    Reason.BLIND: Explanation(
        "A source that is needed to tell who is to blame was not readable, and being blind is not being "
        "innocent.",
        "See why the agent cannot read it: rekindle why node/NAME shows the coverage.",
    ),
    Reason.FOREIGN_OWNER: Explanation(
        "Another controller decides about this object, and Rekindle does not fight it.",
        "Let that controller make the change, or take the object out of its hands.",
    ),
    Reason.TERMINAL_JOB: Explanation(
        "The job's framework has already failed the job for good; it cannot be resumed.",
        "Submit the job again. Raise its restart limit so that there is time to step in, or put the "
        "annotation rekindle.dev/on-terminal: recreate on the job: it is then deleted and made anew.",
    ),
    Reason.STILL_TRAINING: Explanation(
        "The job's steps still advance, and a job that trains is not stopped for a symptom.",
        "Nothing to do. It is stopped only for confirmed hardware evidence, or when its steps end.",
    ),
    Reason.CRASH_LOOP: Explanation(
        "The same cause came back again and again without a step of progress in between.",
        "Read the failed rank's log in the Recovery and mend the job; then resume it by hand.",
    ),
    Reason.UNSUPPORTED: Explanation(
        "Rekindle does not know how to stop and resume this kind of workload safely.",
        "Use a batch/v1 Job with as many completions as parallelism, a Kubeflow PyTorchJob or PaddleJob, or "
        "a JobSet, or restart it by hand.",
    ),
    Reason.CHECKPOINT_UNVERIFIED: Explanation(
        "No checkpoint was verified before the resume; the training framework chose by its own logic.",
        "Say where the checkpoints lie: rekindle.dev/checkpoint: /path/in/the/container on the job.",
    ),
    Reason.RESUMED_OLDER: Explanation(
        "The job resumed from an older step than the checkpoint that was chosen.",
        "Make the training script load the path in REKINDLE_RESUME_FROM.",
    ),
    Reason.RESUMED_FROM_SCRATCH: Explanation(
        "The job started again from its first step: its checkpoint was not loaded.",
        "Make the training script load the path in REKINDLE_RESUME_FROM, or its newest checkpoint.",
    ),
    Reason.SUCCEEDED_UNVERIFIED: Explanation(
        "The job runs again, but nobody can read its steps, and no newer checkpoint has proved progress.",
        'Print the step, and name its form: rekindle.dev/step-template: "step {step}" on the job.',
    ),
    Reason.NO_STEPS: Explanation(
        "The job runs, but no new step came before the deadline.",
        "Read the ranks' logs. If loading takes longer than that, raise timing.verify_deadline_s.",
    ),
    Reason.PODS_STUCK: Explanation(
        "Old pods did not end in time, and a gang is never resumed over a living old pod.",
        "See what holds them: kubectl describe pod. Finalizers and unreachable volumes are the usual causes.",
    ),
    Reason.NEEDS_FENCING_PROOF: Explanation(
        "A node does not answer, and nothing proves that it no longer writes to the job's volume.",
        "Switch the node off, then put the taint node.kubernetes.io/out-of-service on it or delete its Node.",
    ),
    Reason.FRAMEWORK_BACKOFF: Explanation(
        "The job's framework has counted failed pods and lets time pass before it makes new ones.",
        "Nothing to do. With the annotation rekindle.dev/on-terminal: recreate on the job it is deleted and "
        "made anew instead, at once.",
    ),
    Reason.FRAMEWORK_SILENT: Explanation(
        "The job's stop is not taken, or the stopped job is not prepared for its next start: its framework's "
        "own controller does not answer.",
        "See whether that controller runs and what it logs. The recovery goes on once it has done its part.",
    ),
    Reason.START_REFUSED: Explanation(
        "The API server does not take the job's start, or the ConfigMap that its ranks read.",
        "Its words are in the controller's log. A quota on ConfigMaps, a ConfigMap `<job>-rekindle` that is "
        "immutable, or a webhook may refuse it. The recovery goes on once it is taken.",
    ),
    Reason.RANKS_ENDED: Explanation(
        "Some ranks ended with exit code 0 or failed for good, so the framework never makes them again, and "
        "the gang can never be whole.",
        "Submit the job again, with a training script that exits with another code when it is stopped; or "
        "put the annotation rekindle.dev/on-terminal: recreate on the job.",
    ),
    Reason.DELETION_HELD: Explanation(
        "The job is deleted to be made anew, and a finalizer keeps it from going.",
        "See which one: metadata.finalizers in kubectl get -o yaml. The recovery goes on once it is gone.",
    ),
    Reason.KNOWN_ISSUE: Explanation(
        "The job failed by a known issue that only its owner can change, so it is not started again.",
        "Make the change that the message names in the job's template, then resume it by hand.",
    ),
    Reason.JOB_GONE: Explanation(
        "The job was deleted while it was being recovered.",
        "Nothing to do.",
    ),
    Reason.JOB_COMPLETED: Explanation(
        "The job completed before the recovery had to do anything more.",
        "Nothing to do.",
    ),
}

EVENT_EXPLANATIONS: dict[EventReason, str] = {
    EventReason.FAULT_DETECTED: "A fault was found on a node or in a job; the Incident tells the rest.",
    EventReason.FAULT_CLEARED: "A fault was ended by a reset, a reboot or a person.",
    EventReason.RECOVERY_PLANNED: "A job will be stopped and resumed.",
    EventReason.RECOVERY_STARTED: "The job's old pods are being stopped.",
    EventReason.RECOVERY_SUCCEEDED: "The job runs again.",
    EventReason.RECOVERY_FAILED: "The recovery gave up; a person is needed.",
    EventReason.RECOVERY_BLOCKED: "The recovery waits for something; the message says for what.",
    EventReason.KNOWN_ISSUE: "The workload shows a known issue; the message says what to change.",
    EventReason.NODE_QUARANTINED: "The node takes no new pods: cordoned, and tainted rekindle.dev/unhealthy.",
    EventReason.NODE_RELEASED: "The node takes pods again.",
}

NOT_GIVEN_YET = frozenset({Reason.BLIND, EventReason.FAULT_CLEARED})
"""Words that are settled, of features that are not there yet. A test holds this list to the code."""


def reference() -> str:
    """docs/reference/reasons.md, in Markdown."""
    lines = [
        "# Reasons",
        "",
        "Generated from `recover/reasons.py` by `make docs`; a test fails when this page is stale.",
        "",
        "## In Incidents and Recoveries",
        "",
        "| reason | meaning | next step |",
        "|---|---|---|",
        *(
            f"| `{reason}`{_when(reason)} | {told.meaning} | {told.next_step} |"
            for reason, told in EXPLANATIONS.items()
        ),
        "",
        "## Of Kubernetes Events",
        "",
        "| reason | meaning |",
        "|---|---|",
        *(f"| `{reason}`{_when(reason)} | {meaning} |" for reason, meaning in EVENT_EXPLANATIONS.items()),
    ]
    return "\n".join(lines) + "\n"


def _when(reason: Reason | EventReason) -> str:
    return " (not given yet)" if reason in NOT_GIVEN_YET else ""
