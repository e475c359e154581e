"""Tests a scan that does not answer: how long the recovery waits for it, and what the Recovery reports."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from recover.model import Container, PodPhase, Refusal, Waiting
from tests.acting import acts, look, only_recovery, scanned, step
from tests.builders import Worlds
from tests.facts import names
from tests.recover.recovery.phase_cases import choice
from tests.recover.recovery.scan_cases import change, choosing, why_unverified


def waits(world: Worlds, reason: str, message: str = "") -> None:
    change(world, node="n4", containers=(Container("scan", running=False, waiting=Waiting(reason, message)),))


def refused(world: Worlds, words: str, *, may_pass: bool = False) -> None:
    """Lets the API server refuse the scan pod with this message just now."""
    name = next(iter(world.scans))
    world.scans.clear()
    world.refused[f"pods/{name}"] = Refusal(world.now, words, may_pass)


@pytest.mark.parametrize(
    "words",
    [
        '403 Forbidden: pods "s" is forbidden: failed quota: q: must specify limits.cpu for: scan',
        '403 Forbidden: pods "s" is forbidden: violates PodSecurity "restricted": runAsNonRoot != true',
        '400 BadRequest: admission webhook "policy.example" denied the request: image is not signed',
    ],
)
def test_a_scan_that_admission_refuses_is_not_waited_for(words: str) -> None:
    world = choosing()
    refused(world, words)

    assert words in why_unverified(world)


def test_a_refused_creation_is_looked_at_at_once_though_no_object_changes() -> None:
    world = choosing()
    world.scans.clear()

    found = look(world)

    assert acts(found) == ["create-scan"]
    assert found.requeue_after_s == pytest.approx(0.1)


def test_a_quota_that_still_counts_the_old_pods_is_asked_again_for_five_seconds() -> None:
    words = '403 Forbidden: pods "s" is forbidden: exceeded quota: q, requested: pods=1, used: pods=9'
    world = choosing()
    refused(world, words)

    found = look(world)
    assert acts(found) == ["create-scan"]
    assert found.requeue_after_s == pytest.approx(1.0)
    assert words in why_unverified(world.later(5))


def test_what_was_refused_while_the_old_pods_ran_says_nothing_about_now() -> None:
    world = choosing()
    refused(world, "403 Forbidden: no")
    world.refused = {
        k: msgspec.structs.replace(r, at=r.at - timedelta(seconds=9)) for k, r in world.refused.items()
    }

    assert acts(look(world)) == ["create-scan"]


def test_a_webhook_that_does_not_answer_is_tried_until_the_deadline_and_named_then() -> None:
    world = choosing()
    words = "500 InternalError: failed calling webhook"
    refused(world, words, may_pass=True)

    assert acts(look(world)) == ["create-scan"]
    assert names(why_unverified(world.later(30)), 30, words)


@pytest.mark.parametrize("reason", ["InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError"])
def test_a_container_that_can_never_start_is_not_waited_for(reason: str) -> None:
    world = choosing()
    kubelets = 'couldn\'t parse image name "rekindle:::x"'
    waits(world, reason, kubelets)

    assert names(why_unverified(world), reason, kubelets)


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff", "CreateContainerError"])
def test_an_image_that_is_not_there_is_waited_for_five_seconds(reason: str) -> None:
    world = choosing()
    kubelets = "rpc error: not found"
    waits(world, reason, kubelets)

    assert acts(look(world)) == []
    assert names(why_unverified(world.later(5)), reason, kubelets)


def test_a_volume_that_is_still_attached_elsewhere_is_named_as_the_likely_cause() -> None:
    world = choosing()
    waits(world, "ContainerCreating")

    why = why_unverified(world.later(30))

    assert names(why, 30, "n4", "ReadWriteOnce")
    assert "kubectl events -n ml --for pod/" in why


def test_a_scan_without_a_place_is_told_in_the_schedulers_words() -> None:
    world = choosing()
    schedulers = "0/8 nodes are available: 8 node(s) had volume node affinity conflict."
    change(world, unschedulable=schedulers)

    assert names(why_unverified(world.later(30)), 30, schedulers)


def test_a_scan_that_reads_too_long_is_told_so() -> None:
    world = choosing()
    change(world, node="n4", phase=PodPhase.RUNNING, containers=(Container("scan", running=True),))

    why = why_unverified(world.later(30))
    assert names(why, 30, "n4")
    assert not names(why, "ReadWriteOnce"), "its volume was mounted"


@pytest.mark.parametrize(
    ("container", "failure", "why"),
    [
        (
            Container("scan", False, exit_code=137, reason="OOMKilled"),
            "",
            ["OOMKilled", "4Gi"],
        ),
        (
            Container("scan", False, exit_code=1, reason="Error"),
            "",
            [1],
        ),
        (Container("scan", False, exit_code=128, reason="StartError"), "", [128, "StartError"]),
        (None, "Evicted: The node was low on resource: memory.", ["Evicted", "memory"]),
        (None, "", []),
    ],
)
def test_a_scan_that_ends_without_a_word_is_told_by_how_it_ended(
    container: Container | None, failure: str, why: list[object]
) -> None:
    world = choosing()
    change(world, phase=PodPhase.FAILED, failure=failure, containers=(container,) if container else ())

    assert names(why_unverified(world), *why)


def test_what_the_scan_cost_is_a_figure_of_the_recovery_whether_it_answered_or_not() -> None:
    """A gang of 4 ranks with 8 GPUs each waited for 2 s."""
    answered, silent = choosing(), choosing()
    scanned(answered, choice(80))
    change(silent, phase=PodPhase.FAILED)

    for world in (answered, silent):
        step(world.later(2))
        found = only_recovery(world).status.checkpoint
        assert found is not None
        assert (found.scan_s, found.idle_gpu_s) == (2.0, 64.0)
