"""Checks the pod templates for what makes a stop or a start slow, or places pods where Rekindle does not want
them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from recover.doctor.case import Case, Finding, Severity
from recover.k8s.pod_specs import HOSTNAME
from recover.policy.consent import CHECKPOINT_ON_SIGTERM, saves_on_sigterm
from recover.recovery.context import GRACE_MARGIN_S, allowed_s
from recover.workloads.patches import required_expressions

__all__ = [
    "elastic",
    "gates",
    "grace",
    "pinned",
    "resources",
    "restart_policy",
    "time_to_save",
    "tolerations",
]

SAVE_S_MIN = 30
"""Kubernetes' default of a grace period, in seconds. A shorter period is hardly meant for a checkpoint."""


def tolerations(case: Case) -> Iterator[Finding]:
    """Reports pods that tolerate every taint. An affinity still keeps such pods off a bad node, except if the
    framework creates pods after the start of the job."""
    late = case.spec.placed_late
    for field, template in case.templates:
        if any(one.operator == "Exists" and not one.key for one in template.spec.tolerations):
            yield Finding(
                name="tolerates-everything",
                severity=Severity.RISKS if late else Severity.ADVICE,
                what="the pods tolerate every taint, the taint of a quarantined node included",
                where=case.at(f"{field}.spec.tolerations", "operator: Exists"),
                means=late
                or "at a restart, an affinity keeps the pods off the node that broke; nothing keeps "
                "them off other quarantined nodes",
                fix="name each taint by its key, for example "
                "tolerations: [{key: nvidia.com/gpu, operator: Exists}]",
            )


def grace(case: Case) -> Iterator[Finding]:
    within_s = allowed_s(case.gang, case.timing, case.timing.stop_deadline_s)
    for field, template in case.templates:
        seconds = template.spec.termination_grace_period_seconds
        if seconds >= within_s:
            yield Finding(
                name="grace-too-long",
                severity=Severity.RISKS,
                what=f"a pod may take {seconds} s to end",
                where=case.at(f"{field}.spec.terminationGracePeriodSeconds", str(seconds)),
                means="the recovery waits for a rank that ignores SIGTERM until its grace period is over, "
                f"and {GRACE_MARGIN_S:g} s more; meanwhile the GPUs of the job are idle",
                fix=f"terminationGracePeriodSeconds: {int(within_s / 2)}",
            )


def time_to_save(case: Case) -> Iterator[Finding]:
    """Reports pods that have less than `SAVE_S_MIN` for the checkpoint that they save at SIGTERM."""
    if not saves_on_sigterm(case.gang.annotations):
        return
    for field, template in case.templates:
        seconds = template.spec.termination_grace_period_seconds
        if seconds < SAVE_S_MIN:
            yield Finding(
                name="grace-too-short",
                severity=Severity.RISKS,
                what=f"by the annotation {CHECKPOINT_ON_SIGTERM} the job saves a checkpoint at its stop, and "
                f"its pods have {seconds} s for that",
                where=case.at(f"{field}.spec.terminationGracePeriodSeconds", str(seconds)),
                means="the kubelet kills a rank that still saves after this time: that checkpoint is "
                "incomplete, and the job resumes from an older one",
                fix="terminationGracePeriodSeconds: the time of a checkpoint, and some seconds more",
            )


def pinned(case: Case) -> Iterator[Finding]:
    """Reports pods that can run on one node only. A recovery must avoid this node if it is broken."""
    for name, template in case.spec.templates().items():
        spec = template.spec
        hosts = _hosts(case.gang.templates[name].affinity)
        for field, node in (
            ("nodeName", spec.node_name),
            (f"nodeSelector[{HOSTNAME}]", spec.node_selector.get(HOSTNAME)),
            ("affinity.nodeAffinity", hosts.pop() if len(hosts) == 1 else ""),
        ):
            if node:
                yield Finding(
                    name="pinned",
                    severity=Severity.RISKS,
                    what=f"the pods can run only on the node {node}",
                    where=case.at(f"{case.spec.template_field(name)}.spec.{field}", node),
                    means=f"if {node} breaks, Rekindle cannot start the job on another node, and the job "
                    f"does not run until {node} is repaired",
                    fix=f"remove {node} from the pod template; to choose the kind of nodes, name a label "
                    "that several nodes have",
                )


