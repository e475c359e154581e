"""All checks of an installation. A new one is a function and a line here."""

from __future__ import annotations

from recover.doctor.case import Check
from recover.doctor.installation import admission, agent_pods, people, release, server, spare_checks
from recover.doctor.installation.installed import Installation, Part

__all__ = ["CHECKS"]

CHECKS: tuple[Check[Installation], ...] = (
    Check("api-version", "the API server has all that is used", server.version),
    Check("definitions", "it knows our kinds", server.is_served),
    Check("fields", "they have every field of this version", server.fields, (Part.DEFINITIONS,)),
    Check("version", "the release is of this version", release.same_version, (Part.CONTROLLER,)),
    Check("controller", "all controllers are ready", release.runs, (Part.CONTROLLER, Part.PODS)),
    Check("lease", "one of them leads", release.leads, (Part.LEASE,)),
    Check("settings", "the controller takes its settings", release.settings, (Part.SETTINGS,)),
    Check("mode", "it acts in the mode of its settings", release.mode, (Part.STATE,)),
    Check("lower-modes", "pools and namespaces with modes are there", release.lowered, (Part.SETTINGS,)),
    Check("rights", "its accounts may do what they must", admission.rights, (Part.RIGHTS,)),
    Check("policies", "nobody else may do it", admission.policies, (Part.POLICIES,)),
    Check(
        "environment",
        "ranks of Jobs read where to resume",
        admission.environment,
        (Part.ENVIRONMENT, Part.STATE),
    ),
    Check("pod-security", "its namespace lets agents in", admission.pod_security, (Part.NAMESPACES,)),
    Check("egress", "nothing shuts it off from the API server", admission.egress, (Part.NETWORK, Part.PODS)),
    Check("accelerators", "there are nodes with accelerators", agent_pods.on_nodes, (Part.NODES,)),
    Check(
        "device-reports",
        "reports of other vendors' devices are read",
        agent_pods.reports,
        (Part.NODES, Part.SETTINGS),
    ),
    Check(
        "agents-everywhere",
        "each node with accelerators has an agent",
        agent_pods.everywhere,
        (Part.AGENTS, Part.PODS, Part.NODES),
    ),
    Check("agents-ready", "all agents are ready", agent_pods.ready, (Part.PODS, Part.NODES, Part.HEALTH)),
    Check("coverage", "agents read all their sources", agent_pods.coverage, (Part.HEALTH, Part.NODES)),
    Check("catalogue", "agents use every row of your catalogue", agent_pods.catalogue, (Part.HEALTH,)),
    Check("agents-version", "agents are of the release's version", agent_pods.versions, (Part.HEALTH,)),
    Check("clocks", "clocks agree", server.clocks, (Part.HEALTH,)),
    Check("frameworks", "jobs are of versions that are read, and their own", server.frameworks, (Part.JOBS,)),
    Check("recipes", "every recipe of people's own is used", release.recipes, (Part.RECIPES,)),
    Check(
        "keys",
        "everything that was written for Rekindle can be read",
        people.mistyped,
        (Part.NODES, Part.NAMESPACES, Part.JOBS),
    ),
    Check("spares", "spares stand by", spare_checks.stood_by, (Part.NODES, Part.STATE)),
)
