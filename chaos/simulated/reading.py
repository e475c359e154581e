"""Answers one small question each about plain API objects, for the checks. Pure, and independent of the views
that the controller makes of the same objects."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from chaos.apiserver.kinds import Object
from recover.k8s.kinds import (
    CONFIGMAPS,
    EVENTS,
    INCIDENTS,
    JOBS,
    JOBSETS,
    NODEHEALTHS,
    PYTORCHJOBS,
    RECOVERIES,
)

__all__ = [
    "GANGS",
    "HOLD",
    "MARK",
    "OURS",
    "OWN_KINDS",
    "QUARANTINED",
    "RECREATES",
    "REPAIR_OF",
    "REPAIR_OVER",
    "SCAN_OF",
    "SPARE",
    "SPARE_FOR",
    "SPARE_KEPT",
    "TAINT",
    "VIEW_MAX",
    "gang_uid",
    "has_completed",
    "has_consented",
    "has_failed",
    "has_own_volume",
    "hosts_avoided",
    "is_active",
    "is_closed",
    "is_cordoned",
    "is_fenced",
    "is_of_repair",
    "is_ready",
    "is_suspended",
    "lives",
    "made_by_set",
    "node_of",
    "not_ours",
    "note",
    "others_taints",
    "our_taint",
    "owner",
    "phase",
    "ready_condition",
    "released_at",
    "repair_phase",
    "spare_taint",
    "takes_pods",
    "templates",
    "tolerates_all",
    "without_ours",
]

OURS = "rekindle.dev/"
TAINT, QUARANTINED = OURS + "unhealthy", OURS + "quarantined-by"
RELEASED, HOLD = OURS + "released-at", OURS + "hold"
SPARE, SPARE_FOR, SPARE_KEPT = OURS + "spare", OURS + "spare-for", OURS + "spare-kept"
MARK, SCAN_OF, RECREATES = OURS + "recovery", OURS + "scan-of", OURS + "on-terminal"
REPAIR_OF = OURS + "repair"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
GANGS = (JOBS, PYTORCHJOBS, JOBSETS)
JOBSET_UID = "jobset.sigs.k8s.io/jobset-uid"
OWN_KINDS = (NODEHEALTHS, INCIDENTS, RECOVERIES, CONFIGMAPS, EVENTS)
REPAIR_OVER = ("Returned", "HandedOver")
"""Phases in which a repair has ended."""
VIEW_MAX = timedelta(seconds=90)
"""Maximum age of the controller's view of an object, after a partition, slow answers, and watches that
lag."""


def is_suspended(gang: Object) -> bool:
    spec = gang["spec"]
    return bool(spec.get("runPolicy", spec).get("suspend", False))


def not_ours(body: Object, field: str) -> dict[str, str]:
    """Returns the labels or annotations that Rekindle does not own. In a job Rekindle owns only its mark: the
    user writes all others under Rekindle's prefix."""
    values: dict[str, str] = body["metadata"].get(field, {})
    if body["kind"] == "Node":
        return {key: value for key, value in values.items() if not key.startswith(OURS)}
    return {key: value for key, value in values.items() if key != MARK}


def has_consented(gang: Object) -> bool:
    meta, word = gang["metadata"], OURS + "auto-recovery"
    said = {source.get(word) for source in (meta.get("labels", {}), meta.get("annotations", {}))} - {None}
    return said == {"enabled"}


def has_failed(gang: Object) -> bool:
    """Whether its framework has failed the job permanently."""
    conditions = gang.get("status", {}).get("conditions", [])
    return any(c["type"] in ("Failed", "FailureTarget") and c["status"] == "True" for c in conditions)


def has_completed(gang: Object) -> bool:
    """Whether the job has done all its work."""
    conditions = gang.get("status", {}).get("conditions", [])
    done = ("Succeeded", "Complete", "Completed")
    return any(c["type"] in done and c["status"] == "True" for c in conditions)


def without_ours(gang: Object) -> dict[str, Any]:
    """Returns the job's spec without the fields that a stop and a resume may change."""
    spec: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(gang["spec"]))
    spec.get("runPolicy", spec).pop("suspend", None)
    for template in templates(spec):
        template["spec"].pop("affinity", None)
        for container in template["spec"]["containers"]:
            container.pop("envFrom", None)
    return spec


def templates(spec: dict[str, Any]) -> list[Object]:
    """Returns the pod templates in the spec of a job of any kind."""
    found = [spec["template"]] if "template" in spec else []
    found += [replica["template"] for replica in spec.get("pytorchReplicaSpecs", {}).values()]
    return found + [job["template"]["spec"]["template"] for job in spec.get("replicatedJobs", [])]


def hosts_avoided(gang: Object) -> set[str]:
    """Returns the hosts that the required affinity of all the job's templates excludes."""
    kept = []
    for template in templates(gang["spec"]):
        affinity = (template["spec"].get("affinity") or {}).get("nodeAffinity") or {}
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
        terms = [
            {
                host
                for e in term.get("matchExpressions", [])
                if (e["key"], e["operator"]) == ("kubernetes.io/hostname", "NotIn")
                for host in e["values"]
            }
            for term in required.get("nodeSelectorTerms", [])
        ]
        kept.append(set.intersection(*terms) if terms else set())
    return set.intersection(*kept)


