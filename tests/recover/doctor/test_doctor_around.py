"""Tests the doctor's checks of the objects around a job in its cluster, and of its pods."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml

from detectors.wire.contract import CoverageState, Source
from recover.doctor.case import Part, Severity
from recover.doctor.report import examined
from recover.model import NamespaceView, Terminal
from recover.model.modes import Mode, Modes, Standing, begun
from recover.model.pause import Pause
from recover.policy.settings import Budgets
from recover.stories.words import SOURCES
from tests.facts import names
from tests.recover.doctor.doctor_cases import (
    LABEL,
    LEAVES,
    case,
    found,
    in_cluster,
    of_container,
    pod,
    spec,
)
from tests.recover.stories.why_cases import NOW, health, node

ACTING = begun(Mode.RECOVER, NOW)
IN_POOL = msgspec.structs.replace(node("node-3"), labels={Budgets().pool_label: "h200"})
NO_ENV_FROM = of_container("job", "envFrom", None)


def test_a_job_with_a_generated_name_is_told_to_have_one() -> None:
    job = case("job", (("metadata", "name"), None), (("metadata", "generateName"), "llm-"))

    assert examined(job).called == "Job team/llm-"
    assert found(job)["environment-not-read"].fix.startswith("metadata.name: NAME")


@pytest.mark.parametrize(
    ("around", "name", "severity", "object_"),
    [
        ({"mode": Mode.OBSERVE}, "mode-observe", "fails", "ConfigMap rekindle-system/rekindle-state"),
        (
            {"modes": Modes(ACTING, paused=Pause(since=NOW, reason="new switches"))},
            "paused",
            "fails",
            "ConfigMap rekindle-system/rekindle-pause",
        ),
        (
            {"namespace": NamespaceView("team", {}, {"rekindle.dev/mode": "observe"})},
            "namespace-mode-observe",
            "fails",
            "Namespace team",
        ),
        (
            {
                "modes": Modes(ACTING),
                "namespace": NamespaceView("team", {}, {"rekindle.dev/mode": "repair"}),
            },
            "namespace-mode-higher",
            "risks",
            "Namespace team",
        ),
        (
            {"modes": Modes(ACTING, namespaces={"team": Standing(Mode.OBSERVE)})},
            "lowered-to-observe",
            "fails",
            "ConfigMap rekindle-system/rekindle-state",
        ),
        (
            {"modes": Modes(ACTING, pools={"h200": Standing(Mode.OBSERVE)}), "nodes": {"node-3": IN_POOL}},
            "lowered-to-observe",
            "fails",
            "ConfigMap rekindle-system/rekindle-state",
        ),
        (
            {"namespace": NamespaceView("team", {}, {"rekindle.dev/hold": "yes"})},
            "namespace-held",
            "fails",
            "Namespace team",
        ),
        (
            {"namespace": NamespaceView("team", {}, {"rekindle.dev/auto-recover": "enabled"})},
            "misread",
            "risks",
            "PyTorchJob team/llm",
        ),
        ({"access_modes": None}, "claim-missing", "fails", "PersistentVolumeClaim team/ckpt"),
        (
            {"access_modes": ("ReadWriteOnce",)},
            "claim-of-one-node",
            "risks",
            "PersistentVolumeClaim team/ckpt",
        ),
        (
            {"access_modes": ("ReadWriteOncePod",)},
            "claim-of-one-pod",
            "fails",
            "PersistentVolumeClaim team/ckpt",
        ),
        ({"health": {}}, "no-agent", "risks", "NodeHealth node-3"),
    ],
)
def test_what_stands_around_the_job_is_looked_at(
    around: dict[str, Any], name: str, severity: str, object_: str
) -> None:
    finding = found(in_cluster("pytorchjob", **around))[name]

    assert (finding.severity, finding.where.object) == (severity, object_)


@pytest.mark.parametrize("name", ["rekindle.dev/hold", "rekindle.dev/hold-until"])
def test_the_annotation_that_holds_the_namespace_is_named(name: str) -> None:
    space = NamespaceView("team", {}, {name: "2035-01-01T00:00:00Z"})

    where = found(in_cluster("job", namespace=space))["namespace-held"].where

    assert (where.field, where.value) == (f"metadata.annotations[{name}]", space.annotations[name])


def test_an_unknown_consent_of_the_namespace_is_not_called_without_effect() -> None:
    space = NamespaceView("team", {}, {"rekindle.dev/auto-recovery": "yes"})

    finding = found(in_cluster("job", namespace=space))["misread"]

    assert names(finding.means, "observe")


def test_a_job_that_its_framework_has_failed_is_told_unless_it_may_be_made_anew() -> None:
    job = in_cluster("pytorchjob")
    failed = msgspec.structs.replace(job.gang, terminal=Terminal(False, "BackoffLimitExceeded"))

    assert "failed-for-good" in found(msgspec.structs.replace(job, gang=failed))
    completed = msgspec.structs.replace(job.gang, terminal=Terminal(True))
    assert "failed-for-good" not in found(msgspec.structs.replace(job, gang=completed))


def test_a_job_that_says_nothing_is_restarted_where_its_namespace_says_so() -> None:
    consenting = NamespaceView("team", {"rekindle.dev/auto-recovery": "enabled"})

    assert found(in_cluster("job", (LABEL, None), namespace=consenting)) == {}
    assert found(in_cluster("job", (LABEL, None)))["not-opted-in"].severity is Severity.FAILS


def test_failed_pods_that_a_job_has_counted_use_up_its_retries() -> None:
    job = in_cluster("job", LEAVES, spec("backoffLimit", value=3))

    spent = msgspec.structs.replace(job, gang=msgspec.structs.replace(job.gang, failures=3))

    assert "retries-counted" in found(job)
    assert names(found(spent)["no-retry"].what, 3)


def test_pods_that_read_the_environment_beat_what_the_template_says() -> None:
    names = ("llm-rekindle-job", "llm-rekindle", "llm-rekindle-job", "llm-rekindle-job")
    reading = tuple(pod(number, environments=(name,)) for number, name in enumerate(names))

    assert found(in_cluster("job", NO_ENV_FROM, pods=reading)) == {}
    assert "environment-not-read" in found(in_cluster("job", NO_ENV_FROM, pods=(*reading, pod(5))))


def test_the_policy_gives_pods_the_environment_where_their_template_or_namespace_consents() -> None:
    """The policy does not see the Job's own label: another policy copies the label to the template, as an
    annotation."""
    waiting: dict[str, Any] = {"pods": (), "adds_environment": True, "unread": {Part.RUNNING: "none runs"}}
    template = ("spec", "template", "metadata")
    word = {"rekindle.dev/auto-recovery": "enabled"}

    assert found(in_cluster("job", NO_ENV_FROM, (template, {"annotations": word}), **waiting)) == {}
    assert found(in_cluster("job", NO_ENV_FROM, namespace=NamespaceView("team", word), **waiting)) == {}
    assert "environment-not-read" in found(in_cluster("job", NO_ENV_FROM, **waiting))


def test_a_source_that_an_agent_cannot_read_is_told_with_its_reason() -> None:
    blind = health(nvml=CoverageState.BLIND)

    finding = found(in_cluster("pytorchjob", health={"node-3": blind}))["blind"]

    assert names(finding.what, SOURCES[Source.NVML], 1, "node-3")
    (nvml,) = (row for row in blind.status.coverage if row.source is Source.NVML)
    assert finding.where.value == nvml.why


def test_a_source_that_250_agents_cannot_read_is_one_finding() -> None:
    on = [f"n{number}" for number in range(250)]
    pods = tuple(pod(number, node=name) for number, name in enumerate(on))
    blind = {name: health(name=name, nvml=CoverageState.BLIND) for name in on}

    findings = examined(in_cluster("pytorchjob", pods=pods, health=blind)).findings

    (finding,) = (one for one in findings if one.name == "blind")
    assert names(finding.what, SOURCES[Source.NVML], 250, "n0", "n1", "n10", "n100", 246)
    assert finding.fix == "rekindle doctor  # names the setting by which the agents read the source"


def test_nodes_without_an_agent_are_counted() -> None:
    pods = tuple(pod(number, node=f"n{number}") for number in range(20))

    finding = found(in_cluster("pytorchjob", pods=pods, health={}))["no-agent"]

    assert names(finding.what, 20, "n0", "n1", "n10", "n11", 16)


def test_a_running_job_without_a_step_is_told_which_annotation_helps() -> None:
    finding = found(in_cluster("pytorchjob", health={"node-3": health()}))["no-steps"]

    assert names(finding.what, 4, "20 min")
    assert finding.fix.startswith(
        "kubectl annotate pytorchjob -n team llm 'rekindle.dev/step-template=step {step}/' --overwrite"
    )


def test_a_line_to_write_is_yaml_as_it_stands() -> None:
    line = case("job").set_annotation("rekindle.dev/step-template", "step {step}/")

    field, _, value = line.partition(": ")
    assert field == "metadata.annotations"
    assert yaml.safe_load(value) == {"rekindle.dev/step-template": "step {step}/"}


def test_steps_of_another_job_on_the_same_node_are_not_its_own() -> None:
    others = tuple(pod(number, uid=f"other-{number}") for number in range(4))

    assert "no-steps" in found(in_cluster("pytorchjob", pods=others))


def test_a_single_rank_has_its_claim_to_itself() -> None:
    alone = spec("pytorchReplicaSpecs", "Worker", "replicas", value=1)

    assert found(in_cluster("pytorchjob", alone, access_modes=("ReadWriteOncePod",))) == {}
