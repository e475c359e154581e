"""Lightning's Trainer on a tiny model. Runs with the environment's Python."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint, TQDMProgressBar

from chaos.rigs.framework_logs.truth import Truth

FEATURES, BATCHES, EVERY = 8, 30, 20


class Model(lightning.LightningModule):
    def __init__(self, step_s: float) -> None:
        super().__init__()
        self._step_s = step_s
        self._layer = torch.nn.Linear(FEATURES, 1)

    def training_step(self, batch: torch.Tensor, number: int) -> torch.Tensor:
        time.sleep(self._step_s)
        loss = self._layer(batch).square().mean()
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: torch.Tensor, number: int) -> None:
        time.sleep(self._step_s)
        self.log("val_loss", self._layer(batch).square().mean(), prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Witness(Callback):
    """Records the Trainer's own state."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth

    def on_train_start(self, trainer: Any, module: Any) -> None:
        self._truth.tell("begun", trainer.global_step)

    def on_train_batch_end(self, trainer: Any, module: Any, *args: Any) -> None:
        self._truth.tell("step", trainer.global_step)


class Saver(ModelCheckpoint):
    def __init__(self, truth: Truth, **options: Any) -> None:
        super().__init__(**options)
        self._truth = truth

    def _save_checkpoint(self, trainer: Any, filepath: str) -> None:
        super()._save_checkpoint(trainer, filepath)
        self._truth.tell("saved", trainer.global_step)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--step-s", type=float, default=0.11)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--tqdm", action="store_true", help="the bar of an environment without rich")
    args = parser.parse_args()
    rows = torch.utils.data.DataLoader(torch.rand(BATCHES * 2, FEATURES), batch_size=2)
    tests = torch.utils.data.DataLoader(torch.rand(20, FEATURES), batch_size=2)
    truth = Truth(args.truth)
    saver = Saver(truth, dirpath=args.output, every_n_train_steps=EVERY, save_top_k=-1, save_last=True)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_steps=args.steps,
        default_root_dir=args.output,
        logger=False,
        callbacks=[Witness(truth), saver, *([TQDMProgressBar()] if args.tqdm else [])],
    )
    last = args.output / "last.ckpt"
    trainer.fit(Model(args.step_s), rows, tests, ckpt_path=last if args.resume else None)


if __name__ == "__main__":
    main()
