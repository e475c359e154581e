"""All checks of an installation. A new check is a function and a line here."""

from __future__ import annotations

from recover.doctor.case import Check
from recover.doctor.installation import admission, agent_pods, people, release, server, spare_checks
from recover.doctor.installation.installed import Installation, Part

__all__ = ["CHECKS"]

CHECKS: tuple[Check[Installation], ...] = (
    Check("api-version", "the API server has all features that Rekindle uses", server.version),
    Check("definitions", "the API server knows Rekindle's kinds", server.is_served),
    Check("fields", "the CRDs have every field of this version", server.fields, (Part.DEFINITIONS,)),
    Check(
        "version",
        "the release and this command have the same version",
        release.same_version,
        (Part.CONTROLLER,),
    ),
    Check("controller", "all controllers are ready", release.runs, (Part.CONTROLLER, Part.PODS)),
    Check("lease", "one controller leads", release.leads, (Part.LEASE,)),
    Check("settings", "the controller accepts its settings", release.settings, (Part.SETTINGS,)),
    Check("mode", "the controller is in the mode of its settings", release.mode, (Part.STATE,)),
    Check(
        "lower-modes",
        "the pools and namespaces of the modes exist",
        release.lowered,
        (Part.SETTINGS,),
    ),
    Check(
        "rights", "the ServiceAccounts have all permissions that they need", admission.rights, (Part.RIGHTS,)
    ),
    Check(
        "policies",
        "the policies that protect Rekindle's objects are in force",
        admission.policies,
        (Part.POLICIES,),
    ),
    Check(
        "environment",
        "ranks of Jobs learn from which checkpoint to resume",
        admission.environment,
        (Part.ENVIRONMENT, Part.STATE),
    ),
    Check("pod-security", "the namespace admits the agents", admission.pod_security, (Part.NAMESPACES,)),
    Check("egress", "no NetworkPolicy blocks the API server", admission.egress, (Part.NETWORK, Part.PODS)),
    Check("accelerators", "there are nodes with accelerators", agent_pods.on_nodes, (Part.NODES,)),
    Check(
        "device-reports",
        "Rekindle reads the reports of other vendors' devices",
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
    Check(
        "agents-reporting",
        "every agent that is ready has written its NodeHealth",
        agent_pods.reporting,
        (Part.PODS, Part.NODES, Part.HEALTH),
    ),
    Check("coverage", "agents read all their sources", agent_pods.coverage, (Part.HEALTH, Part.NODES)),
    Check("catalogue", "agents use every row of your catalogue", agent_pods.catalogue, (Part.HEALTH,)),
    Check("agents-version", "agents have the version of the release", agent_pods.versions, (Part.HEALTH,)),
    Check("clocks", "clocks agree", server.clocks, (Part.HEALTH,)),
    Check(
        "frameworks",
        "Rekindle reads the served versions of all job kinds, and no other controller decides when jobs run",
        server.frameworks,
        (Part.JOBS,),
    ),
    Check("recipes", "Rekindle uses all of your own recipes", release.recipes, (Part.RECIPES,)),
    Check(
        "keys",
        "Rekindle can read all of its labels and annotations",
        people.mistyped,
        (Part.NODES, Part.NAMESPACES, Part.JOBS),
    ),
    Check("spares", "spares are kept free", spare_checks.kept_free, (Part.NODES, Part.STATE)),
)
