"""A training loop with Accelerate, on a tiny model, written like Accelerate's examples.

The program runs with the environment's Python.
"""

from __future__ import annotations

import argparse
import logging
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.logging import get_logger
from tqdm.auto import tqdm

from chaos.rigs.framework_logs.truth import Truth

FEATURES, ROWS, EVERY = 8, 40, 20

logger = get_logger(__name__)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--step-s", type=float, default=0.11)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    form = "%(asctime)s - %(levelname)s - %(name)s - %(message)s"
    logging.basicConfig(format=form, datefmt="%m/%d/%Y %H:%M:%S", level=logging.INFO)
    truth = Truth(args.truth)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, project_dir=args.output)
    model = torch.nn.Linear(FEATURES, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(torch.rand(ROWS, FEATURES), batch_size=2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    step = 0
    if args.resume:
        newest = max(args.output.glob("checkpoint-*"), key=lambda folder: int(folder.name.split("-")[1]))
        accelerator.print(f"Resuming from checkpoint {newest.name}")
        accelerator.load_state(newest)
        step = int(newest.name.split("-")[1])
    truth.tell("begun", step)
    bar = tqdm(range(args.steps), initial=step, desc="Steps", disable=not accelerator.is_local_main_process)
    while step < args.steps:
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(batch).square().mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                time.sleep(args.step_s)
                step += 1
                truth.tell("step", step)
                bar.update(1)
                if step % EVERY == 0:
                    folder = args.output / f"checkpoint-{step}"
                    accelerator.save_state(folder)
                    logger.info(f"Saved state to {folder}")
                    truth.tell("saved", step)
            bar.set_postfix(step_loss=loss.detach().item(), lr=0.01)
            if step >= args.steps:
                break
    accelerator.end_training()


if __name__ == "__main__":
    main()
