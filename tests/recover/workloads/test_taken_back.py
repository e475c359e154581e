"""A recovery removes the variables that it gave to the ranks, however the recovery ends, and no other job
receives them."""

from __future__ import annotations

import msgspec
import pytest

from recover.api import GangRef, Phase
from recover.api.reasons import Reason
from recover.model import Mark, Refusal, Template
from recover.model.actions import ConfirmGone, Ensure, Plan
from recover.recovery.advance import advance
from recover.workloads.patches import environment_of, old_environment_of
from tests.acting import acts, advanced, apply, end_pods, look, only_recovery, scanned, start_pods, step
from tests.builders import Worlds
from tests.recover.recovery.phase_cases import choice, faulted, resumed


def handed(found: Plan) -> dict[str, dict[str, str | None]]:
    return {a.name: a.body["data"] for a in found.actions if isinstance(a, Ensure)}


def test_a_recovery_that_ends_without_steps_takes_its_checkpoint_back() -> None:
    world = faulted(checkpoint="/ckpt")
    told: list[dict[str, str | None]] = []
    for _ in range(200):
        recovery = only_recovery(world)
        if not recovery.active:
            break
        if recovery.status.phase is Phase.CHOOSING and world.scans:
            scanned(world, choice(80 + 10 * recovery.status.attempt))
        if recovery.status.phase is Phase.VERIFYING:
            world.later(world.settings.timing.verify_deadline_s + 1)
        found = look(world)
        told += [a.body["data"] for a in found.actions if isinstance(a, Ensure)]
        apply(world, found)
        if "stop-gang" in acts(found):
            end_pods(world)
        if "start-gang" in acts(found):
            start_pods(world.later(2))
    status = only_recovery(world).status
    assert (status.phase, status.reason) == (Phase.ESCALATED, Reason.NO_STEPS)
    assert told[-1]["REKINDLE_RESUME_FROM"] is None


def suspended(world: Worlds) -> None:
    world.change_gang(suspended=True, suspend_writer="kubectl-edit")


def deleted(world: Worlds) -> None:
    world.gangs.clear()


def no_longer_wanted(world: Worlds) -> None:
    """Begins a second attempt, as for a fresh fault, and removes the consent: the next stop is cancelled."""
    recovery = only_recovery(world)
    status = msgspec.structs.replace(recovery.status, phase=Phase.STOPPING, attempt=2)
    (key,) = world.recoveries
    world.recoveries[key] = msgspec.structs.replace(recovery, status=status)
    world.change_gang(labels={})


@pytest.mark.parametrize("ends", [suspended, deleted, no_longer_wanted])
def test_however_a_recovery_leaves_its_active_phases_the_checkpoint_goes_first(ends: object) -> None:
    world = resumed()
    assert callable(ends)
    ends(world)

    found = look(world)

    nothing = {"REKINDLE_RESUME_FROM": None, "REKINDLE_RESUME_STEP": None}
    assert handed(found) == {"llm-rekindle-pytorchjob": nothing, "llm-rekindle": nothing}
    written = [action for action in found.actions if not isinstance(action, ConfirmGone)]
    assert isinstance(written[0], Ensure)
    apply(world, found)
    assert not only_recovery(world).active


def test_a_config_map_that_cannot_be_changed_does_not_keep_the_recovery_from_ending() -> None:
    world = resumed()
    suspended(world)
    world.refused["configmaps/ml/llm-rekindle-pytorchjob"] = Refusal(
        at=world.now, words="immutable", may_pass=False
    )

    assert step(world) == ["recovery-escalated"]


def refused(world: Worlds, *, may_pass: bool) -> None:
    world.refused["configmaps/ml/llm-rekindle-pytorchjob"] = Refusal(
        at=world.now, words="the webhook of the policy engine did not answer", may_pass=may_pass
    )


@pytest.mark.parametrize(("may_pass", "pause_s"), [(True, 10), (False, 600)])
def test_a_checkpoint_that_could_not_be_taken_back_at_the_end_is_taken_back_later(
    *, may_pass: bool, pause_s: int
) -> None:
    """Otherwise a container that restarts in place weeks later resumes from that checkpoint."""
    world = resumed()
    suspended(world)
    refused(world, may_pass=may_pass)
    assert step(world) == ["recovery-escalated"]

    early = look(world.later(pause_s - 1))
    assert (handed(early), early.requeue_after_s) == ({}, 1)
    late = look(world.later(1))
    assert handed(late) == {
        "llm-rekindle-pytorchjob": {"REKINDLE_RESUME_FROM": None, "REKINDLE_RESUME_STEP": None}
    }

    world.refused.clear()
    assert handed(look(world)) == {}


