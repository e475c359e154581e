"""Step lines as real frameworks print them, and their lines about checkpoints and evaluations, which are no
step lines."""

# ruff: noqa: E501  the lines are kept whole

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from detectors.catalog.log_errors import packaged_log_errors
from detectors.folds.pods import PodFold
from detectors.rules.facts import PodRef
from detectors.service.settings import Logs
from detectors.wire.training import PodSettings
from tests.detectors.folds.folding import step_in

NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)


@pytest.fixture
def fold() -> PodFold:
    return PodFold(PodRef("train", "llm-0", "uid-0", "main"), Logs(), packaged_log_errors())


@pytest.mark.parametrize(
    ("line", "step"),
    [
        (" [2026-11-21 09:30:00] iteration        1/  500000 | consumed samples:          512 |", 1),
        ("[2026-11-21 09:30:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[0.001]", 10),
        ("epoch=0/micro_step=10/global_step=10, RunningAvgSamplesPerSec=32.1", 10),
        ("Training epoch 0, iteration 9/999 | lr: 0.0003 | global_batch_size: 512 | global_step: 9 | reduced_train_loss: 10.9", 9),
        ("completed step: 10, seconds: 1.234, TFLOP/s/device: 120.0, Tokens/s/device: 3000.0, loss: 8.1", 10),
        ("loss: 10.9, learning_rate: 1e-05, global_step: 10, interval_runtime: 2.1, progress_or_epoch: 0.01", 10),
        ("[Train][Epoch 1/20][Iter: 10/20]lr(LinearWarmup): 0.1, CELoss: 6.9", 10),
        ("INFO:tensorflow:loss = 0.3, step = 100 (1.234 sec)", 100),
        ("train | step:    100 | steps/sec:   12.3 | output: {'loss': 0.3}", 100),
        ("(TaskRunner pid=1234) step:1 - global_seqlen/min:1024 - actor/loss:0.1", 1),
        ("step 00010/21400 (0.05%) | loss: 9.1", 10),
        ("[Basic..][epoch:  0, iter:   1,200, lr:(2.000e-04,)] [eta: 1 day, 2:03:04]", 1200),
        ("Step 1,234,567/2,000,000, loss 2.1", 1234567),
        ("Epoch 2 | Step 5/100 | Global Step: 205 | loss 0.3", 205),
        ("[1,0]<stdout>:step 12 loss 0.3", 12),
        ("train=0.30 val=0.31 step=12", 12),
        ("2026-11-21 09:30:00,123-INFO-step 12 loss 0.3", 12),
        ("2026-11-21 09:30:00,123-step=12", 12),
        ("iter:1,200,lr:2e-04", 1200),
        ("iter 5,100,0.3", 5),
        ("step 12,loss 0.3", 12),
        ("[INFO|trainer_tf.py:398] 2026-11-21 09:30:00,371 >> {'loss': 0.63, 'learning_rate': 4.8e-05, 'epoch': 0.08, 'step': 10}", 10),
        ('{"loss": 6.1, "learning_rate": 4.9e-05, "epoch": 0.3, "step": 500}', 500),
        ("| epoch 009 | loss 9.753 | ppl 565.41 | wps 24271 | num_updates 9909 | lr 0.000317 | gnorm 0.618", 9909),
        ("{'train/step': 12, 'train/loss': 0.3}", 12),
        ("step 12 seconds: 0.3 loss 2.1", 12),
        ("Training progress:   1%|1         | 300/30000 [00:10<16:30, 29.9it/s, Loss=0.1]", 300),
        ("val: 0.31 step 12 loss 0.3", 12),
        ("2026-11-21 09:30:00.123 | INFO     | llm.trainer:train_step:212 - step=7 loss=2.1", 7),
        ("2026-11-21 09:30:00.123 | INFO     | __main__:step:212 - iteration 7, loss 2.1", 7),
        ("[trainer.py:train_step:212] step 7 loss 2.1", 7),
        ("INFO:__main__:step:7 - loss 2.1", 7),
        ("  training_iteration: 27", 27),
        ("fps step: 100.0 fps step and policy inference: 80.0  fps total: 60.0 epoch: 5/500", 5),
        ("{'loss': 1.5, 'epoch': 0.5, 'steps[global_step/max_steps]': '50/94', 'percentage': '53.19%'}", 50),
        ("2021-01-19 07:02:41 [INFO]\t[TRAIN] epoch=1, iter=5/100, loss=2.8735, lr=0.009639", 5),
        ('[BATCH][batch=12]: { "loss/train": 2.1, }', 12),
        ("Optimization step #4", 4),
        ("train | data_epochs  0/10 | inner iter:   7/  8 | ppo epoch:  2/ 4 | global iter:     13/  5000| tot_loss: 2.3541", 13),
        ('2020-02-07 13:21:07 | INFO | train | {"epoch": 1, "train_loss": "11.049", "train_num_updates": "2150"}', 2150),
        ("pipeline.py:770 in record_current_batch_training_metrics -- tflops=229.6 step=642 loss=2.17 real_tgs=719.84", 642),
        ("INFO:tensorflow:------ training step: 120 ------", 120),
        ("2024-10-06 20:19:51,817 [File: log.py Function: _print_iter_log at line 71]  Stage [train] iter: [10/500], data_time: 1.0402(1.0402), loss: 0.0978(0.0978)", 10),
    ],
)  # fmt: skip
def test_a_frameworks_step_line_is_read(line: str, step: int) -> None:
    assert step_in(line) == step