def _hosts(affinity: Mapping[str, object]) -> set[str]:
    """Returns the hosts to which the required affinity restricts the pods; empty if it names no hosts."""
    terms = [
        {
            host
            for one in expressions
            if (one["key"], one["operator"]) == (HOSTNAME, "In")
            for host in one.get("values") or ()
        }
        for expressions in required_expressions(affinity)
    ]
    return set().union(*terms) if all(terms) else set()


_POLICIES = ("Always", "OnFailure", "Never")
_NVIDIA = "nvidia.com/"


def restart_policy(case: Case) -> Iterator[Finding]:
    """Reports a restartPolicy that Kubernetes does not know. The value is case-sensitive."""
    for field, template in case.templates:
        policy = template.spec.restart_policy
        near = get_close_matches(policy.lower(), [one.lower() for one in _POLICIES], n=1)
        if policy and policy not in _POLICIES:
            meant = next((one for one in _POLICIES if [one.lower()] == near), "OnFailure")
            yield Finding(
                name="restart-policy-unknown",
                severity=Severity.FAILS,
                what=f"restartPolicy {policy!r:.40} is none of {', '.join(_POLICIES)}",
                where=case.at(f"{field}.spec.restartPolicy", policy),
                means="the API server refuses the pods",
                fix=f"restartPolicy: {meant}",
            )


def resources(case: Case) -> Iterator[Finding]:
    """Reports a misspelt nvidia.com/gpu. Device plugins may offer other names, so only similar names are
    reported."""
    for field, template in case.templates:
        for container in template.spec.containers:
            asked = {*container.resources.limits, *container.resources.requests}
            for name in sorted(asked):
                rest = name.removeprefix(_NVIDIA)
                if name.startswith(_NVIDIA) and rest != "gpu" and rest.lower() in ("gpus", "gpu"):
                    yield Finding(
                        name="resource-unknown",
                        severity=Severity.RISKS,
                        what=f"container {container.name} requests {name}, which NVIDIA's device plugin does "
                        f"not advertise; did you mean {_NVIDIA}gpu?",
                        where=case.at(f"{field}.spec.containers[{container.name}].resources", name),
                        means="no node has the resource, so no pod of the job is scheduled",
                        fix=f"resources: {{limits: {{{_NVIDIA}gpu: 8}}}}",
                    )


def elastic(case: Case) -> Iterator[Finding]:
    """Reports a job that does not need each of its ranks. A job that the framework marks as failed when its
    first rank fails needs all of its ranks."""
    ends = any(hazard.severity is Severity.FAILS for hazard in case.spec.ends_for_good(case.gang, ""))
    if case.gang.may_lack > 0 and not ends:
        least = case.gang.size - case.gang.may_lack
        yield Finding(
            name="elastic",
            severity=Severity.ADVICE,
            what=f"the job is elastic: it continues while at least {least} of its {case.gang.size} pods run",
            where=case.at(case.spec.elastic_field),
            means=f"if at most {case.gang.may_lack} workers are lost and another worker makes steps, "
            "Rekindle does not act, because the framework's controller creates the lost workers again; if "
            "the other workers stall, Rekindle restarts the whole gang",
            fix=f"nothing, if you want this; otherwise remove {case.spec.elastic_field}",
        )


def gates(case: Case) -> Iterator[Finding]:
    for field, template in case.templates:
        if template.spec.scheduling_gates:
            names = ", ".join(gate.name for gate in template.spec.scheduling_gates)
            yield Finding(
                name="scheduling-gates",
                severity=Severity.RISKS,
                what="the pods have scheduling gates, and are not scheduled before a controller removes them",
                where=case.at(f"{field}.spec.schedulingGates", names),
                means="the new pods of a recovery have the gates, too. If the gates stay for "
                f"{case.timing.resume_deadline_s:g} s, the recovery is blocked",
                fix="remove schedulingGates, or run a controller that removes the gates from every new pod",
            )
