"""All stable reasons that a user can meet, each with its meaning in plain words and the next step. Pure data.

triage, recovery and repair put a `Reason` into an Incident's action or into a Recovery's reason and
conditions; runtime puts an `EventReason` into Kubernetes Events; stories/words.py shows the meanings.
docs/reference/reasons.md is generated from this file, and a test fails if an explanation is missing or the
page is out of date.
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
    """Reasons why an action was not taken, why a recovery or repair waits, or how it ended."""

    # Reasons why an action was refused.
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
    # Reasons why a repair waits, or was handed over to a person.
    NOT_IN_REPAIR_MODE = "NotInRepairMode"
    PODS_OF_OTHERS = "PodsOfOthers"
    DRIVER_WORK = "DriverWork"
    DRIVER_STARTS = "DriverStarts"
    COOLING_DOWN = "CoolingDown"
    KEEPS_FAILING = "KeepsFailing"
    NODE_SILENT = "NodeSilent"
    NODE_GONE = "NodeGone"
    NEEDS_PERSON = "NeedsPerson"
    REPAIR_FAILED = "RepairFailed"
    VALIDATION_FAILED = "ValidationFailed"
    RELEASED_BY_PERSON = "ReleasedByPerson"
    # Reasons how a recovery waits or ended.
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
    FRAMEWORK_WOKEN = "FrameworkWoken"
    KNOWN_ISSUE = "KnownIssue"
    NODE_QUARANTINED = "NodeQuarantined"
    NODE_RELEASED = "NodeReleased"
    SPARE_LIFTED = "SpareLifted"
    SPARE_RETURNED = "SpareReturned"
    NODE_REPAIR_STARTED = "NodeRepairStarted"
    NODE_HANDED_OVER = "NodeHandedOver"
    INCIDENT_REMADE = "IncidentRecreated"
    LEFT_STOPPED = "LeftStopped"
    VARIABLES_REMOVED = "VariablesRemoved"
    NOT_JUDGED = "NotJudged"
    PAUSED = "Paused"
    RESUMED = "Resumed"


class NodeReason(StrEnum):
    """Reasons of the condition `AcceleratorHealthy` of a Node."""

    NO_FAULT = "NoFault"
    DEGRADED = "Degraded"
    FAULT_FOUND = "FaultFound"
    QUARANTINED = "Quarantined"
    NOT_WATCHED = "NotWatched"


class Explanation(msgspec.Struct, frozen=True):
    """Meaning of a reason, and the next step for a person."""

    meaning: str
    next_step: str


EXPLANATIONS: dict[Reason, Explanation] = {
    Reason.NOT_OPTED_IN: Explanation(
        "Automatic recovery is not enabled for the job, so Rekindle does not restart the job.",
        "Put the label or annotation rekindle.dev/auto-recovery: enabled on the job or its namespace.",
    ),
    Reason.OBSERVE_MODE: Explanation(
        "Rekindle only observes this node or job: it reports the action that it would take, and changes "
        "nothing.",
        "Raise each mode that is observe: the chart's value mode, the node's pool in modes.pools, the job's "
        "namespace in modes.namespaces, and the namespace's annotation rekindle.dev/mode. If "
        "rekindle.dev/auto-recovery is observe, the owner of the job can set it to enabled.",
    ),
    Reason.PAUSED: Explanation(
        "A person paused Rekindle for the whole cluster. Rekindle says what it would do, and begins nothing. "
        "If Rekindle stopped a job before the pause, Rekindle still starts this job again.",
        "`rekindle status` says who paused Rekindle, and why. `rekindle resume` ends the pause. Rekindle "
        "then restarts jobs that are down, and acts on each fault of a node that occurs again or continues.",
    ),
    Reason.HELD: Explanation(
        "A person put a hold (rekindle.dev/hold) on this object, suspended the job, or started "
        "the job again.",
        "To let Rekindle act again, end the hold with `rekindle release`. If a person suspended the job, "
        "set the job's suspend field to false. If a person started the job again, there is nothing to do: "
        "Rekindle acts at the next fault.",
    ),
    Reason.BUDGET_EXHAUSTED: Explanation(
        "A limit on quarantined nodes, on restarts of one job, or on repairs is reached.",
        "Return repaired nodes to service (`kubectl uncordon`), or raise the limit in the section "
        "`budgets` or `repair` of the controller's settings.",
    ),
    Reason.FLEET_BRAKE: Explanation(
        "One fault class appeared on many nodes at once. The likely cause is a driver, a "
        "network or the detection itself. So the brake is in force: Rekindle takes no disruptive action.",
        "Look for the common cause. The brake ends at the latest when no further node has shown this "
        "fault class for budgets.brake_window_s.",
    ),
    Reason.NO_CAPACITY: Explanation(
        "There are not enough healthy nodes for the whole gang. Rekindle starts a stopped gang "
        "only when all of its ranks fit.",
        "The message names the nodes that the gang cannot use, and why. Add nodes, or uncordon healthy "
        "nodes. Rekindle starts the gang as soon as all ranks fit. If an autoscaler "
        "should add nodes, and no GPU node has a label of Karpenter or a taint of Cluster Autoscaler, set "
        "`placement.hold_without_room` to `false`.",
    ),
    Reason.RANKS_NOT_STARTED: Explanation(
        "Rekindle started the gang, and some of its ranks do not run, although there are enough "
        "nodes: an image cannot be pulled, a volume cannot be mounted, or the API "
        "server refuses their pods.",
        "The message says why the ranks wait. Remove the cause. The recovery continues when all ranks run.",
    ),
    Reason.NO_SPARE: Explanation(
        "No spare node of the same pool is free to replace a node that is quarantined, or that a stopped job "
        "must not use.",
        "`rekindle status` shows the state of each spare. Rekindle uses the next spare that "
        "becomes free. To add a spare, put the label rekindle.dev/spare=true on a free node of "
        "the same pool.",
    ),
    Reason.STALE_EVIDENCE: Explanation(
        "The evidence is older than the last boot of the node, the last reset of the device, the end of a "
        "quarantine, the last change of the mode, or the end of a pause, so Rekindle does not act on that "
        "evidence.",
        "Rekindle acts if the fault occurs again or continues; an agent reports a fault that continues "
        "at least every ten minutes. To keep pods off the node now, cordon the node.",
    ),
    Reason.BLIND: Explanation(
        "Rekindle could not read a source that it needs to find the culprit. A node without "
        "this source may be healthy or broken.",
        "The coverage in the NodeHealth of the node says why the agent cannot read the source. Remove this "
        "cause.",
    ),
    Reason.WRITE_REFUSED: Explanation(
        "The API server refused the write, for example because of an admission policy, a "
        "webhook or a quota. Rekindle sent all other writes that belong to this fault, and tries the "
        "refused write again every 10 seconds, or every 5 seconds if a permission is missing.",
        "The message contains the API server's answer. Change the policy, webhook or quota so "
        "that the API server accepts this write of the ServiceAccount rekindle-controller.",
    ),
    Reason.FOREIGN_OWNER: Explanation(
        "Another controller or a person manages this object, and Rekindle does not override them. If "
        "somebody undid the stop or the start of a recovery, Rekindle does not stop that job for a day.",
        "Make the change through that controller, or remove the object from its control.",
    ),
    Reason.TERMINAL_JOB: Explanation(
        "The framework's controller has marked the job as failed, and this is final: the job cannot be "
        "resumed.",
        "Submit the job again. For the next failure, raise the restart limit of the job so "
        "that Rekindle has time to act, or put the annotation rekindle.dev/on-terminal: "
        "recreate on the job: Rekindle then deletes the job and creates it again.",
    ),
    Reason.STILL_TRAINING: Explanation(
        "The job still makes steps. Rekindle does not stop such a job for a mere suspicion.",
        "Nothing to do. Rekindle stops the job only on proof of a hardware fault, or when the job's "
        "steps stop.",
    ),
    Reason.CRASH_LOOP: Explanation(
        "The job failed several times from the same cause, and made no progress between the failures: it "
        "completed no newer checkpoint or, if no checkpoint can be verified, made no higher step.",
        "Read the failed rank's log in the Recovery and correct the job. Then set the job's suspend "
        "field to false.",
    ),
    Reason.UNSUPPORTED: Explanation(
        "Rekindle cannot stop and resume this kind of workload safely.",
        "Use a batch/v1 Job with as many completions as parallelism, a Kubeflow PyTorchJob, "
        "PaddleJob or TFJob, or a JobSet. Otherwise restart the workload by hand.",
    ),
    Reason.NOT_IN_REPAIR_MODE: Explanation(
        "The mode of this node is lower than repair, so Rekindle does not repair the node.",
        "Repair the node by hand, then end its quarantine. Rekindle repairs faults that it finds after mode "
        "repair is enabled for the node.",
    ),
    Reason.PODS_OF_OTHERS: Explanation(
        "Pods still run on the node, and Rekindle evicts no pod for a repair. A reset begins after all pods "
        "that hold accelerators of the node have ended. A reboot begins after all pods have ended, except "
        "those of DaemonSets and of Rekindle.",
        "Wait until the pods end, or move them. After repair.wait_for_others_s Rekindle hands "
        "the node over to a person.",
    ),
    Reason.DRIVER_WORK: Explanation(
        "A label of the Node says that another controller is replacing the driver or changing "
        "the MIG layout of the node. A reset or reboot would interrupt this work, and checks would fail on a "
        "healthy node.",
        "Nothing to do. The repair continues two minutes after that controller has ended its work. If the "
        "work does not end, look at the pods of that controller on the node.",
    ),
    Reason.DRIVER_STARTS: Explanation(
        "The node has booted, and neither its agent nor its kubelet shows a GPU yet: the driver may still be "
        "starting. Checks that ran now would fail on a healthy node.",
        "Nothing to do. The checks begin when the agent or the kubelet shows a GPU, and after "
        "repair.driver_wait_s at the latest. If the driver does not start, look at the pods of the driver on "
        "the node.",
    ),
    Reason.COOLING_DOWN: Explanation(
        "A repair has just returned the node to service.",
        "Nothing to do. The next repair of the node begins when repair.cool_down_s has passed.",
    ),
    Reason.KEEPS_FAILING: Explanation(
        "Rekindle repaired the node and returned it to service several times within days, and the node has "
        "failed again.",
        "Have the hardware examined. The limit on repairs of a node is repair.repairs_per_node_max.",
    ),
    Reason.NODE_SILENT: Explanation(
        "The node is NotReady, so no Job of a repair can run there.",
        "Restart the machine from its console. To have such nodes rebooted by another system, "
        "set repair.webhook or repair.maintenance.",
    ),
    Reason.NODE_GONE: Explanation(
        "Somebody deleted the Node object during the repair.",
        "Nothing to do. If the machine registers again, Rekindle treats it as a new node.",
    ),
    Reason.NEEDS_PERSON: Explanation(
        "Neither a reset nor a reboot is known to repair this fault.",
        "Do what the message of the Incident says, then end the quarantine of the node.",
    ),
    Reason.REPAIR_FAILED: Explanation(
        "The reset or the reboot failed, and Rekindle has no other repair to try.",
        "The message and the Job's log say why. Repair the node, then end its quarantine.",
    ),
    Reason.VALIDATION_FAILED: Explanation(
        "The checks still fail after every possible repair, so the node stays in quarantine.",
        "The Incident lists the checks. Repair the node, then end its quarantine.",
    ),
    Reason.RELEASED_BY_PERSON: Explanation(
        "A person uncordoned the node, or removed its taint, during the repair.",
        "Nothing to do. Rekindle acts if the fault occurs again.",
    ),
    Reason.CHECKPOINT_UNVERIFIED: Explanation(
        "No checkpoint was verified before the resume, so the training framework chose the checkpoint.",
        "If the job has no annotation rekindle.dev/checkpoint, put the annotation on the job, with the path "
        "of the folder of the checkpoints. Otherwise the message says why no checkpoint was verified.",
    ),
    Reason.RESUMED_OLDER: Explanation(
        "The job resumed from a step before the chosen checkpoint or, if no checkpoint was "
        "verified, from a step before the last step that it had made.",
        "If a checkpoint was chosen, make the training script load the path in REKINDLE_RESUME_FROM. If none "
        "was verified, make the script load its newest checkpoint. If the checkpoints are on a claim or on "
        "NFS, also name their path in rekindle.dev/checkpoint.",
    ),
    Reason.RESUMED_FROM_SCRATCH: Explanation(
        "The job started again from its first step and did not load its checkpoint.",
        "Make the training script load the path in REKINDLE_RESUME_FROM, or its newest checkpoint.",
    ),
    Reason.SUCCEEDED_UNVERIFIED: Explanation(
        "The job runs again, but Rekindle cannot read its steps, and no newer checkpoint has "
        "proved progress.",
        "Let the training print each step in its log. If the log already shows the steps, put an "
        "annotation with the form "
        'of the line on the job: rekindle.dev/step-template: "step {step}".',
    ),
    Reason.NO_STEPS: Explanation(
        "The job runs, but made no new step before the deadline.",
        "Read the ranks' logs. If loading takes longer than the deadline, set "
        "rekindle.dev/hang-timeout on the job, or raise timing.verify_deadline_s.",
    ),
    Reason.PODS_STUCK: Explanation(
        "Old pods did not end in time. Rekindle never resumes a gang while an old pod is still "
        "running. The recovery continues when the old pods have ended.",
        "The events of the old pods show why they do not end. The usual causes are finalizers and "
        "unreachable volumes.",
    ),
    Reason.NEEDS_FENCING_PROOF: Explanation(
        "A node does not answer, and nothing proves that its pods no longer write to the job's volume.",
        "Switch the node off, then put the taint node.kubernetes.io/out-of-service on the "
        "Node. If the Node object is gone, make sure that the machine is off, then delete with "
        "--force the pods that the message names.",
    ),
    Reason.FRAMEWORK_BACKOFF: Explanation(
        "The framework's controller has counted failed pods and waits before it creates new pods.",
        "Nothing to do. To avoid the wait, put the annotation rekindle.dev/on-terminal: "
        "recreate on the job: Rekindle then deletes the job and creates it again.",
    ),
    Reason.FRAMEWORK_SILENT: Explanation(
        "The framework's controller does not react: it has not carried out the stop of the "
        "job, or has not prepared the stopped job for its next start.",
        "Check that the framework's controller runs, and read its log. The recovery continues "
        "when the controller reacts.",
    ),
    Reason.STOP_REFUSED: Explanation(
        "The API server refuses the write that stops the job, usually because of a policy or a webhook.",
        "The Recovery contains the API server's answer. Let the ServiceAccount "
        "rekindle-controller suspend jobs. The recovery continues when the API server accepts "
        "the stop.",
    ),
    Reason.START_REFUSED: Explanation(
        "The API server refuses the write that starts the job, or the ConfigMap that the ranks read.",
        "The Recovery contains the API server's answer. The cause may be a quota on "
        "ConfigMaps, an immutable ConfigMap of that name, a policy or a webhook. The recovery "
        "continues when the API server accepts the write.",
    ),
    Reason.RANKS_ENDED: Explanation(
        "Some ranks ended with exit code 0, or failed permanently, for example because their retries are "
        "used up. The framework's controller never creates their pods again, so the gang can never be "
        "complete. Rekindle does not stop the other ranks while they train.",
        "If the job stays stopped, submit the job again, with a training script that does not exit "
        "with code 0 when the script is stopped. To let Rekindle create such a job again, put the annotation "
        "rekindle.dev/on-terminal: recreate on the job.",
    ),
    Reason.DELETION_HELD: Explanation(
        "Rekindle is deleting the job to create it again, and a finalizer delays the deletion.",
        "Look at metadata.finalizers of the job. The recovery continues when the job is gone.",
    ),
    Reason.KNOWN_ISSUE: Explanation(
        "The job failed because of a known issue that only its owner can correct, so Rekindle "
        "does not start the job again.",
        "Make the change that the message names. If the change is in the template of a PyTorchJob, "
        "PaddleJob or TFJob, edit the template, then set the job's suspend field to false. Nobody can edit "
        "the containers of a Job or JobSet: submit the job again with the change.",
    ),
    Reason.CAUSE_GONE: Explanation(
        "The fault was resolved before Rekindle stopped the job, for example because a person "
        "ended the quarantine of the node. The job continues to train.",
        "Nothing to do. Rekindle acts if the fault occurs again.",
    ),
    Reason.JOB_GONE: Explanation(
        "Somebody deleted the job during its recovery.",
        "Nothing to do.",
    ),
    Reason.JOB_COMPLETED: Explanation(
        "The job completed during its recovery, and needs no further action.",
        "Nothing to do.",
    ),
}

EVENT_EXPLANATIONS: dict[EventReason, str] = {
    EventReason.FAULT_DETECTED: "Rekindle found a fault on a node or in a job. The Incident has the details.",
    EventReason.FAULT_CLEARED: "A reset, a reboot or a person has ended a fault.",
    EventReason.RECOVERY_PLANNED: "Rekindle will stop and resume the job.",
    EventReason.RECOVERY_STARTED: "Rekindle stops the job's old pods.",
    EventReason.RECOVERY_SUCCEEDED: "The job runs again.",
    EventReason.RECOVERY_FAILED: "The recovery failed. A person must act. The message says why.",
    EventReason.RECOVERY_BLOCKED: "The recovery waits. The message says why.",
    EventReason.FRAMEWORK_WOKEN: "The framework's controller has not ended or created the job's pods for "
    "minutes. Rekindle has changed its own annotation on the job, so that this controller processes the job "
    "again.",
    EventReason.KNOWN_ISSUE: "The job shows a known issue. The message names the change that corrects it.",
    EventReason.NODE_QUARANTINED: "Rekindle has put the node into quarantine (cordon and taint "
    "rekindle.dev/unhealthy): the node takes no new pods.",
    EventReason.NODE_RELEASED: "The quarantine has ended: the node takes pods again.",
    EventReason.SPARE_LIFTED: "The spare takes pods in place of a quarantined node.",
    EventReason.SPARE_RETURNED: "Rekindle keeps the spare free again: the spare takes no new pods. Pods that "
    "run there continue to run.",
    EventReason.NODE_REPAIR_STARTED: "Rekindle resets a device of the node, or reboots the node.",
    EventReason.NODE_HANDED_OVER: "A person must repair the node. The message says how.",
    EventReason.INCIDENT_REMADE: "The Incident of a quarantined node was missing. Rekindle has created "
    "the Incident again, and the node stays in quarantine.",
    EventReason.LEFT_STOPPED: "A person deleted the Recovery of a job that Rekindle had stopped, so a "
    "person must start the job again. The message contains the command.",
    EventReason.VARIABLES_REMOVED: "Somebody else had put variables into the ConfigMap that the job's "
    "ranks read. Rekindle removed these variables before it started the "
    "job. The message names them.",
    EventReason.PAUSED: "A person has paused Rekindle for the whole cluster: Rekindle begins nothing.",
    EventReason.RESUMED: "The pause has ended: a person ended it, or its time has passed.",
    EventReason.NOT_JUDGED: "Because of a defect, Rekindle cannot process this object. Rekindle "
    "processes all other objects.",
}

NODE_EXPLANATIONS: dict[NodeReason, tuple[str, str]] = {
    NodeReason.NO_FAULT: (
        "True",
        "The agent watches the node, and has found no fault that requires a quarantine.",
    ),
    NodeReason.DEGRADED: (
        "True",
        "A device is degraded and still computes correctly. The scheduler uses the node if no "
        "better node is free.",
    ),
    NodeReason.FAULT_FOUND: (
        "False",
        "The node has a fault that requires a quarantine. The mode, a budget, a brake or a "
        "hold may prevent the quarantine.",
    ),
    NodeReason.QUARANTINED: ("False", "Rekindle has put the node into quarantine."),
    NodeReason.NOT_WATCHED: (
        "Unknown",
        "Rekindle does not know whether the node has a fault: the agent does not report, or "
        "cannot read a source.",
    ),
}
"""Status of the condition, and meaning of the reason."""

NOT_GIVEN_YET = frozenset({EventReason.FAULT_CLEARED})
"""Reasons that are reserved for features that do not exist yet. A test compares this list with the code."""


def reference() -> str:
    """Returns docs/reference/reasons.md, in Markdown."""
    lines = [
        "# Reasons",
        "",
        "Generated from `recover/api/reasons.py` by `make docs`. `rekindle why` shows the meaning of a "
        "reason, and the next step. The [glossary](../glossary.md) explains terms such as brake, hold and "
        "spare.",
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
        "## In Kubernetes Events",
        "",
        "| reason | meaning |",
        "|---|---|",
        *(f"| `{reason}`{_when(reason)} | {meaning} |" for reason, meaning in EVENT_EXPLANATIONS.items()),
        "",
        "## In the Node condition `AcceleratorHealthy`",
        "",
        "Rekindle writes the condition only if the setting `node_condition` is `true`.",
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
    return " (reserved: Rekindle does not use this reason yet)" if reason in NOT_GIVEN_YET else ""
