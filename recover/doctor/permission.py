"""Checks whether Rekindle may restart the job at all: consent, modes, holds, other owners. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from recover.checkpoints.annotation import ANNOTATION
from recover.doctor.case import Case, Finding, Part, Place, Severity
from recover.model import Gang
from recover.model.modes import Mode
from recover.model.pause import PAUSE
from recover.policy.commands import UNHOLD, promote, release
from recover.policy.consent import (
    AUTO_RECOVERY,
    ON_TERMINAL,
    OptIn,
    held,
    may_recreate,
    opt_in,
    within_mode,
    word_of,
)
from recover.policy.settings import Budgets
from recover.stories.annotations import misreadings_on_job
from recover.workloads.base import KUEUE_QUEUE

__all__ = [
    "NOT_OPTED_IN",
    "ended",
    "hold",
    "lowered",
    "misread",
    "misspelt",
    "mode",
    "namespace",
    "opted_in",
    "owner",
]

NOT_OPTED_IN = "not-opted-in"

_MEANS = {
    OptIn.OBSERVE: "Rekindle reports in an Incident what it would do, and does nothing",
    OptIn.DISABLED: "Rekindle reports the fault in an Incident, and does not restart the job",
}
_TOLD_ELSEWHERE = (f"annotation {AUTO_RECOVERY}:", f"label {AUTO_RECOVERY}:", f"annotation {ANNOTATION}:")


def opted_in(case: Case) -> Iterator[Finding]:
    word = opt_in(case.gang, case.namespace)
    if word is OptIn.ENABLED:
        return
    said = {"labels": case.gang.labels, "annotations": case.gang.annotations}
    own = {field: words[AUTO_RECOVERY] for field, words in said.items() if AUTO_RECOVERY in words}
    if not own:
        unknown = Part.NAMESPACE in case.unread
        cannot = (
            "the manifest does not show the namespace of the job, which"
            if case.is_file
            else "you have no permission to read its namespace, which"
        )
        yield Finding(
            name=NOT_OPTED_IN,
            severity=Severity.RISKS if unknown else Severity.FAILS,
            what="automatic recovery is not enabled for the job"
            + (f"; {cannot} may enable automatic recovery" if unknown else ", and not for its namespace")
            + _said_elsewhere(case),
            where=case.at(f"metadata.labels[{AUTO_RECOVERY}]"),
            means=f"unless the namespace enables automatic recovery: {_MEANS[word]}"
            if unknown
            else _MEANS[word],
            fix=case.misnamed(AUTO_RECOVERY)
            or (
                f"metadata.labels: {{{AUTO_RECOVERY}: enabled}}"
                if case.is_file
                else f"kubectl label {case.target} {AUTO_RECOVERY}=enabled"
            ),
        )
    for field, value in own.items():
        if value.strip().lower() != OptIn.ENABLED:
            verb = "label" if field == "labels" else "annotate"
            yield Finding(
                name=NOT_OPTED_IN,
                severity=Severity.FAILS,
                what=_asked(value, word),
                where=case.at(f"metadata.{field}[{AUTO_RECOVERY}]", value),
                means=_MEANS[word],
                fix=f"metadata.{field}: {{{AUTO_RECOVERY}: enabled}}"
                if case.is_file
                else f"kubectl {verb} {case.target} {AUTO_RECOVERY}=enabled --overwrite",
            )


def _said_elsewhere(case: Case) -> str:
    """Returns a note if the label or annotation is in a pod template, where it has no effect."""
    for field, template in case.templates:
        meta = template.metadata
        if AUTO_RECOVERY in meta.labels or AUTO_RECOVERY in meta.annotations:
            return f"; {AUTO_RECOVERY} in {field}.metadata does not enable the job"
    return ""


def _asked(value: str, word: OptIn) -> str:
    if value.strip().lower() in set(OptIn):
        return f"the job does not allow restarts: the value is {word}"
    return f"the value {value!r:.40} is none of {', '.join(OptIn)}; Rekindle treats it as {word}"


def mode(case: Case) -> Iterator[Finding]:
    paused = case.modes.paused if case.modes is not None else None
    if paused is not None:
        yield Finding(
            name="paused",
            severity=Severity.FAILS,
            what=paused.words(),
            where=Place(f"ConfigMap {case.mode_kept_in.partition('/')[0]}/{PAUSE}", "data", paused.reason),
            means="Rekindle restarts no job before the end of the pause. Then Rekindle restarts the job "
            "if the job is down",
            fix="rekindle resume",
        )
    if case.mode is Mode.OBSERVE:
        yield Finding(
            name="mode-observe",
            severity=Severity.FAILS,
            what="the controller is in mode observe",
            where=Place(f"ConfigMap {case.mode_kept_in}", "data.mode", case.mode),
            means=_MEANS[OptIn.OBSERVE],
            fix=promote(case.mode_kept_in.partition("/")[0]),
        )


def lowered(case: Case) -> Iterator[Finding]:
    """Reports a mode that the controller's settings lower; `namespace` reports the namespace's own
    annotation. A pool is known by the label of the default settings, and only for nodes on which the job
    runs."""
    if case.modes is None or case.mode is Mode.OBSERVE:
        return
    space, standing = case.gang.ref.namespace, case.modes.namespaces.get(case.gang.ref.namespace)
    by_people = case.namespace is not None and word_of(case.namespace) is Mode.OBSERVE
    if standing is not None and standing.mode is Mode.OBSERVE and not by_people:
        yield _by_settings(case, f"namespace {space}", f"namespaces.{space}")
    nodes = (case.nodes[pod.node] for pod in case.pods if pod.node in case.nodes)
    for pool in sorted({node.labels.get(Budgets().pool_label, "") for node in nodes}):
        if pool in case.modes.pools and case.modes.pools[pool].mode is Mode.OBSERVE:
            yield _by_settings(case, f"pool {pool}, where the job runs,", f"pools.{pool}")


def _by_settings(case: Case, what: str, field: str) -> Finding:
    return Finding(
        name="lowered-to-observe",
        severity=Severity.FAILS,
        what=f"the controller's settings put {what} into mode observe",
        where=Place(f"ConfigMap {case.mode_kept_in}", "data.modes", Mode.OBSERVE),
        means=_MEANS[OptIn.OBSERVE],
        fix=f"in the controller's settings: remove modes.{field}",
    )


def namespace(case: Case) -> Iterator[Finding]:
    space = case.namespace
    if space is None:
        return
    if within_mode(Mode.RECOVER, space) is Mode.OBSERVE:
        yield Finding(
            name="namespace-mode-observe",
            severity=Severity.FAILS,
            what="the namespace lowers the mode to observe",
            where=Place(f"Namespace {space.name}", "metadata.annotations[rekindle.dev/mode]", Mode.OBSERVE),
            means=_MEANS[OptIn.OBSERVE],
            fix=f"kubectl annotate namespace {space.name} rekindle.dev/mode-",
        )
    word = word_of(space)
    if word is not None and case.modes is not None and word > case.mode:
        yield Finding(
            name="namespace-mode-higher",
            severity=Severity.RISKS,
            what=f"the namespace sets a higher mode than the cluster's mode {case.mode}",
            where=Place(f"Namespace {space.name}", "metadata.annotations[rekindle.dev/mode]", word),
            means=f"mode {case.mode} applies: a namespace can lower the mode, and cannot raise it",
            fix=f"kubectl annotate namespace {space.name} rekindle.dev/mode-",
        )
    found = held(space.annotations, case.now)
    if found is not None:
        yield Finding(
            name="namespace-held",
            severity=Severity.FAILS,
            what="the namespace has a hold",
            where=Place(
                f"Namespace {space.name}",
                f"metadata.annotations[{found.annotation}]",
                space.annotations[found.annotation],
            ),
            means="Rekindle does not act on the jobs of the namespace until the hold ends",
            fix=f"kubectl annotate namespace {space.name} {UNHOLD}",
        )


def hold(case: Case) -> Iterator[Finding]:
    found = held(case.gang.annotations, case.now)
    if found is None:
        return
    end = f"until {found.until:%Y-%m-%d %H:%M} UTC" if found.until is not None else "without an end"
    yield Finding(
        name="held",
        severity=Severity.FAILS,
        what=f"the job has a hold {end}" + (f" ({found.reason})" if found.reason else ""),
        where=case.at(f"metadata.annotations[{found.annotation}]", case.gang.annotations[found.annotation]),
        means="Rekindle does not act on the job until the hold ends",
        fix="remove the annotations rekindle.dev/hold and rekindle.dev/hold-until"
        if case.is_file
        else release(case.gang.ref),
    )


def misread(case: Case) -> Iterator[Finding]:
    """Reports labels and annotations without the wanted effect. Consent and the folder of the checkpoints
    have their own checks."""
    for one in misreadings_on_job(case.gang, case.namespace):
        if not one.text.startswith(_TOLD_ELSEWHERE):
            yield Finding(
                name="misread",
                severity=Severity.RISKS,
                what=one.text,
                where=case.at("metadata"),
                means=one.means,
                fix=one.fix,
            )
    for name, misplaced in case.misplaced.items():
        yield Finding(
            name="misread",
            severity=Severity.RISKS,
            what=f"annotation {name}: Rekindle reads this annotation on the job, and not on a pod template",
            where=case.at(f"{misplaced.field}.metadata", name),
            means="the annotation has no effect",
            fix=misplaced.fix,
        )


def misspelt(case: Case) -> Iterator[Finding]:
    """Reports misspelt fields. The API server drops a field that it does not know, or refuses the object."""
    for field, meant in case.misspelt.items():
        yield Finding(
            name="misspelt-field",
            severity=Severity.FAILS,
            what=f"Kubernetes knows no field {field}; did you mean {meant}?",
            where=case.at(field),
            means="the API server refuses the job, or ignores the field and all that it contains",
            fix=f"rename {field} to {meant}",
        )


def owner(case: Case) -> Iterator[Finding]:
    gang = case.gang
    if gang.unsupported:
        yield Finding(
            name="unsupported",
            severity=Severity.FAILS,
            what=f"Rekindle does not restart this {gang.ref.kind}: {gang.unsupported}",
            where=case.at("spec"),
            means="Rekindle does not act on the job",
            fix="spec.completions: the same number as spec.parallelism, if the pods are one training",
        )
    if gang.foreign_owner:
        yield Finding(
            name="foreign-owner",
            severity=Severity.FAILS,
            what=f"{gang.foreign_owner} decides when the job runs",
            where=case.at("metadata"),
            means="that controller would undo a stop at once, so Rekindle does not act on the job",
            fix=f"{_without(gang)}; or leave the job to that controller: then Rekindle does not restart it",
        )


def _without(gang: Gang) -> str:
    """Returns how the job gets rid of the other controller."""
    for form, said in (("label", gang.labels), ("annotation", gang.annotations)):
        if KUEUE_QUEUE in said:
            return f"remove the {form} {KUEUE_QUEUE} from the job"
    if gang.foreign_owner.startswith("controller "):
        return "remove managedBy from the job's spec"
    return f"remove {gang.foreign_owner} from metadata.ownerReferences of the job"


def ended(case: Case) -> Iterator[Finding]:
    terminal = case.gang.terminal
    if terminal is None or terminal.succeeded or may_recreate(case.gang.annotations):
        return
    yield Finding(
        name="failed-for-good",
        severity=Severity.FAILS,
        what="the framework's controller has marked the job as failed, and this is final "
        f"({terminal.reason or 'no reason given'})",
        where=case.at("status.conditions", terminal.message),
        means="Rekindle does not start the job again",
        fix=f"create the job again; with the annotation {ON_TERMINAL}: recreate, Rekindle does that for you",
    )
