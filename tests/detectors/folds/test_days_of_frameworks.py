"""A day of a healthy training of each of ten frameworks, in virtual time. With checkpoints, evaluations and
pauses the training never stalls. If it hangs somewhere, the hang is found within the limit."""

# ruff: noqa: E501  the lines are kept whole

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator

import msgspec
import pytest

from detectors.wire.training import PodSettings
from tests.detectors.folds.folding import at, pod

DAY_S = 86_400.0
LIMIT_S = 1.5 * 3000.0
"""Upper bound in seconds of the limit that follows from the longest pause of these days."""


class Framework(msgspec.Struct, frozen=True):
    start: tuple[str, ...]
    step: Callable[[int], str]
    save: Callable[[int], tuple[str, ...]]
    evaluation: Callable[[int], tuple[str, ...]]
    step_s: float = 20.0
    every: int = 1
    """Number of steps between two lines that show one."""


def hf_bar(step: int) -> str:
    return f"\r  {step // 50}%|#  | {step}/5000 [00:10<01:15,  20.0s/it]\r"


FRAMEWORKS = {
    "HF Trainer": Framework(
        ("***** Running training *****", "  Total optimization steps = 5,000"),
        hf_bar,
        lambda n: (f"[INFO|trainer.py:2926] >> Saving model checkpoint to out/checkpoint-{n}",),
        lambda n: tuple(f"\r {k}%|#  | {k}/100 [00:10<01:15,  1.0s/it]\r" for k in range(1, 100)),
    ),
    "HF Trainer with DeepSpeed, logging warnings only": Framework(
        ("[2025-01-09 10:30:39,921] [INFO] [logging.py:128:log_dist] [Rank 0] step=0, skipped=0, lr=[5e-05]",),
        lambda n: f"[2025-01-09 10:30:39,921] [INFO] [logging.py:128:log_dist] [Rank 0] step={n}, skipped=0, lr=[5e-05]",
        lambda n: (f"[INFO] [torch_checkpoint_engine.py:21:save] [Torch] Saving /ckpt/global_step{n}/x.pt...",),
        lambda n: ("{'eval_loss': 2.0, 'epoch': 0.5}",),
        every=10,
    ),
    "Megatron-LM": Framework(
        ("building GPT model ...", "> setting tensorboard ..."),
        lambda n: f" [2026-11-21 09:30:00] iteration {n:8}/  500000 | consumed samples: 3072 | lm loss: 9.1E+00",
        lambda n: (f"saving checkpoint at iteration {n:7} to /ckpt in torch_dist format",),
        lambda n: tuple(f"Evaluating iter {k}/100" for k in range(1, 100)),
        every=5,
    ),
    "Lightning": Framework(
        ("GPU available: True (cuda), used: True",),
        lambda n: f"\rEpoch {n // 1000}:  12%|#  | {n % 1000 + 1}/1000 [00:10<01:15,  20.0s/it, v_num=0]\r",
        lambda n: (f"Epoch 0, global step {n}: 'val_loss' reached 0.31000, saving model to '/ckpt/x.ckpt' as top 1",),
        lambda n: tuple(f"\rValidation DataLoader 0: {k}%|#  | {k}/100 [00:10<01:15,  1.0it/s]\r" for k in range(1, 100)),
    ),
    "torchtitan": Framework(
        ("[titan] Building llama3 8B with ModelArgs(dim=4096)",),
        lambda n: f"[rank0]:[titan] 2026-11-21 09:30:00 - root - INFO - step: {n:3}  loss:  6.2  memory: 87.04GiB(93.48%)",
        lambda n: ("[rank0]:[titan] - root - INFO - Saving the checkpoint (or staging if async is enabled).",),
        lambda n: ("[rank0]:[titan] - root - INFO - validate step: 10  loss: 6.2",),
        every=10,
    ),
    "MMEngine": Framework(
        ("mmengine - INFO - lr_config = dict(policy='step', step=[7, 15, 22])",),
        lambda n: f"11/21 09:30:00 - mmengine - INFO - Iter(train) [{n:6}/80000]  lr: 9.0e-05  eta: 0:31:46  loss: 2.69",
        lambda n: (f"11/21 09:30:00 - mmengine - INFO - Saving checkpoint at {n} iterations",),
        lambda n: tuple(f"mmengine - INFO - Iter(val) [{k}/100]    eta: 0:00:10  time: 0.1" for k in range(1, 100)),
        every=10,
    ),
    "PaddleNLP": Framework(
        ("[    INFO] -   Total optimization steps = 5,000",),
        lambda n: f"[    INFO] - loss: 10.9, learning_rate: 1e-05, global_step: {n}, interval_runtime: 2.1",
        lambda n: (f"[    INFO] - Saving model checkpoint to out/checkpoint-{n}",),
        lambda n: ("[    INFO] - ***** Running Evaluation *****",),
        every=10,
    ),
    "nanoGPT": Framework(
        ("tokens per iteration will be: 491,520",),
        lambda n: f"iter {n}: loss 4.8186, time 1537.05ms, mfu 14.52%",
        lambda n: ("saving checkpoint to out",),
        lambda n: (f"step {n}: train loss 2.4989, val loss 2.5072",),
        every=10,
    ),
    "veRL": Framework(
        ("(TaskRunner pid=7) {'actor_rollout_ref': {'actor': {'step': 8}}}",),
        lambda n: f"(TaskRunner pid=7) step:{n} - global_seqlen/min:1024 - actor/pg_loss:0.1",
        lambda n: (f"(TaskRunner pid=7) local_global_step_folder: checkpoints/x/global_step_{n}",),
        lambda n: ("(TaskRunner pid=7) test_gen_batch meta info", *(f"Processed prompts: {k}%|# | {k}/100 [00:10<01:15,  1.17it/s]" for k in range(9))),
        step_s=200.0,
    ),
    "torchvision": Framework(
        ("Namespace(batch_size=32, lr_step_size=30, step=5)", "Start training"),
        lambda n: f"Epoch: [{n // 1250}]  [{n % 1250:4}/1250]  eta: 1:13:30  lr: 0.000010  loss: 2.7010 (2.7007)",
        lambda n: ("Saving checkpoint to /ckpt/model_0.pth",),
        lambda n: tuple(f"Test:  [{k:4}/100]  eta: 0:13:30  loss: 2.7010 (2.7007)" for k in range(0, 100, 10)),
        every=10,
    ),
}  # fmt: skip