@pytest.mark.parametrize(
    "line",
    [
        "Restoring states from the checkpoint path at /ckpt/epoch=0-step=40.ckpt",
        "Restored all states from the checkpoint at /ckpt/epoch=0-step=40-v1.ckpt",
        "wrote /ckpt/step=40.ckpt",
        "Epoch 0, global step 40: 'val_loss' reached 0.31000 (best 0.31000), saving model to '/ckpt/epoch=0-step=40.ckpt' as top 1",
        "Epoch 1, global step 80: 'val_loss' was not in top 1",
        "Epoch 3, global step 400: 'Validation Loss' reached 0.31000 (best 0.31000), saving model to '/c/1.ckpt' as top 1",
        'Epoch 99, global step 35399: val_wer reached 0.10433 (best 0.10433), saving model to "/exp/Conformer-CTC-BPE.ckpt" as top 5',
        "Epoch 100, global step 35799: val_wer was not in top 5",
        "  Continuing training from global step 410",
        "restoring from this run's directory latest step 40",
        "Loaded checkpoint '/ckpt/x' (step 40)",
        "resuming training, step 40",
        "going on from epoch 3, step 40",
        "Checkpoint saved: step 40",
        "  successfully saved checkpoint from iteration     500 to /ckpt",
        "Validation: iteration 1/32",
        "[Eval][Epoch 1][Iter: 0/7]CELoss: 1.2, loss: 1.2",
        "eval  | step:    100 | running 10 steps of evaluation...",
        "Evaluating: step 5",
        "seconds per step: 3",
        "--step 100",
        "100/100 ━━━━━━━━━━ 3s 20ms/step - loss: 0.5",
        "INFO:tensorflow:global_step/sec: 12.3",
        "INFO:tensorflow:Saving dict for global step 32000: global_step = 32000, loss = 1.25",
        "Epoch 0, global step 9000: 'val_loss' reached 7.04, saving model to '/ckpt/x--step=9000-consumed_samples=6.ckpt' as top 3",
        "Warming up: step 3/10 loss 2.3",
        "Best step: 1000, best loss 0.31",
        "Skipping step 100 because loss is nan",
        "INFO:root:Setup step 2 took time: 3.5 s",
        "[Step 2: Duration 0.82 seconds| Input tokens: 2,394 | Output tokens: 68]",
        "Training for iterations: 1000, lr: 0.1",
        "Quantizing layers:  40%|####      | 20/50 [00:05<00:08,  3.6it/s, loss=0.1]",
        "Removing checkpoint: /ckpt/megatron_gpt--val_loss=0.21-step=2000-consumed_samples=256000.0.ckpt",
        "step:0 - val-aux/openai/gsm8k/reward/mean@1:0.565 - val-core/openai/gsm8k/acc/mean@1:0.508",
        "[mem_profile] step_1_post: alloc=5.000 GiB reserved=7.000 GiB max_alloc=8.000 GiB",
        'Step 2/6 : LABEL maintainer="x"',
        "Step 1/6 : FROM nginx:1.21.6-alpine",
        "[Step 2/5] Installing python:3.11",
        "Step 5/12 : RUN pip install torch==2.1",
        "Namespace(batch_size=32, step=40, lr=0.1)",
        "fwd 20 ms | bwd 40 ms | step 12 ms | loss 2.1",
        "step 3s | loss 2.1",
        "ms/step 12 | loss 2.1",
        "| epoch 010 | train loss 1.44 | train ppl 2.72 | words/batch    906 | lr 0.001",
        "| epoch 010 | valid on 'valid' subset  1000 / 1311 loss=1.60",
        "Eval Epoch: 12 [784 / 4634]\tClip Loss: 6.919",
        "2026-11-21 09:30:00,773 DEBUG CV Batch 4/100 loss 28.51 history loss 27.95 rank 2",
        "Epoch 0, validation: loss=0.9, over 939074.00 frames.",
        "training with batch 32 in epoch 3, loss 0.1",
        "[2026-11-21 09:30:00,941][root][INFO] - val, rank: 1, epoch: 0/500, step_in_epoch: 100, total step: 100, (loss_avg_rank: 0.521)",
        "[EVAL] epoch 3, step 100, loss 0.3",
        "Validation - epoch 3, step 100, loss 0.3",
        "E0101 10:00:00.000 1234 chttp2_transport.cc:1097] step 3 of handshake failed",
        "2026-11-21 09:30:00.123 | DEBUG    | videogpt.simvp:training_step:132 - loss: 0.31",
    ],
)
def test_a_line_that_only_tells_of_a_step_makes_none(line: str) -> None:
    assert step_in(line) is None


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("2026-11-21 09:30:00,333 epoch 1 - iter 122/1227 - loss 0.93 - samples/sec: 86.35 - lr: 0.000030", 122),
        ("2026-11-21 09:30:00 | INFO | yolox.core.trainer:246 - epoch: 1/80, iter: 2/57, mem: 6736Mb, total_loss: 14.9", 2),
        ("Epoch: 0, Step: 120, Rank: 0, loss = 1.90", 120),
        ("Epoch: [9][80/588], Time: 3.65, Data: 0.14, lr_sound: 0.001, loss: 0.4716", 80),
        ("[09:30:12.610] Epoch: [0]  [10/1504]  lr: 0.000000  closs: 1.5367 (1.5368)  time: 5.0133", 10),
        ("Epoch  1, 12900/37527; acc:   4.48; ppl: 35173.75; xent:  10.47;   9861 s elapsed", 12900),
        ("| epoch 010  2000 / 8223 loss=1.27 (1.50), wps=962, lr=0.001, clip=100%", 2000),
        ("epoch [1/50] batch [5/100] time 0.5 (0.6) data 0.1 (0.2) loss 2.1 (2.2) lr 1e-3 eta 0:10:00", 5),
        ("2026-11-21 09:30:00,000   INFO  Train:    1/80 (  1%) [  50/1856 (  3%)]  Loss: 5.9 (6.2)  LR: 1.0e-03", 50),
        ("13184/60000 [=====>........................] - ETA: 3s - loss: 0.0952 - acc: 0.9743", 13184),
        ("  13440/Unknown - 2s - loss: 0.8068 - acc: 0.7432", 13440),
        ("epoch 3 batch 40 loss 0.3", 40),
        ("[1,1]<stdout>:Epoch 0/100, Batch 16/29316", 16),
        ("Training Epoch: 1:   3%|3         | 2/79 [00:11<14:38, 11.26s/it]", 2),
        ("epoch:1 loss:1.0084699392318726:  59%|#####     | 231/391 [00:31<00:20,  7.73it/s]", 231),
        ("[Epoch 0/200] [Batch 100/938] [D loss: 0.5] [G loss: 0.6]", 100),
        ("[2/20][4083/7614] Loss: 8.699026", 4083),
        ("2017-10-14 16:48:48,950 - INFO - allennlp.training.trainer - Batch 567/17168: accuracy: 0.42, loss: 1.32 ||", 567),
        ("Epoch 1, Step 100: loss = nan", 100),
        ("epoch 0, step 100, train loss 1.394, input 27-09-16: 80%|########  | 100/125 [00:10<00:02, 9.1it/s]", 100),
        ("2020-10-11 12:12:00 INFO: epoch:0   train step:310  loss: 6.88331 top1: 0.00000 lr: 0.100000", 310),
        ("Mon Nov 16 01:53:58 2020 Epoch: 0 Sample 75/76 Loss: 30482.720703125", 75),
        ("Batch [50] Speed: 26130.0133261041 samples/sec Train-accuracy=0.111875", 50),
        ("Epoch 0:  97% 1651/1702 [13:00<00:24,  2.11it/s, loss=0.158, v_num=0]", 1651),
        ("Epoch 0: :   3%|3         | 9000/301500 [1:42:42<55:37:46, v_num=0-56, reduced_train_loss=nan.0, global_step=9e+3]", 9000),
        (" 12%|#         | 120/1000 [01:00<07:20,  2.00it/s, train_loss=3.21]", 120),
        ("accuracy: 0.8120, loss: 0.4123 ||:  10%|#         | 100/1000 [00:50<07:30,  2.00it/s]", 100),
        ("Training Epoch: 3/3, step 201/203 completed (loss: 0.76):  99%|##########| 202/203 [08:31<00:02,  2.52s/it]", 202),
    ],
)  # fmt: skip
def test_a_step_behind_its_epoch_is_read_and_is_never_compared_with_a_checkpoints(
    fold: PodFold, line: str, step: int
) -> None:
    assert step_in(line) == step

    fold.line(line.replace(str(step), str(step - 1)), NOW)
    fold.line(line, NOW + timedelta(seconds=10))

    published = fold.published()
    assert published is not None
    assert (published.last_step, published.step_of_epoch) == (step, True)


