"""Tests the checks of an installation that concern the release: controller, lease, settings, modes,
recipes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from recover.api.recipe import RecipeStatus
from recover.doctor.installation.installed import State
from recover.model.judged_recipes import JudgedRecipe, RecipeReason, SeenRecipe
from recover.model.modes import Mode
from recover.policy.settings import LowerModes, Settings
from tests.facts import names
from tests.recover.doctor.installation.cases import (
    NOW,
    agent,
    changed,
    controller,
    deployment,
    found,
    lease,
    node,
    only,
)


def test_without_a_controller_the_release_is_to_be_upgraded() -> None:
    finding = only(changed(controller=None))

    assert finding.name == "no-controller"
    assert finding.fix == (
        "helm upgrade rekindle charts/rekindle -n rekindle-system --reuse-values "
        "--set controller.enabled=true"
    )


def test_a_release_of_another_version_than_this_command_is_told() -> None:
    finding = only(changed(version="0.2.0"))

    assert (finding.name, finding.severity) == ("command-of-another-version", "advice")
    assert names(finding.what, "0.2.0", "0.1.0")


def test_a_controller_that_is_not_ready_is_told_with_the_reason_of_its_pod() -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "not found"}
    lame = controller("c2", phase="Pending", containerStatuses=[{"state": {"waiting": waiting}}])
    seen = changed(controller=deployment(ready=1))

    finding = only(msgspec.structs.replace(seen, pods=(controller("c1"), lame, agent("n1"), agent("n2"))))

    assert (finding.name, finding.severity) == ("controller-not-ready", "risks")
    assert names(finding.what, 1, 2, "ImagePullBackOff", "not found")


def test_pods_that_are_refused_are_told_with_what_the_deployment_says() -> None:
    why = "exceeded quota: pods"
    refused = deployment(ready=0, message=why)
    seen = changed(controller=refused, pods=(agent("n1"), agent("n2")))

    finding = found(seen)[0]

    assert finding.name == "controller-not-ready"
    assert names(finding.what, 0, 2, why)


@pytest.mark.parametrize(
    ("held", "name"),
    [
        (None, "nobody-leads"),
        (lease("", None), "nobody-leads"),
        (lease("c1", NOW - timedelta(seconds=16)), "nobody-leads"),
        (lease("laptop", NOW), "leader-is-no-pod"),
    ],
    ids=["no lease", "released", "run out", "from elsewhere"],
)
def test_a_lease_that_no_pod_of_the_release_renews(held: Any, name: str) -> None:
    assert only(changed(lease=held)).name == name


def test_a_lease_is_as_old_as_the_api_server_says() -> None:
    behind = lease("c1", NOW - timedelta(minutes=5), by_server=NOW - timedelta(seconds=1))

    assert found(changed(lease=behind)) == []


def test_settings_that_the_controller_refuses_are_told_in_its_words() -> None:
    problem = "controller.toml: field mode: value 'on'"

    finding = only(changed(settings=None, settings_problem=problem))

    assert (finding.name, finding.what) == ("settings-refused", problem)


def test_a_mode_that_is_not_taken_over_and_one_that_only_observes() -> None:
    first, second = found(changed(state=State(Mode.OBSERVE, NOW - timedelta(hours=5))))

    assert first.name == "mode-not-taken-over"
    assert names(first.what, Mode.RECOVER, Mode.OBSERVE)
    assert (second.name, second.severity) == ("mode-observe", "advice")
    assert names(second.what, Mode.OBSERVE, "5 h")


def test_modes_of_pools_and_namespaces_that_nothing_bears_or_that_are_no_lower() -> None:
    pool_label = Settings().budgets.pool_label
    modes = LowerModes(pools={"a100": Mode.OBSERVE, "h200": Mode.OBSERVE}, namespaces={"gone": Mode.REPAIR})
    seen = changed(settings=Settings(mode=Mode.RECOVER, modes=modes))
    nodes = {"n1": node("n1", {pool_label: "a100"}), "n2": node("n2")}

    lost, higher = found(msgspec.structs.replace(seen, nodes=nodes))

    assert (lost.name, higher.name) == ("mode-of-nothing", "mode-not-raised")
    assert names(lost.what, "pool h200", "namespace gone")
    assert not names(lost.what, "a100")
    assert names(higher.what, "namespace gone")
    assert not names(higher.what, "h200")
    assert names(higher.fix, "mode=repair")


def test_recipes_that_are_not_used_are_told_by_their_reason() -> None:
    judged = tuple(
        JudgedRecipe(
            seen=SeenRecipe(
                name=f"r{number}",
                uid="",
                version="",
                generation=1,
                created=None,
                recipe=None,
                problems=(),
                status=RecipeStatus(),
            ),
            accepted=number == 3,
            reason=RecipeReason.USED if number == 3 else RecipeReason.TOO_MANY,
            message=f"there is no room for r{number}",
        )
        for number in (1, 2, 3)
    )

    finding = only(changed(recipes=judged))

    assert finding.name == "recipe-not-accepted"
    assert names(finding.what, 2, "r1", "r2")
