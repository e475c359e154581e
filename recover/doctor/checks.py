"""All checks of a job, in the order in which a person would ask. A new check is a function and a line
here."""

from __future__ import annotations

from recover.doctor import (
    environment,
    exit_statuses,
    folders,
    issues_ahead,
    permission,
    pod_templates,
    progress,
    retries,
    saves,
    torchrun,
)
from recover.doctor.case import Case, Check, Part

__all__ = ["CHECKS"]

CHECKS: tuple[Check[Case], ...] = (
    Check("opted-in", "automatic recovery is enabled for the job", permission.opted_in),
    Check("mode", "the controller's mode allows actions", permission.mode, (Part.MODE,)),
    Check(
        "lowered",
        "no setting lowers the mode for the job's namespace or nodes",
        permission.lowered,
        (Part.MODE,),
    ),
    Check("namespace", "the job's namespace allows actions", permission.namespace, (Part.NAMESPACE,)),
    Check("hold", "there is no hold on the job", permission.hold),
    Check(
        "annotations", "Rekindle can read all of its labels and annotations on the job", permission.misread
    ),
    Check(
        "owner",
        "Rekindle restarts jobs of this kind, and no other controller decides when the job runs",
        permission.owner,
    ),
    Check("ended", "the job has not failed permanently", permission.ended),
    Check("checkpoint-annotation", "an annotation names the folder of the checkpoints", saves.annotation),
    Check(
        "checkpoint-volume",
        "if an annotation names the folder of the checkpoints, a scan can mount the volume of this folder",
        saves.volume,
    ),
    Check("checkpoint-folder", "all ranks have the same folder of checkpoints", folders.same),
    Check("checkpoint-claim", "all ranks can mount the claim of the checkpoints", saves.claim, (Part.CLAIM,)),
    Check("environment", "the ranks read the variables of a recovery", environment.read_by_ranks),
    Check(
        "environment-optional",
        "the pods start without the ConfigMap of a recovery",
        environment.optional,
    ),
    Check("own-variables", "the job sets no variable that Rekindle sets", environment.own_variables),
    Check(
        "headroom",
        "the job survives the first failed rank, or Rekindle may create the job again",
        retries.headroom,
    ),
    Check("deadline", "the job has no deadline", retries.deadline),
    Check("removal", "the job is not removed before Rekindle can create it again", retries.removal),
    Check("known-issues", "the template shows no known issue", issues_ahead.in_template),
    Check(
        "known-issues-of-nodes",
        "the nodes show no known issue",
        issues_ahead.on_nodes,
        (Part.NODES,),
    ),
    Check(
        "tolerations", "the pods do not tolerate the taint of a quarantined node", pod_templates.tolerations
    ),
    Check(
        "grace", "the grace period of the pods is shorter than the time limit of a stop", pod_templates.grace
    ),
    Check(
        "time-to-save",
        "a job that saves a checkpoint when it is stopped has time for the checkpoint",
        pod_templates.time_to_save,
    ),
    Check("pinned", "the pods can run on more than one node", pod_templates.pinned),
    Check("gates", "the pods have no scheduling gate", pod_templates.gates),
    Check("restart-policy", "Kubernetes knows the restartPolicy of the pods", pod_templates.restart_policy),
    Check("resources", "the pods request no misspelt GPU resource", pod_templates.resources),
    Check(
        "exit-status",
        "a training that fails ends its container with another status than 0",
        exit_statuses.kept,
    ),
    Check("torchrun", "torchrun connects all pods of the job", torchrun.rendezvous),
    Check("elastic", "the job needs all of its ranks", pod_templates.elastic),
    Check("fields", "metadata has no misspelt field", permission.misspelt),
    Check("hang-limit", "a pause of a healthy training does not count as a hang", progress.hang_limit),
    Check("agents", "agents watch all nodes of the job", progress.seen, (Part.HEALTH, Part.RUNNING)),
    Check("steps", "agents read the steps of the job", progress.steps, (Part.HEALTH, Part.RUNNING)),
)
