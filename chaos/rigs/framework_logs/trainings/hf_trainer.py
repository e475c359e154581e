"""transformers' Trainer on a tiny model, with or without DeepSpeed. Runs with the environment's Python."""

from __future__ import annotations

import argparse
import importlib
import os
import time
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from chaos.rigs.framework_logs.truth import Truth

TOKENS, VOCABULARY = 16, 64


class Witness(TrainerCallback):
    """Records the Trainer's own state. It makes the steps slow, so that the bar shows each step, and pauses
    at each save, as a slow disk would."""

    def __init__(self, truth: Truth, step_s: float, save_s: float) -> None:
        self._truth = truth
        self._step_s = step_s
        self._save_s = save_s

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._truth.tell("begun", state.global_step)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        time.sleep(self._step_s)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._truth.tell("step", state.global_step)

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        time.sleep(self._step_s)

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._truth.tell("logged", state.global_step)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._truth.tell("saved", state.global_step)
        time.sleep(self._save_s)


class Tokens(torch.utils.data.Dataset):
    def __init__(self, rows: int) -> None:
        self._rows = torch.randint(VOCABULARY, (rows, TOKENS), generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self._rows[row], "labels": self._rows[row]}


DEEPSPEED = {
    "zero_optimization": {"stage": 1},
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": 2,
    "steps_per_print": 10,
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "torch_adam": True}},
}


def prepare_deepspeed(*, info: bool) -> None:
    backend: Any = importlib.import_module("deepspeed.comm.torch")
    backend.build_shm_op = lambda: None  # compiling takes minutes, and a single rank shares nothing
    if info:
        importlib.import_module("deepspeed.utils.logging").set_log_level_from_string("info")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--step-s", type=float, default=0.11)
    parser.add_argument("--save-s", type=float, default=0.0)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--save-every", type=int, default=20, help="and the model is evaluated as often")
    parser.add_argument("--keep", type=int, help="so many checkpoints; all of them unless told")
    parser.add_argument("--info", action="store_true", help="as the example scripts of transformers log")
    parser.add_argument("--deepspeed", action="store_true")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--resume-if-any", action="store_true", help="from the last checkpoint that is there")
    args = parser.parse_args()
    if args.info:
        transformers.utils.logging.set_verbosity_info()
        transformers.utils.logging.enable_default_handler()
        transformers.utils.logging.enable_explicit_format()
    config = GPT2Config(n_layer=1, n_head=2, n_embd=16, n_positions=TOKENS, vocab_size=VOCABULARY)
    if args.deepspeed:
        prepare_deepspeed(info=args.info)
    training = TrainingArguments(
        output_dir=str(args.output),
        max_steps=args.steps,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        gradient_accumulation_steps=2,
        logging_steps=args.log_every,
        save_steps=args.save_every,
        save_total_limit=args.keep,
        eval_strategy="steps",
        eval_steps=args.save_every,
        use_cpu=True,
        report_to=[],
        deepspeed=DEEPSPEED if args.deepspeed else None,
    )
    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        args=training,
        train_dataset=Tokens(64),
        eval_dataset=Tokens(20),
        callbacks=[Witness(Truth(args.truth), args.step_s, args.save_s)],
    )
    told = os.environ.get("REKINDLE_RESUME_FROM")
    found = get_last_checkpoint(args.output) if args.resume_if_any and args.output.exists() else None
    trainer.train(resume_from_checkpoint=told or found or args.resume or None)


if __name__ == "__main__":
    main()
