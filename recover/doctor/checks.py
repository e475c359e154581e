"""All checks of a job, as a person would ask one after the other. A new one is a function and a line here."""

from __future__ import annotations

from recover.doctor import checkpoints, consent, environment, known, pods, progress, retries
from recover.doctor.model import Case, Check, Part

__all__ = ["CHECKS"]

CHECKS: tuple[Check[Case], ...] = (
    Check("opted-in", "it asks to be restarted", consent.opted_in),
    Check("mode", "the controller may act", consent.mode, (Part.MODE,)),
    Check("lowered", "no setting lowers that for its namespace or its nodes", consent.lowered, (Part.MODE,)),
    Check("namespace", "its namespace does not forbid it", consent.namespace, (Part.NAMESPACE,)),
    Check("hold", "nobody holds it", consent.hold),
    Check("annotations", "everything that was written for Rekindle can be read", consent.misread),
    Check("owner", "its kind is restarted, and nobody else decides when it runs", consent.owner),
    Check("ended", "it has not failed for good", consent.ended),
    Check("checkpoint-annotation", "it says where its checkpoints lie", checkpoints.annotation),
    Check("checkpoint-volume", "a scan can mount what it says of its checkpoints", checkpoints.volume),
    Check("checkpoint-claim", "all its ranks can mount that claim", checkpoints.claim, (Part.CLAIM,)),
    Check("environment", "its ranks read what a recovery tells them", environment.read_by_ranks),
    Check("own-variables", "it sets no variable that is Rekindle's", environment.own_variables),
    Check("headroom", "a failed rank does not end it for good, or it is made again", retries.headroom),
    Check("deadline", "no deadline ends it", retries.deadline),
    Check("removal", "it is not removed before it can be made again", retries.removal),
    Check("known-issues", "no recipe knows its template for an issue", known.in_template),
    Check("known-issues-of-nodes", "no recipe knows its nodes for an issue", known.on_nodes, (Part.NODES,)),
    Check("tolerations", "it tolerates no taint of a bad node", pods.tolerations),
    Check("grace", "its pods end in time", pods.grace),
    Check("gates", "its pods wait for nobody", pods.gates),
    Check("agents", "agents see all its nodes", progress.seen, (Part.HEALTH, Part.RUNNING)),
    Check("steps", "its steps are read", progress.steps, (Part.HEALTH, Part.RUNNING)),
)