@pytest.mark.parametrize(
    ("template", "line", "step"),
    [
        ("Iter(train) [{step}/", "11/21 09:30:00 - mmengine - INFO - Iter(train) [  50/4000]  base_lr: 2e-4", 50),
        ("iter:{step}, lr", "[epoch:  0, iter:   1,200, lr:(2.000e-04,)]", 1200),
        ("step {step}/", "Step 1, step 1,234/10,000", 1234),
        ("it {step},", "it 7,100 tokens", 7),
    ],
)  # fmt: skip
def test_a_template_reads_a_number_as_it_is_laid_out(template: str, line: str, step: int) -> None:
    assert step_in(line, template) == step


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("", "[titan] 2026-11-21 09:30:00,000 - root - INFO - \x1b[31mstep: 10  \x1b[32mloss:  6.1234  \x1b[33mmemory: 40GiB"),
        ("", "\x1b[31mstep\x1b[0m 10"),
        ("step {step}/", "\x1b[1mstep \x1b[36m10\x1b[0m/1000"),
    ],
)  # fmt: skip
def test_colours_hide_no_step(fold: PodFold, template: str, line: str) -> None:
    fold.job_settings(PodSettings(uid="uid-0", step_template=template))
    fold.line(line, NOW)
    fold.line(line.replace("10", "11"), NOW + timedelta(seconds=1))

    published = fold.published()
    assert published is not None
    assert published.first_step == 10


def test_the_tail_and_the_first_error_have_no_colours(fold: PodFold) -> None:
    fold.line("\x1b[35mTraceback (most recent call last):\x1b[0m", NOW)
    fold.line("\x1b[1;35mValueError\x1b[0m: \x1b[35mbad shape\x1b[0m", NOW)
    fold.end(NOW)

    published = fold.published()
    assert published is not None
    assert published.first_error is not None
    assert published.first_error.text == "ValueError: bad shape"
    assert published.tail == "Traceback (most recent call last):\nValueError: bad shape"