def test_a_refused_checkpoint_of_an_earlier_recovery_is_left_to_the_next_one() -> None:
    world = resumed()
    suspended(world)
    refused(world, may_pass=True)
    step(world)
    ended = only_recovery(world)
    spec = msgspec.structs.replace(ended.spec, number=ended.spec.number + 1)
    meta = msgspec.structs.replace(ended.metadata, name="next", uid="next-uid")
    world.recoveries["ml/next"] = msgspec.structs.replace(ended, metadata=meta, spec=spec)

    found = advance(ended, world.later(60).world(), world.settings, world.now)

    assert handed(found) == {}


def test_nothing_is_taken_back_that_was_never_handed_over() -> None:
    world = faulted()
    advanced(world, Phase.STOPPING)
    world.change_gang(labels={})

    assert handed(look(world)) == {}


def test_jobs_of_several_kinds_and_one_name_do_not_share_what_their_ranks_read() -> None:
    one = GangRef(api_version="batch/v1", kind="Job", namespace="ml", name="llm", uid="a")
    two = GangRef(api_version="kubeflow.org/v1", kind="PyTorchJob", namespace="ml", name="llm", uid="b")
    long = [msgspec.structs.replace(ref, name="a" * 253) for ref in (one, two)]

    assert (environment_of(one), environment_of(two)) == ("llm-rekindle-job", "llm-rekindle-pytorchjob")
    assert len({environment_of(ref) for ref in long}) == 2
    assert max(len(environment_of(ref)) for ref in long) <= 253


def old_template(world: Worlds) -> Worlds:
    source = {"configMapRef": {"name": old_environment_of(world.gangs["llm-uid"].ref)}}
    templates = {"Worker": Template(containers=({"name": "train", "envFrom": [source]},))}
    return world.change_gang(templates=templates)


def test_a_job_whose_template_reads_the_old_name_is_served_under_both() -> None:
    world = old_template(faulted())
    advanced(world, Phase.RESUMING)

    assert set(handed(look(world))) == {"llm-rekindle-pytorchjob", "llm-rekindle"}


def test_an_old_name_that_two_jobs_could_read_is_served_to_none() -> None:
    world = old_template(faulted())
    other = world.gangs["llm-uid"]
    ref = msgspec.structs.replace(other.ref, kind="Job", api_version="batch/v1", uid="b")
    world.gangs["b"] = msgspec.structs.replace(other, ref=ref)
    advanced(world, Phase.RESUMING)

    assert set(handed(look(world))) == {"llm-rekindle-pytorchjob"}


# --- changes in the job -----------------------------------------------------------------------------------


def test_what_an_ended_recovery_has_left_in_its_job_is_lifted_whenever_it_ended() -> None:
    world = resumed()
    recovery = only_recovery(world)
    mark = Mark(recovery=recovery.metadata.name, attempt=1, did="resumed", avoided=("n1",), suspected=("n2",))
    world.change_gang(mark=mark)
    suspended(world)
    step(world)

    (patch,) = look(world.later(86_400)).actions
    assert "avoided" not in str(patch)
    assert step(world) == ["lift-start"]
    assert world.gangs["llm-uid"].mark is None
    assert step(world) == []


def test_what_an_earlier_version_has_left_under_the_old_name_is_taken_back_with_its_mark() -> None:
    """That version never removed its checkpoint: a container that restarts in place would resume from it."""
    world = resumed()
    recovery = only_recovery(world)
    suspended(world)
    step(world)
    world.change_gang(suspended=False, mark=Mark(recovery=recovery.metadata.name, attempt=1, did="resumed"))
    for uid, pod in world.pods["llm-uid"].items():
        world.pods["llm-uid"][uid] = msgspec.structs.replace(pod, environments=("llm-rekindle",))

    taken = handed(look(world))["llm-rekindle"]
    assert taken == {"REKINDLE_RESUME_FROM": None, "REKINDLE_RESUME_STEP": None}
    assert step(world) == ["lift-start"]
    assert look(world).actions == ()


def test_what_a_later_recovery_has_put_there_is_not_touched() -> None:
    world = resumed()
    suspended(world)
    step(world)
    world.change_gang(mark=Mark(recovery="another", attempt=1, did="resumed", avoided=("n1",)))

    assert acts(look(world)) == []
