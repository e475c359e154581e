"""All checks of a job, as a person would ask one after the other. A new one is a function and a line here."""

from __future__ import annotations

from recover.doctor import environment, issues_ahead, permission, pod_templates, progress, retries, saves
from recover.doctor.case import Case, Check, Part

__all__ = ["CHECKS"]

CHECKS: tuple[Check[Case], ...] = (
    Check("opted-in", "it asks to be restarted", permission.opted_in),
    Check("mode", "the controller may act", permission.mode, (Part.MODE,)),
    Check(
        "lowered", "no setting lowers that for its namespace or its nodes", permission.lowered, (Part.MODE,)
    ),
    Check("namespace", "its namespace does not forbid it", permission.namespace, (Part.NAMESPACE,)),
    Check("hold", "nobody holds it", permission.hold),
    Check("annotations", "everything that was written for Rekindle can be read", permission.misread),
    Check("owner", "its kind is restarted, and nobody else decides when it runs", permission.owner),
    Check("ended", "it has not failed for good", permission.ended),
    Check("checkpoint-annotation", "it says where its checkpoints lie", saves.annotation),
    Check("checkpoint-volume", "a scan can mount what it says of its checkpoints", saves.volume),
    Check("checkpoint-claim", "all its ranks can mount that claim", saves.claim, (Part.CLAIM,)),
    Check("environment", "its ranks read what a recovery tells them", environment.read_by_ranks),
    Check("own-variables", "it sets no variable that is Rekindle's", environment.own_variables),
    Check("headroom", "a failed rank does not end it for good, or it is made again", retries.headroom),
    Check("deadline", "no deadline ends it", retries.deadline),
    Check("removal", "it is not removed before it can be made again", retries.removal),
    Check("known-issues", "no recipe knows its template for an issue", issues_ahead.in_template),
    Check(
        "known-issues-of-nodes",
        "no recipe knows its nodes for an issue",
        issues_ahead.on_nodes,
        (Part.NODES,),
    ),
    Check("tolerations", "it tolerates no taint of a bad node", pod_templates.tolerations),
    Check("grace", "its pods end in time", pod_templates.grace),
    Check("gates", "its pods wait for nobody", pod_templates.gates),
    Check("agents", "agents see all its nodes", progress.seen, (Part.HEALTH, Part.RUNNING)),
    Check("steps", "its steps are read", progress.steps, (Part.HEALTH, Part.RUNNING)),
)