def day(framework: Framework, seed: int) -> Iterator[tuple[float, str]]:
    """Yields the lines of a day. A checkpoint may take 20 minutes, and its line comes before it is
    written."""
    draw = random.Random(seed)
    now, n = 0.0, 0
    for line in framework.start:
        now += draw.uniform(1, 60)
        yield now, line
    now += draw.uniform(60, 900)
    while now < DAY_S:
        n += framework.every
        now += framework.every * framework.step_s * draw.uniform(0.8, 1.3)
        yield now, framework.step(n)
        if n // framework.every % 40 == 0:
            lines = framework.save(n)
            for line in lines:
                yield now + 1, line
            now += draw.choice((30.0, 300.0, 1200.0)) if n else 0.0
        if n // framework.every % 60 == 0:
            lines = framework.evaluation(n)
            for line in lines:
                now += draw.uniform(300, 550) / len(lines)
                yield now, line
        if draw.random() < 0.01:
            now += draw.uniform(60, 500)  # the storage or the loader is slow


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_healthy_day_has_no_stall(name: str) -> None:
    fold, before = pod(), 0.0
    for now, line in day(FRAMEWORKS[name], 7):
        assert not fold.tick(at(now - 0.01)), f"silent since {before:.0f} s, at {now:.0f} s"
        fold.line(line, at(now))
        before = now

    published = fold.published()
    assert published is not None
    assert published.first_step is not None
    assert published.last_step is not None


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_hang_anywhere_in_the_day_is_found(name: str) -> None:
    lines = list(day(FRAMEWORKS[name], 7))
    armed = len(FRAMEWORKS[name].start) + 10
    places = set(random.Random(8).sample(range(armed, len(lines)), 20))
    fold = pod()
    if lines[-1][1].endswith("\r"):  # the runtime keeps such bars back: only the job can set a limit
        fold.job_settings(PodSettings(uid="uid-0", hang_timeout_s=LIMIT_S))
    for number, (now, line) in enumerate(lines):
        fold.line(line, at(now))
        if number in places:
            assert copy.deepcopy(fold).tick(at(now + LIMIT_S)), f"hung after line {number}: {line}"
