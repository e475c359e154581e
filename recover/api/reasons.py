"""Every stable reason a user can meet, with its plain meaning and next step. Pure data.

triage, recovery and repair put a `Reason` into an Incident's action or a Recovery's reason and conditions;
runtime puts an `EventReason` into Kubernetes Events; stories/words.py tells them. docs/reference/reasons.md
is generated from this file, and a test fails when an explanation is missing or the page is stale.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

__all__ = [
    "EVENT_EXPLANATIONS",
    "EXPLANATIONS",
    "NODE_EXPLANATIONS",
    "NOT_GIVEN_YET",
    "EventReason",
    "Explanation",
    "NodeReason",
    "Reason",
    "reference",
]


class Reason(StrEnum):
    """Why something was not done, or how a recovery ended or waits."""

    # Why an action was refused.
    NOT_OPTED_IN = "NotOptedIn"
    OBSERVE_MODE = "ObserveMode"
    PAUSED = "Paused"
    HELD = "Held"
    BUDGET_EXHAUSTED = "BudgetExhausted"
    FLEET_BRAKE = "FleetBrake"
    NO_CAPACITY = "NoCapacity"
    RANKS_NOT_STARTED = "RanksNotStarted"
    NO_SPARE = "NoSpare"
    STALE_EVIDENCE = "StaleEvidence"
    BLIND = "Blind"
    FOREIGN_OWNER = "ForeignOwner"
    TERMINAL_JOB = "TerminalJob"
    STILL_TRAINING = "StillTraining"
    CRASH_LOOP = "CrashLoop"
    UNSUPPORTED = "Unsupported"
    WRITE_REFUSED = "WriteRefused"
    # Why a repair waits, or was handed to a person.
    NOT_IN_REPAIR_MODE = "NotInRepairMode"
    PODS_OF_OTHERS = "PodsOfOthers"
    DRIVER_WORK = "DriverWork"
    COOLING_DOWN = "CoolingDown"
    KEEPS_FAILING = "KeepsFailing"
    NODE_SILENT = "NodeSilent"
    NODE_GONE = "NodeGone"
    NEEDS_PERSON = "NeedsPerson"
    REPAIR_FAILED = "RepairFailed"
    VALIDATION_FAILED = "ValidationFailed"
    RELEASED_BY_PERSON = "ReleasedByPerson"
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
    STOP_REFUSED = "StopRefused"
    START_REFUSED = "StartRefused"
    RANKS_ENDED = "RanksEnded"
    DELETION_HELD = "DeletionHeld"
    KNOWN_ISSUE = "KnownIssue"
    CAUSE_GONE = "CauseGone"
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
    SPARE_LIFTED = "SpareLifted"
    SPARE_RETURNED = "SpareReturned"
    NODE_REPAIR_STARTED = "NodeRepairStarted"
    NODE_HANDED_OVER = "NodeHandedOver"
    INCIDENT_REMADE = "IncidentRemade"
    LEFT_STOPPED = "LeftStopped"
    VARIABLES_REMOVED = "VariablesRemoved"
    NOT_JUDGED = "NotJudged"
    PAUSED = "Paused"
    RESUMED = "Resumed"


class NodeReason(StrEnum):
    """Of the condition `AcceleratorHealthy` of a Node."""

    NO_FAULT = "NoFault"
    DEGRADED = "Degraded"
    FAULT_FOUND = "FaultFound"
    QUARANTINED = "Quarantined"
    NOT_WATCHED = "NotWatched"


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
        "Set the mode to recover (the chart's value mode, or mode in the controller's settings), or remove "
        "rekindle.dev/mode: observe from the namespace.",
    ),
    Reason.PAUSED: Explanation(
        "A person paused Rekindle for the whole cluster. Rekindle says what it would do, and begins nothing. "
        "A job that Rekindle had stopped before is started again all the same.",
        "`rekindle status` says who paused it and why. `rekindle resume` ends the pause. Rekindle then "
        "restarts jobs that are down, and acts on faults of nodes that occur again or still last.",
    ),
    Reason.HELD: Explanation(
        "A person froze this object with rekindle.dev/hold, or has suspended the job, or started it again.",
        "Remove rekindle.dev/hold and rekindle.dev/hold-until, or let the job run, when automation may act.",
    ),
    Reason.BUDGET_EXHAUSTED: Explanation(
        "A limit on how much may be taken out, or on how often one job may be restarted, is used up.",
        "Release repaired nodes, or raise the limit under budgets or repair in the controller's settings.",
    ),
    Reason.FLEET_BRAKE: Explanation(
        "The same fault appeared on many nodes at once. That points to a common cause such as a driver, a "
        "network or the detection itself, so nothing disruptive is done.",
        "Look for the common cause. The brake ends by itself when its window has passed.",
    ),
    Reason.NO_CAPACITY: Explanation(
        "There are not enough healthy nodes for the whole gang. A stopped gang is not started before all of "
        "its ranks fit.",
        "The message names the nodes that are out and why: add or release nodes. The gang starts by itself "
        "once it fits. With an autoscaler other than Karpenter and Cluster Autoscaler set "
        "`placement.hold_without_room` to `false`.",
    ),
    Reason.RANKS_NOT_STARTED: Explanation(
        "The gang was started, and some of its ranks do not run although they need no further node: an image "
        "cannot be pulled, a volume cannot be mounted, or their pods are refused.",
        "The message names what the ranks wait for. The recovery goes on by itself once all ranks run.",
    ),
    Reason.NO_SPARE: Explanation(
        "No spare node of the same pool is free to stand in for the node that is out.",
        "`rekindle status` shows what each spare does. Rekindle uses the next spare that becomes free. To "
        "add one, put the label rekindle.dev/spare=true on a free node of the same pool.",
    ),
    Reason.STALE_EVIDENCE: Explanation(
        "The evidence is older than the node's boot, the device's reset, a person's release or the present "
        "mode, so it no longer counts.",
        "Rekindle acts if the fault occurs again, or lasts longer than one minute. To take the node out of "
        "service now, cordon it.",
    ),
    Reason.BLIND: Explanation(
        "A source that is needed to tell who is to blame was not readable, and being blind is not being "
        "innocent.",
        "See the coverage of the node (rekindle why): it says why the agent cannot read the source.",
    ),
    Reason.WRITE_REFUSED: Explanation(
        "The API server refused the write, for example because of an admission policy, a webhook or a quota. "
        "All other writes for the same fault were made, and Rekindle tries this one again every 10 seconds.",
        "The message has the API server's words. Let the ServiceAccount rekindle-controller pass that "
        "policy, webhook or quota.",
    ),
    Reason.FOREIGN_OWNER: Explanation(
        "Another controller decides about this object, and Rekindle does not fight it.",
        "Let that controller make the change, or take the object out of its hands.",
    ),
    Reason.TERMINAL_JOB: Explanation(
        "The job's framework has already failed the job for good; it cannot be resumed.",
        "Submit the job again. Raise its restart limit so that there is time to step in, or put the "
        "annotation rekindle.dev/on-terminal: recreate on the job: it is then deleted and created again.",
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
    Reason.NOT_IN_REPAIR_MODE: Explanation(
        "The mode in force for this node does not allow repairs, or does no longer.",
        "Mend and release the node by hand. What is found once mode repair holds for it is repaired.",
    ),
    Reason.PODS_OF_OTHERS: Explanation(
        "Pods still run on the node, and none is evicted for a repair. Before a reset those count that hold "
        "accelerators, before a reboot all but those of DaemonSets and of Rekindle itself.",
        "Let them end, or move them. After repair.wait_for_others_s a person is called.",
    ),
    Reason.DRIVER_WORK: Explanation(
        "An operator replaces the node's driver or changes its MIG layout, as a label of the Node says. A "
        "reset or reboot would break off that work.",
        "Nothing to do. The repair goes on two minutes after the work has ended. If the work hangs, see the "
        "operator's pods on the node.",
    ),
    Reason.COOLING_DOWN: Explanation(
        "The node was given back by a repair a moment ago.",
        "Nothing to do. Its next repair begins when repair.cool_down_s has passed.",
    ),
    Reason.KEEPS_FAILING: Explanation(
        "The node was repaired and given back several times within days, and has failed again.",
        "Have the hardware looked at. The limit is repair.repairs_per_node_max.",
    ),
    Reason.NODE_SILENT: Explanation(
        "Kubernetes does not hear from the node, so no Job of a repair can run there.",
        "Restart the machine from its console. With repair.webhook or repair.maintenance set, somebody "
        "outside reboots such nodes.",
    ),
    Reason.NODE_GONE: Explanation(
        "The Node object was deleted during its repair.",
        "Nothing to do. A machine that registers again is a new node.",
    ),
    Reason.NEEDS_PERSON: Explanation(
        "Neither a reset nor a reboot is known to mend this fault.",
        "Do what the message says, then release the node.",
    ),
    Reason.REPAIR_FAILED: Explanation(
        "The reset or the reboot could not be done, and nothing is left to try.",
        "The message and the Job's log tell why. Mend the node, then release it.",
    ),
    Reason.VALIDATION_FAILED: Explanation(
        "After all that could be tried the checks still fail, so the node does not return.",
        "The checks stand in the Incident. Mend the node, then release it.",
    ),
    Reason.RELEASED_BY_PERSON: Explanation(
        "A person uncordoned the node or took its taint off during its repair.",
        "Nothing to do. If the fault comes back, it counts again.",
    ),
    Reason.CHECKPOINT_UNVERIFIED: Explanation(
        "No checkpoint was verified before the resume; the training framework chose by its own logic.",
        "Say where the checkpoints lie: rekindle.dev/checkpoint: /path/in/the/container on the job.",
    ),
    Reason.RESUMED_OLDER: Explanation(
        "The job resumed from an older step than that of the chosen checkpoint, or than the step that it had "
        "reached if no checkpoint was verified.",
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
        "Read the ranks' logs. If loading takes longer than that, set rekindle.dev/hang-timeout on the job, "
        "or raise timing.verify_deadline_s.",
    ),
    Reason.PODS_STUCK: Explanation(
        "Old pods did not end in time, and a gang is never resumed over a living old pod. The recovery goes "
        "on once they have ended.",
        "Describe the old pods to see what keeps them. Finalizers and unreachable volumes are the usual "
        "causes.",
    ),
    Reason.NEEDS_FENCING_PROOF: Explanation(
        "A node does not answer, and nothing proves that it no longer writes to the job's volume.",
        "Switch the node off, then put the taint node.kubernetes.io/out-of-service on it. If its Node object "
        "is gone, make sure that the machine is off, then delete the pods that the message names with "
        "--force.",
    ),
    Reason.FRAMEWORK_BACKOFF: Explanation(
        "The job's framework has counted failed pods and lets time pass before it makes new ones.",
        "Nothing to do. With the annotation rekindle.dev/on-terminal: recreate on the job it is deleted and "
        "created again instead, at once.",
    ),
    Reason.FRAMEWORK_SILENT: Explanation(
        "The job's stop is not taken, or the stopped job is not prepared for its next start: its framework's "
        "own controller does not answer.",
        "See whether that controller runs and what it logs. The recovery goes on once it has done its part.",
    ),
    Reason.STOP_REFUSED: Explanation(
        "The API server refuses the job's stop, mostly because of a policy or a webhook.",
        "The Recovery has the API server's words. Let the controller's ServiceAccount suspend jobs. The "
        "recovery goes on once the stop is accepted.",
    ),
    Reason.START_REFUSED: Explanation(
        "The API server refuses the job's start, or the ConfigMap that its ranks read.",
        "The Recovery has the API server's words. A quota on ConfigMaps, an immutable ConfigMap of that "
        "name, a policy or a webhook may refuse the write. The recovery goes on once the write is accepted.",
    ),
    Reason.RANKS_ENDED: Explanation(
        "Some ranks ended with exit code 0 or failed for good, so the framework never makes them again, and "
        "the gang can never be whole. While the others train, they are not stopped.",
        "Where it stays stopped, submit the job again, with a training script that exits with another code "
        "when it is stopped; or put the annotation rekindle.dev/on-terminal: recreate on the job.",
    ),
    Reason.DELETION_HELD: Explanation(
        "The job is being deleted to be created again, and a finalizer delays its deletion.",
        "See metadata.finalizers of the job. The recovery goes on once the job is gone.",
    ),
    Reason.KNOWN_ISSUE: Explanation(
        "The job failed by a known issue that only its owner can change, so it is not started again.",
        "Make the change that the message names in the job's template, then resume it by hand.",
    ),
    Reason.CAUSE_GONE: Explanation(
        "The fault for which the job was to be stopped was answered before the stop, as by a release of the "
        "node. The job trains on.",
        "Nothing to do. If the fault comes back, it counts again.",
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
    EventReason.SPARE_LIFTED: "The spare takes pods in place of a node that is out.",
    EventReason.SPARE_RETURNED: "The spare takes no new pods any more; what runs there stays.",
    EventReason.NODE_REPAIR_STARTED: "The node, or a device of it, is being reset or rebooted.",
    EventReason.NODE_HANDED_OVER: "A person must mend the node; the message says what to do.",
    EventReason.INCIDENT_REMADE: "The Incident of a node that is out was missing. It is created again, and "
    "the node stays out.",
    EventReason.LEFT_STOPPED: "A person deleted the Recovery of a job that Rekindle has stopped, so a person "
    "must start the job again. The message has the command.",
    EventReason.VARIABLES_REMOVED: "Somebody else had put variables into the ConfigMap from which the job's "
    "ranks read theirs. Rekindle removed them before it started the job; the message has their names.",
    EventReason.PAUSED: "A person paused Rekindle for the whole cluster: it begins nothing meanwhile.",
    EventReason.RESUMED: "The pause has ended, by a person or by its own end.",
    EventReason.NOT_JUDGED: "A defect of Rekindle keeps it from judging this object; all others are judged.",
}

NODE_EXPLANATIONS: dict[NodeReason, tuple[str, str]] = {
    NodeReason.NO_FAULT: (
        "True",
        "The agent watches the node, and no fault is open that takes it out.",
    ),
    NodeReason.DEGRADED: (
        "True",
        "A device is degraded and still computes correctly. Pods are placed there if no better node is free.",
    ),
    NodeReason.FAULT_FOUND: (
        "False",
        "A fault is open that takes the node out. The mode, a budget, a brake or a hold may keep Rekindle "
        "from doing that.",
    ),
    NodeReason.QUARANTINED: ("False", "Rekindle has taken the node out of service."),
    NodeReason.NOT_WATCHED: (
        "Unknown",
        "Nobody knows whether the node has a fault: its agent does not report, or cannot read its source.",
    ),
}
"""The condition's status, and what the reason means."""

NOT_GIVEN_YET = frozenset({EventReason.FAULT_CLEARED})
"""Words that are settled, of features that are not there yet. A test holds this list to the code."""


def reference() -> str:
    """docs/reference/reasons.md, in Markdown."""
    lines = [
        "# Reasons",
        "",
        "Generated from `recover/api/reasons.py` by `make docs`; a test fails when this page is stale.",
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
        "",
        "## Of the Node condition `AcceleratorHealthy`",
        "",
        "Rekindle writes the condition only where `node_condition` is set.",
        "",
        "| reason | status | meaning |",
        "|---|---|---|",
        *(
            f"| `{reason}` | `{status}` | {meaning} |"
            for reason, (status, meaning) in NODE_EXPLANATIONS.items()
        ),
    ]
    return "\n".join(lines) + "\n"


def _when(reason: Reason | EventReason) -> str:
    return " (not given yet)" if reason in NOT_GIVEN_YET else ""
