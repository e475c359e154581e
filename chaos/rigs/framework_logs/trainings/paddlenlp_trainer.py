"""PaddleNLP's Trainer on a tiny model. Runs with the environment's Python."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import paddle  # type: ignore[import-not-found]  # not installed where mypy runs
from paddlenlp.trainer import Trainer, TrainerCallback, TrainingArguments

from chaos.rigs.framework_logs.truth import Truth

FEATURES = 8


class Witness(TrainerCallback):
    """Records the Trainer's own state."""

    def __init__(self, truth: Truth, step_s: float) -> None:
        self._truth = truth
        self._step_s = step_s

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._truth.tell("begun", state.global_step)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        time.sleep(self._step_s)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._truth.tell("step", state.global_step)

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        time.sleep(self._step_s)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._truth.tell("saved", state.global_step)


class Rows(paddle.io.Dataset):
    def __init__(self, rows: int) -> None:
        self._rows = np.random.default_rng(1).random((rows, FEATURES), dtype=np.float32)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {"x": self._rows[row], "labels": self._rows[row][:1]}


class Model(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self._layer = paddle.nn.Linear(FEATURES, 1)

    def forward(self, x: Any, labels: Any = None) -> Any:
        told = self._layer(x)
        return (paddle.nn.functional.mse_loss(told, labels), told)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--step-s", type=float, default=0.11)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    training = TrainingArguments(
        output_dir=str(args.output),
        max_steps=args.steps,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        logging_steps=10,
        save_steps=20,
        evaluation_strategy="steps",
        eval_steps=20,
        device="cpu",
        report_to=[],
    )
    trainer = Trainer(
        model=Model(),
        args=training,
        train_dataset=Rows(64),
        eval_dataset=Rows(20),
        callbacks=[Witness(Truth(args.truth), args.step_s)],
    )
    newest = None
    if args.resume:
        saved = args.output.glob("checkpoint-*")
        newest = str(max(saved, key=lambda folder: int(folder.name.split("-")[1])))
    trainer.train(resume_from_checkpoint=newest)


if __name__ == "__main__":
    main()
