"""Complete checkpoints in a container's log: which lines the agent believes, and when it publishes them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from detectors.folds.core import AgentCore, Dirty
from detectors.folds.pods import PodFold
from detectors.rules.facts import PodRef
from detectors.service.settings import AgentSettings
from detectors.wire.contract import NodeHealthSpec, NodeHealthStatus
from detectors.wire.training import Edge, LastSave, PodProgress, PodSettings
from tests.detectors.folds.folding import REF, at, pod

HF = "Saving model checkpoint to out/checkpoint-{n}"
MEGATRON = "  successfully saved checkpoint from iteration     {n} to /ckpt"
OTHER = PodRef("train", "llm-1", "uid-1", "main", 0)


def steps(fold: PodFold, *numbers: int, since_s: float = 0.0) -> None:
    for number in numbers:
        fold.line(f"step {number}/900 loss 0.3", at(since_s + number))


def told(fold: PodFold) -> PodProgress:
    published = fold.published()
    assert published is not None
    return published


def saved(fold: PodFold) -> tuple[int | None, float | None]:
    """Returns the step of the last complete checkpoint, and the second of its line."""
    last = told(fold).last_save
    return (last.step, (last.at - at(0)).total_seconds()) if last is not None else (None, None)


def test_a_save_for_which_the_training_stands_still_is_complete_with_the_next_step() -> None:
    fold = pod()
    steps(fold, 1, 2)

    fold.line(HF.format(n=2), at(2.5))
    assert saved(fold) == (None, None)
    steps(fold, 3)

    assert saved(fold) == (2, 3)


def test_a_line_that_says_that_all_is_written_needs_no_step() -> None:
    fold = pod()
    steps(fold, 1, 2)

    fold.line(MEGATRON.format(n=2), at(9))

    assert saved(fold) == (2, 9)


@pytest.mark.parametrize(
    "line",
    [
        "saving checkpoint at iteration       2 to /ckpt in torch_dist format",
        "Saving the checkpoint (or staging if async is enabled).",
        "Finished saving the checkpoint (or staging if async is enabled)in 5.53 seconds.",
        "Scheduled async checkpoint save for /ckpt/step=2.ckpt",
        "[2026-11-21 09:30:00,123] [    INFO] - Saving model checkpoint to out/checkpoint-2",
        "Saved checkpoint c/checkpoint_1_2.pt (epoch 1 @ 2 updates, score None) (writing took 9.1 seconds)",
        "Saving checkpoint at step 2 to gs://ckpt/step-2",
        "saved a checkpoint at step 2",
        "Saving model checkpoint: /ckpt/global_step2/mp_rank_00_model_states.pt",
    ],
)
def test_a_save_that_may_go_on_in_the_background_is_not_known_to_be_complete(line: str) -> None:
    fold = pod()
    steps(fold, 1, 2)
    fold.line(line, at(2.5))

    steps(fold, 3, 4, 5, 6)

    assert saved(fold) == (None, None)


def test_steps_that_a_buffer_held_back_do_not_complete_a_save() -> None:
    """The logger writes at once, and print writes once its buffer is full."""
    fold = pod()
    steps(fold, 1, 2)
    fold.line(HF.format(n=5), at(5.5))

    steps(fold, 3, 4, 5, since_s=3)
    assert saved(fold) == (None, None)
    steps(fold, 6, since_s=3)

    assert saved(fold) == (5, 9)


def test_a_bar_in_the_line_of_the_save_does_not_complete_it() -> None:
    fold = pod()
    for n in range(8, 11):
        fold.line(
            f"  Total optimization steps = 1,856\r  1%|1   | {n}/1856 [04:16<13:02:24, 25.43s/it]", at(n)
        )

    fold.line(f"\r  1%|1    | 11/1856 [04:16<13:02:24, 25.43s/it]{HF.format(n=11)}", at(11))
    assert saved(fold) == (None, None)
    fold.line("\r  1%|1    | 12/1856 [04:40<13:02:24, 25.43s/it]", at(12))

    assert saved(fold) == (11, 12)


def test_a_save_in_which_the_training_broke_off_is_not_complete_when_it_begins_again() -> None:
    fold = pod()
    steps(fold, 1, 2, 3, 4, 5, 6)
    fold.line("[Torch] Saving /ckpt/model.pt...", at(6.5))

    steps(fold, 3, 4, 5, 6, 7, since_s=10)

    assert saved(fold) == (None, None)


def test_a_rank_that_prints_no_step_tells_of_its_checkpoints() -> None:
    """Megatron-LM prints steps on the last rank, and checkpoints on the first rank."""
    fold = pod()

    fold.line(MEGATRON.format(n=500), at(9))

    assert told(fold).edge is Edge.STARTED
    assert saved(fold) == (500, 9)


# --- what is published, and when --------------------------------------------------------------------------


def core(*lines: str) -> AgentCore:
    made = AgentCore(AgentSettings(), boot_id="boot-1")
    made.log_line(REF, "step 1/900 loss 0.3", at(1))
    made.log_line(REF, "step 2/900 loss 0.3", at(2))
    for line in lines:
        made.log_line(REF, line, at(3))
    return made


def asks(wait: str) -> NodeHealthSpec:
    return NodeHealthSpec(pods=[PodSettings(uid="uid-0", awaits_save=wait)])


def last(agent: AgentCore) -> LastSave:
    (only,) = agent.status(at(100)).pods
    assert only.last_save is not None
    return only.last_save


def test_the_first_checkpoint_of_a_container_is_told_within_the_coarse_refresh_and_later_ones_are_not() -> (
    None
):
    agent = core()
    agent.mark_written()

    agent.log_line(REF, MEGATRON.format(n=2), at(3))
    agent.tick(at(4))
    assert agent.dirty is Dirty.COARSE
    agent.mark_written()
    agent.log_line(REF, MEGATRON.format(n=3), at(5))
    agent.tick(at(6))

    assert agent.dirty is Dirty.NOTHING
    assert last(agent).step == 3


def test_a_checkpoint_that_the_controller_waits_for_is_told_at_once_and_once() -> None:
    agent = core(MEGATRON.format(n=2))
    agent.spec(asks("wait-1"))
    agent.tick(at(10))
    agent.mark_written()

    agent.log_line(REF, MEGATRON.format(n=3), at(20))
    assert agent.dirty is Dirty.EDGE
    assert last(agent).served == "wait-1"
    agent.mark_written()
    for n in range(4, 9):
        agent.log_line(REF, MEGATRON.format(n=n), at(20 + n))
        agent.tick(at(20.5 + n))

    assert agent.dirty is Dirty.NOTHING


def test_a_checkpoint_of_before_the_wait_does_not_answer_it_however_late_it_is_read() -> None:
    agent = core(MEGATRON.format(n=2))

    agent.spec(asks("wait-1"))
    agent.tick(at(10))
    agent.log_line(REF, MEGATRON.format(n=3), at(9))

    assert last(agent).served == ""


def test_another_wait_needs_another_checkpoint() -> None:
    agent = core(MEGATRON.format(n=2))
    agent.spec(asks("wait-1"))
    agent.tick(at(10))
    agent.log_line(REF, MEGATRON.format(n=3), at(20))

    agent.spec(asks("wait-2"))
    agent.tick(at(30))
    assert last(agent).served == "wait-1"
    agent.log_line(REF, MEGATRON.format(n=4), at(40))

    assert last(agent).served == "wait-2"


def test_a_wait_that_is_over_makes_no_write() -> None:
    agent = core(MEGATRON.format(n=2))
    agent.spec(asks("wait-1"))
    agent.tick(at(10))
    agent.spec(NodeHealthSpec())
    agent.mark_written()

    agent.log_line(REF, MEGATRON.format(n=3), at(20))

    assert agent.dirty is Dirty.NOTHING


def test_an_agent_that_starts_again_takes_no_old_checkpoint_for_the_awaited_one() -> None:
    """The agent reads the log from its start, and gets the request to wait before that."""
    stored: NodeHealthStatus = core(MEGATRON.format(n=2)).status(at(5))
    agent = AgentCore(AgentSettings(), boot_id="boot-1")
    agent.restore(stored)
    agent.spec(asks("wait-1"))
    for n, line in enumerate(("step 1/900 loss 0.3", "step 2/900 loss 0.3", MEGATRON.format(n=2)), start=1):
        agent.log_line(REF, line, at(n))
    agent.log_line(REF, MEGATRON.format(n=50), at(50))
    agent.tick(at(60))
    assert last(agent).served == ""
    assert last(agent).step == 50

    agent.log_line(REF, MEGATRON.format(n=60), at(61))

    assert last(agent).served == "wait-1"


def test_a_clock_that_is_set_back_while_the_controller_waits_hides_no_checkpoint() -> None:
    agent = core(MEGATRON.format(n=2))
    agent.spec(asks("wait-1"))
    agent.tick(at(10))

    agent.clock_set(timedelta(seconds=-3600), at(10 - 3600))
    agent.log_line(REF, MEGATRON.format(n=3), at(20 - 3600))

    assert last(agent).served == "wait-1"


def test_the_wait_is_for_one_pod() -> None:
    agent = core(MEGATRON.format(n=2))
    agent.log_line(OTHER, MEGATRON.format(n=2), at(3))
    agent.spec(asks("wait-1"))
    agent.tick(at(10))

    agent.log_line(OTHER, MEGATRON.format(n=3), at(20))

    assert [p.last_save.served for p in agent.status(at(30)).pods if p.last_save is not None] == ["", ""]
