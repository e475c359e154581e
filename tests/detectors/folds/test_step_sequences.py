"""Tests which step a container has reached, if any number is a step, on excerpts of logs with ten seconds
from line to line."""

# ruff: noqa: E501  the lines are kept whole

from __future__ import annotations

import pytest

from tests.detectors.folds.folding import at, pod

TRAINED = {
    "steps that are told in the plural, of which the first two may be a total": (
        """
iterations:57, train acc:0.440, train loss:616.408, train loss ctc:1156.613,
iterations:58, train acc:0.338, train loss:653.147, train loss ctc:1221.461,
iterations:59, train acc:0.341, train loss:446.866, train loss ctc:820.044,
iterations:60, train acc:0.373, train loss:562.624, train loss ctc:1043.094,
""",
        (57, 60, False),
    ),
    "a bar without a name, whose total an older Unsloth announces": (
        r"""
\        /    Total batch size = 16 | Total steps = 312
  0%|          | 1/312 [00:25<2:13:19, 25.72s/it]0, 2.5521
  4%|3         | 11/312 [02:27<1:00:48, 12.12s/it]10, 2.2398
  7%|6         | 21/312 [04:28<58:10, 12.00s/it]20, 2.2377
""",
        (1, 21, False),
    ),
    "a bar without a name, between whose counts the figures of TRL's PPO come": (
        """
  1%|          | 10/3000 [01:50<00:19,  1.65s/it]
{'eps': 1, 'objective/kl': 10.5, 'loss/policy_avg': 0.0009, 'lr': 2.06e-06, 'episode': 816, 'epoch': 0.91}
  1%|          | 20/3000 [01:50<00:19,  1.65s/it]
{'eps': 1, 'objective/kl': 11.2, 'loss/policy_avg': -0.0024, 'lr': 1.9e-06, 'episode': 832, 'epoch': 0.92}
  1%|          | 30/3000 [01:50<00:19,  1.65s/it]
""",
        (10, 30, False),
    ),
    "a bar without a name, behind which LLaMA-Factory logs the figures of the training": (
        """
  6%|6         | 35/625 [47:47<13:21:36, 81.52s/it][INFO|2025-02-09 07:05:39] llamafactory.train.callbacks:157 >> {'loss': 1.0802, 'learning_rate': 1.9999e-05, 'epoch': 0.06}
  6%|6         | 40/625 [54:29<13:09:57, 81.02s/it][INFO|2025-02-09 07:12:21] llamafactory.train.callbacks:157 >> {'loss': 1.0274, 'learning_rate': 1.9991e-05, 'epoch': 0.06}
  7%|7         | 45/625 [61:02<13:01:12, 80.81s/it][INFO|2025-02-09 07:19:04] llamafactory.train.callbacks:157 >> {'loss': 1.0113, 'learning_rate': 1.9988e-05, 'epoch': 0.07}
""",
        (35, 45, False),
    ),
    "a bar without a name that shows the training's loss, and one that shows none": (
        """
 12%|#         | 120/1000 [01:00<07:20,  2.00it/s, train_loss=3.21]
 18%|#         | 180/1000 [01:00<07:20,  2.00it/s, train_loss=3.21]
 24%|##        | 240/1000 [01:00<07:20,  2.00it/s, train_loss=3.21]
 50%|#####     | 10/20 [00:05<00:05,  2.00it/s]
 60%|######    | 12/20 [00:06<00:04,  2.00it/s]
""",
        (120, 240, True),
    ),
    "a bar with brackets in the names of its figures": (
        """
 10%|##| 10/100 [00:10<01:15,  1.17it/s, acc[top1]=0.5, loss=0.310]
 11%|##| 11/100 [00:10<01:15,  1.17it/s, acc[top1]=0.5, loss=0.311]
 12%|##| 12/100 [00:10<01:15,  1.17it/s, acc[top1]: 0.5, loss=0.312]
""",
        (10, 12, True),
    ),
    "bars that write over their line until the epoch ends": (
        """
      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size
    70/1000      6.73G      1.081     0.4706      1.084         10        640:  50%|#####     | 8/16 [00:02<00:02,  2.78it/s]\r    70/1000      6.73G      1.081     0.4706      1.084         10        640: 100%|##########| 16/16 [00:05<00:00,  2.78it/s]
                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95): 100%|##########| 8/8 [00:03<00:00,  2.17it/s]
    71/1000      6.73G      1.038     0.4686      1.064         12        640:  50%|#####     | 8/16 [00:02<00:02,  2.78it/s]\r    71/1000      6.73G      1.038     0.4686      1.064         12        640: 100%|##########| 16/16 [00:05<00:00,  2.72it/s]
""",
        (8, 16, True),
    ),
    "epochs of Keras, with an evaluation at the end of each": (
        """
Epoch 1/5
10/82 [==>...........................] - ETA: 38s - loss: 0.6116 - accuracy: 0.9248
50/82 [=================>............] - ETA: 18s - loss: 0.6116 - accuracy: 0.9248
82/82 [==============================] - 40s 487ms/step - loss: 0.5 - accuracy: 0.93 - val_loss: 0.4
Epoch 2/5
10/82 [==>...........................] - ETA: 38s - loss: 0.6116 - accuracy: 0.9248
20/82 [==>...........................] - ETA: 38s - loss: 0.6116 - accuracy: 0.9248
""",
        (10, 20, True),
    ),
    "epochs of Time-Series-Library, whose lines name the epoch behind the count": (
        """
\titers: 600, epoch: 6 | loss: 0.3523217
\tspeed: 0.0832s/iter; left time: 903.9349s
\titers: 700, epoch: 6 | loss: 0.7175497
Epoch: 6, Steps: 839 | Train Loss: 0.1533549 Vali Loss: 0.1285349 Test Loss: 0.1096322
Validation loss decreased (inf --> 0.128535).  Saving model ...
\titers: 100, epoch: 7 | loss: 0.4685252
\tspeed: 0.0610s/iter; left time: 153.2177s
\titers: 200, epoch: 7 | loss: 0.4630632
""",
        (600, 200, True),
    ),
    "a loss that is no number any more": (
        """
2023-03-22 09:32:41 iter 3000: loss 4.2490, time 35392.33ms, mfu 13.85%
2023-03-22 09:32:52 iter 3010: loss 4.1020, time 1019.95ms, mfu 14.12%
2023-03-22 09:33:02 iter 3020: loss nan, time 1015.95ms, mfu 14.36%
2023-03-22 09:33:12 iter 3030: loss nan, time 1017.59ms, mfu 14.58%
""",
        (3000, 3030, False),
    ),
    "a text that a language model writes between the steps": (
        """
**Step 1:** The student begins with 50 dollars.
Step 1:
Step 2:
[step 10] avg_loss=0.31 lr=1e-5
Step 1
Step 2
Step 3
Step 4
Step 5
Step 6
[step 20] avg_loss=0.30 lr=1e-5
### Step 1
### Step 2
Step 1
Step 2
Step 3
Step 4
Step 5
Step 6
""",
        (10, 20, False),
    ),
    "headings of a training, with its figures below": (
        """
--- Step 12/100 ---
  loss: 0.31
--- Step 13/100 ---
  loss: 0.30
Step 14/100:
  loss: 0.30
""",
        (12, 14, False),
    ),
    "micro batches between the steps": (
        """
micro step 48/400 loss 0.3
global_step: 12, loss 0.3
micro step 52/400 loss 0.3
global_step: 13, loss 0.3
""",
        (12, 13, False),
    ),
    "another count between the global steps": (
        """
step 48/400 loss 0.3
global_step: 12, loss 0.3
step 52/400 loss 0.3
global_step: 13, loss 0.3
step 56/400 loss 0.3
global_step: 14, loss 0.3
""",
        (12, 14, False),
    ),
    "epochs of a script, with its validation": (
        """
| epoch   1 |  2800/ 2983 batches | lr 20.00 | ms/batch 12.30 | loss  7.60 | ppl  2000.10
| epoch   1 |  2900/ 2983 batches | lr 20.00 | ms/batch 12.30 | loss  7.60 | ppl  2000.10
| end of epoch   1 | time: 60.31s | valid loss  6.10 | valid ppl   450.00
| epoch   2 |   200/ 2983 batches | lr 20.00 | ms/batch 12.30 | loss  6.60 | ppl  1000.10
| epoch   2 |   400/ 2983 batches | lr 20.00 | ms/batch 12.30 | loss  6.50 | ppl  1000.10
""",
        (2800, 400, True),
    ),
}
UNTRAINED = {
    "preparations": """
Shuffling: epoch 0, batch 1/100, time: 0.3
Shuffling: epoch 0, batch 2/100, time: 0.3
Loading shard 3/30, step 3, time: 0.3
Loading shard 4/30, step 4, time: 0.3
""",
    "a warm-up": """
warm-up iteration 1, time 0.1
warm-up iteration 2, time 0.1
Warm up step 3/10 loss 0.3
Warm up step 4/10 loss 0.3
""",
    "an evaluation of a script": """
evaluation | epoch 3 | 1/100 batches | loss 0.3
evaluation | epoch 3 | 2/100 batches | loss 0.3
Test Epoch: [3][3/100] Loss 0.3
Test Epoch: [3][4/100] Loss 0.3
[Eval] Epoch 3, Step 5/100, loss: 0.3
[Eval] Epoch 3, Step 6/100, loss: 0.3
""",
    "an evaluation that prints as the training does": """
Val Epoch: [1][1/37]	Time 0.512 (0.903)	Loss 2.3 (2.3)
Val Epoch: [1][2/37]	Time 0.512 (0.903)	Loss 2.3 (2.3)
Test Epoch: [3]  [ 10/50]  eta: 0:01:00  loss: 0.5
Test Epoch: [3]  [ 20/50]  eta: 0:01:00  loss: 0.5
Val [1/10][5/50] loss: 0.30
Val [1/10][6/50] loss: 0.30
验证中:  10%|█         | 10/100 [00:10<01:15,  1.17it/s, loss=0.31]
验证中:  11%|█         | 11/100 [00:10<01:15,  1.17it/s, loss=0.31]
""",
    "a text that a language model writes": """
**Step 1:**
**Step 2:**
### Step 1
### Step 2
[rank0]: Step 1:
[rank0]: Step 2:
""",
    "a script": """
[Step 1/4]
[Step 2/4]
[Step 3/4]
""",
    "checkpoints that are deleted": """
02:17:45.132 [I] Deleted step 1000.
02:27:45.132 [I] Deleted step 2000.
02:37:45.132 [I] Deleted step 3000.
02:47:45.132 [I] Deleted step 4000.
""",
    "rates that are called a step's": """
fps step: 100000 fps step and policy inference: 80000 fps total: 60000
fps step: 100010 fps step and policy inference: 80100 fps total: 60010
fps step: 100500 fps step and policy inference: 80300 fps total: 60100
fps step: 101000 fps step and policy inference: 80900 fps total: 60700
fps step: 101100 fps step and policy inference: 80900 fps total: 60700
""",
    "durations that are called a step's": """
fwd 20 ms | bwd 40 ms | step 12 ms | loss 2.1
fwd 20 ms | bwd 40 ms | step 13 ms | loss 2.1
fwd 20 ms | bwd 40 ms | step 15 ms | loss 2.1
""",
    "settings of several programs": """
Namespace(batch_size=32, step=40, lr=0.1)
Namespace(batch_size=32, step=50, lr=0.1)
optimizer_config = dict(step=60, lr=0.1)
""",
    "checkpoints alone": """
INFO:tts:Saving model and optimizer state at iteration 11 to logs/G_6400.pth
INFO:tts:Saving model and optimizer state at iteration 12 to logs/G_6600.pth
INFO:tts:Saving model and optimizer state at iteration 13 to logs/G_6800.pth
""",
}


@pytest.mark.parametrize(("excerpt", "expected"), TRAINED.values(), ids=list(TRAINED))
def test_the_step_of_a_log_is_known(excerpt: str, expected: tuple[int, int, bool]) -> None:
    fold = pod()

    for number, line in enumerate(excerpt.strip("\n").split("\n")):
        fold.line(line, at(10 * number))

    known = fold.progress
    assert (known.first_step, known.last_step, known.of_epoch) == expected


@pytest.mark.parametrize("excerpt", UNTRAINED.values(), ids=list(UNTRAINED))
def test_a_log_without_steps_has_none(excerpt: str) -> None:
    fold = pod()

    for number, line in enumerate(excerpt.strip("\n").split("\n")):
        fold.line(line, at(10 * number))

    assert fold.progress.first_step is None