def tolerates_all(gang: Object) -> bool:
    """Whether some of the job's pods may be placed on cordoned nodes, too."""
    tolerations = [t for template in templates(gang["spec"]) for t in template["spec"].get("tolerations", [])]
    return any(t.get("operator") == "Exists" and not t.get("key") for t in tolerations)


def gang_uid(recovery: Object) -> str:
    """Returns the uid of the job that the recovery is about. If the recovery has created the job again, this
    is the uid of the new job."""
    return str(recovery.get("status", {}).get("gangUid") or recovery["spec"]["gang"]["uid"])


def phase(recovery: Object) -> str:
    return str(recovery.get("status", {}).get("phase", "Planned"))


def is_active(recovery: Object) -> bool:
    return phase(recovery) not in ("Succeeded", "Escalated", "Failed")


def repair_phase(incident: Object) -> str:
    """Returns the phase of the repair. Returns an empty string if no repair of the node has begun."""
    repair = incident.get("status", {}).get("repair")
    return str(repair.get("phase", "Waiting")) if repair else ""


def is_of_repair(body: Object, namespace: str) -> bool:
    """Whether the object is the Job of a repair's step in the controller's namespace, or its pod."""
    meta = body["metadata"]
    return REPAIR_OF in meta.get("labels", {}) and meta.get("namespace") == namespace


def note(node: Object) -> dict[str, Any]:
    """Returns the annotation that the controller writes with a quarantine: why, and what undoes it. Returns
    an empty dict if there is no annotation."""
    note: dict[str, Any] = msgspec.json.decode(node["metadata"].get("annotations", {}).get(QUARANTINED, "{}"))
    return note


def released_at(node: Object) -> datetime | None:
    """Returns when a person ended the quarantine of the node, or a repair returned the node to service, as
    the controller has recorded it. Returns None if there is no record."""
    released = node["metadata"].get("annotations", {}).get(RELEASED)
    return datetime.fromisoformat(released) if released else None


def is_cordoned(node: Object) -> bool:
    return bool(node["spec"].get("unschedulable"))


def our_taint(node: Object) -> Object | None:
    return next((taint for taint in node["spec"].get("taints", []) if taint["key"] == TAINT), None)


def is_closed(node: Object) -> bool:
    """Whether Rekindle's taint keeps new pods off the node."""
    taint = our_taint(node)
    return taint is not None and taint["effect"] == "NoSchedule"


def others_taints(node: Object) -> list[Object]:
    return [taint for taint in node["spec"].get("taints", []) if taint["key"] not in (TAINT, SPARE)]


def spare_taint(node: Object) -> Object | None:
    return next((taint for taint in node["spec"].get("taints", []) if taint["key"] == SPARE), None)


def is_ready(node: Object) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def takes_pods(node: Object) -> bool:
    """Whether the scheduler may place a pod without tolerations there."""
    taints = [t for t in node["spec"].get("taints", []) if t["effect"] != "PreferNoSchedule"]
    return is_ready(node) and not is_cordoned(node) and not taints


def ready_condition(node: Object) -> Object:
    """Returns the Ready condition. The node's kubelet must have registered the node."""
    return next(c for c in node["status"]["conditions"] if c["type"] == "Ready")


def owner(body: Object) -> str:
    """Returns the uid of the job that a pod belongs to. If a JobSet created the Job, this is the JobSet's
    uid."""
    if of_set := body["metadata"].get("labels", {}).get(JOBSET_UID):
        return str(of_set)
    references = body["metadata"].get("ownerReferences", [])
    return next((str(r["uid"]) for r in references if r.get("controller")), "")


def made_by_set(job: Object) -> str:
    """Returns the uid of the JobSet that created this Job. Returns an empty string for any other job."""
    references = job["metadata"].get("ownerReferences", [])
    return next((str(r["uid"]) for r in references if r.get("controller") and r["kind"] == "JobSet"), "")


def node_of(pod: Object) -> str:
    return str(pod["spec"].get("nodeName", ""))


def lives(pod: Object) -> bool:
    return pod["status"].get("phase") not in ("Succeeded", "Failed")


def has_own_volume(pod: Object) -> bool:
    return any("persistentVolumeClaim" in volume for volume in pod["spec"].get("volumes", []))


def is_fenced(node: Object, pod: Object) -> bool:
    """Whether it is proven that nothing of the pod runs on the node any more: a person has set the
    out-of-service taint, or the node has become ready since the pod started. In a simulation a node becomes
    ready only by a boot."""
    ready = ready_condition(node)
    booted_again = ready["status"] == "True" and ready["lastTransitionTime"] > pod["status"].get(
        "startTime", ""
    )
    return booted_again or any(taint["key"] == OUT_OF_SERVICE for taint in node["spec"].get("taints", []))
