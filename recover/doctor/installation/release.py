"""Checks whether the controller runs, leads, and works in the mode and with the settings and recipes of
people. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from recover.api.recipe import ACCEPTED
from recover.doctor.case import Finding, Place, Severity
from recover.doctor.installation.installed import CONTROLLER, SETTINGS, Installation, Part
from recover.model.modes import Mode
from recover.stories.groups import grouped
from recover.stories.words import counted, duration, some

__all__ = ["leads", "lowered", "mode", "recipes", "runs", "same_version", "settings"]


def same_version(seen: Installation) -> Iterator[Finding]:
    """Reports a release of another version: this command compares the cluster with what its own version
    installs."""
    if seen.release_version != seen.version:
        yield Finding(
            name="command-of-another-version",
            severity=Severity.ADVICE,
            what=f"this command has version {seen.version}, and the release has version "
            f"{seen.release_version}",
            where=Place(f"Deployment {seen.namespace}/{CONTROLLER}", "metadata.labels", seen.release_version),
            means="this command compares CRDs, permissions, policies and settings with those of another "
            "version",
            fix=f"kubectl -n {seen.namespace} exec deployment/{CONTROLLER} -- rekindle doctor",
        )


def runs(seen: Installation) -> Iterator[Finding]:
    deployment = seen.controller
    if deployment is None:
        yield Finding(
            name="no-controller",
            severity=Severity.FAILS,
            what=f"there is no Deployment {CONTROLLER} in {seen.namespace}",
            where=Place(f"Deployment {seen.namespace}/{CONTROLLER}", "metadata.name"),
            means="Rekindle diagnoses nothing and does nothing; agents wait for their NodeHealths",
            fix=seen.upgrade("controller.enabled=true"),
        )
        return
    wanted, ready = deployment.spec.replicas, deployment.status.ready_replicas
    if ready >= wanted > 0:
        return
    yield Finding(
        name="controller-not-ready",
        severity=Severity.FAILS if ready == 0 else Severity.RISKS,
        what=f"{ready} of {counted(wanted, 'controller')} are ready{_why_not(seen)}",
        where=Place(f"Deployment {seen.namespace}/{CONTROLLER}", "status.readyReplicas", str(ready)),
        means="Rekindle diagnoses nothing and does nothing"
        if ready == 0
        else "Rekindle does nothing while its only controller is replaced",
        fix=f"kubectl -n {seen.namespace} describe pods -l app.kubernetes.io/component=controller"
        if wanted
        else f"kubectl -n {seen.namespace} scale deployment {CONTROLLER} --replicas=2",
    )


def _why_not(seen: Installation) -> str:
    troubles = [(pod.trouble, pod.metadata.name) for pod in seen.pods_of("controller") if not pod.ready]
    said = [group.why for group in grouped(troubles) if group.why]
    refused = [
        condition.message
        for condition in (seen.controller.status.conditions if seen.controller is not None else ())
        if condition.type == "ReplicaFailure" and condition.status == "True"
    ]
    return f": {'; '.join(said or refused)}" if said or refused else ""


def leads(seen: Installation) -> Iterator[Finding]:
    """Reports a Lease that nobody holds or renews, or whose holder is no pod of this release."""
    lease = seen.lease
    place = f"Lease {seen.lease_kept_in}"
    look = f"kubectl -n {seen.namespace} logs -l app.kubernetes.io/component=controller --tail=20"
    renewed_at = lease.renewed_at if lease is not None else None
    if lease is None or renewed_at is None or not lease.spec.holder_identity:
        yield Finding(
            name="nobody-leads",
            severity=Severity.FAILS,
            what="no controller holds the lease" if lease is not None else "there is no Lease",
            where=Place(place, "spec.holderIdentity"),
            means="Rekindle diagnoses nothing and does nothing until a controller takes the Lease. A "
            "controller that runs takes the Lease within 15 s",
            fix=look,
        )
        return
    holder = lease.spec.holder_identity
    age_s = (seen.now - renewed_at).total_seconds()
    if age_s > lease.spec.lease_duration_seconds:
        yield Finding(
            name="nobody-leads",
            severity=Severity.FAILS,
            what=f"{holder} has not renewed its lease for {duration(age_s)}",
            where=Place(place, "spec.renewTime", f"{renewed_at:%Y-%m-%d %H:%M:%S} UTC"),
            means="the controller has ended or cannot reach the API server, and no other controller has "
            "taken the Lease",
            fix=look,
        )
    elif Part.PODS not in seen.unread and holder not in {
        pod.metadata.name for pod in seen.pods_of("controller")
    }:
        yield Finding(
            name="leader-is-no-pod",
            severity=Severity.RISKS,
            what=f"the leader {holder} is no pod of the release",
            where=Place(place, "spec.holderIdentity", holder),
            means="a controller outside this release decides, with other settings",
            fix=f"kubectl -n {seen.namespace} get leases -o yaml  # and end the process that renews the "
            "Lease",
        )


def settings(seen: Installation) -> Iterator[Finding]:
    where = Place(f"ConfigMap {seen.namespace}/{SETTINGS}", "data[controller.toml]")
    if seen.settings is None and not seen.settings_problem:
        yield Finding(
            name="no-settings",
            severity=Severity.FAILS,
            what=f"there is no ConfigMap {SETTINGS} in {seen.namespace}",
            where=where,
            means="new pods of agents and controller do not start",
            fix=seen.upgrade(),
        )
    elif seen.settings_problem:
        yield Finding(
            name="settings-refused",
            severity=Severity.FAILS,
            what=seen.settings_problem,
            where=where,
            means=f"a controller of version {seen.version} does not start with these settings",
            fix=f"correct settings.controller in your values, then {seen.upgrade()}",
        )


def mode(seen: Installation) -> Iterator[Finding]:
    state = seen.state
    where = Place(f"ConfigMap {seen.state_kept_in}", "data.mode", state.mode if state is not None else "")
    if state is None:
        yield Finding(
            name="mode-unknown",
            severity=Severity.RISKS,
            what="no controller has recorded its mode so far",
            where=where,
            means="no controller has led so far",
            fix=f"kubectl -n {seen.namespace} get leases",
        )
        return
    if seen.settings is not None and seen.settings.mode is not state.mode:
        yield Finding(
            name="mode-not-taken-over",
            severity=Severity.RISKS,
            what=f"the settings say {seen.settings.mode}, and the controller is in mode {state.mode}",
            where=where,
            means="the controller that leads was started with other settings",
            fix=f"kubectl -n {seen.namespace} rollout restart deployment {CONTROLLER}",
        )
    if state.mode is Mode.OBSERVE:
        lasts = (
            f" for {duration((seen.now - state.since).total_seconds())}" if state.since is not None else ""
        )
        yield Finding(
            name="mode-observe",
            severity=Severity.ADVICE,
            what=f"the controller has been in mode observe{lasts}",
            where=where,
            means="Rekindle reports in Incidents what it would do, and changes no node and no job",
            fix=seen.upgrade("mode=recover"),
        )


def lowered(seen: Installation) -> Iterator[Finding]:
    """Reports modes of pools and namespaces that have no effect: nothing has the name, or the mode is not
    lower than the cluster's mode."""
    if seen.settings is None:
        return
    modes, label = seen.settings.modes, seen.settings.budgets.pool_label
    place = f"ConfigMap {seen.namespace}/{SETTINGS}"
    pools = {node.labels.get(label) for node in seen.nodes.values()}
    lost = [
        *(f"pool {name}" for name in modes.pools if Part.NODES not in seen.unread and name not in pools),
        *(
            f"namespace {name}"
            for name in modes.namespaces
            if Part.NAMESPACES not in seen.unread and name not in seen.namespaces
        ),
    ]
    if lost:
        yield Finding(
            name="mode-of-nothing",
            severity=Severity.RISKS,
            what=f"the settings name a mode for something that does not exist: {some(lost)}",
            where=Place(place, "modes", lost[0]),
            means="the mode has no effect; the cluster's mode applies",
            fix=f"kubectl get nodes -L {label}; kubectl get namespaces",
        )
    above = [
        (f"{what} {name}", mode)
        for what, modes_of in (("pool", modes.pools), ("namespace", modes.namespaces))
        for name, mode in modes_of.items()
        if mode > seen.settings.mode
    ]
    higher = [name for name, _ in above]
    if higher:
        yield Finding(
            name="mode-not-raised",
            severity=Severity.ADVICE,
            what=f"the settings name a mode above the cluster's mode for {some(higher)}",
            where=Place(place, "modes", higher[0]),
            means=f"the cluster's mode {seen.settings.mode} applies, because the mode of a pool or namespace "
            "can only be lower",
            fix=f"{seen.upgrade(f'mode={max((mode for _, mode in above))}')}  # and lower the mode of "
            "all others",
        )


def recipes(seen: Installation) -> Iterator[Finding]:
    """Reports recipes of people that are not used. A recipe that its owner switched off counts as
    accepted."""
    for group in grouped((one.message, one.seen.name) for one in seen.recipes if not one.accepted):
        names = group.names
        yield Finding(
            name="recipe-not-accepted",
            severity=Severity.RISKS,
            what=f"{counted(len(names), 'recipe is', 'recipes are')} not used: {some(names)}",
            where=Place(f"Recipe {names[0]}", f"status.conditions[{ACCEPTED}]", group.why),
            means="Rekindle does not recognise the issue",
            fix=f"kubectl describe recipe {names[0]}",
        )
