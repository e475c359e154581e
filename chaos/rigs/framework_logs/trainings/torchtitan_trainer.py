# ruff: noqa: PLC0415  its modules take the device when they are imported
"""torchtitan's own Trainer with its debug model, made smaller. Runs with the environment's Python.

torchtitan runs only on accelerators, so its device module gets the few functions that torch.cpu lacks.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import tokenizers
import torch
from torchtitan.tools import utils

from chaos.rigs.framework_logs.truth import Truth

STEPS_PER_SAVE = 20
TEXT = "the cat sat on the mat and the dog ran far away from it "
WORDS = ["<|begin_of_text|>", "<|end_of_text|>", *sorted(set(TEXT.split()))]


def run_on_cpu() -> None:
    """Makes torchtitan run on a CPU. This must happen before the Trainer is imported: its modules take the
    device from `utils`."""
    cpu: Any = torch.cpu
    cpu.get_device_name = lambda device=None: "CPU"
    cpu.get_device_properties = lambda device=None: SimpleNamespace(total_memory=1 << 30)
    cpu.memory_stats = lambda device=None: {}
    cpu.reset_peak_memory_stats = lambda device=None: None
    cpu.current_device = lambda: 0
    cpu.empty_cache = lambda: None
    utils.device_type, utils.device_module = "cpu", cpu


def causal(
    self: torch.nn.Module,
    q_BLNH: torch.Tensor,  # noqa: N803  torchtitan looks at the names
    k_BLNH: torch.Tensor,  # noqa: N803
    v_BLNH: torch.Tensor,  # noqa: N803
    **options: Any,
) -> torch.Tensor:
    """Replaces flex_attention, which has no gradient on a CPU."""
    heads = (each.transpose(1, 2) for each in (q_BLNH, k_BLNH, v_BLNH))
    return torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2)


def write_tokenizer(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    words = tokenizers.models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token=WORDS[0])
    tokenizer = tokenizers.Tokenizer(words)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--step-s", type=float, default=0.11)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    run_on_cpu()

    from torchtitan.hf_datasets import text_datasets
    from torchtitan.models.common import attention
    from torchtitan.models.llama3 import config_registry, model_registry
    from torchtitan.tools.logging import init_logger
    from torchtitan.trainer import Trainer

    truth = Truth(args.truth)
    rows = datasets.Dataset.from_list([{"text": TEXT}] * 200)
    text_datasets.DATASETS["c4_test"] = dataclasses.replace(
        text_datasets.DATASETS["c4_test"], loader=lambda path: rows
    )

    class Witnessed(Trainer):
        """Records the Trainer's own state."""

        begun = False

        def train_step(self, data_iterator: Any) -> None:
            if not self.begun:
                self.begun = True
                truth.tell("begun", self.step - 1)
            time.sleep(args.step_s)
            truth.tell("step", self.step)  # before the call, because torchtitan prints the step in the call
            super().train_step(data_iterator)

    attention.FlexAttention.forward = causal
    init_logger()
    config = config_registry.llama3_debugmodel()
    write_tokenizer(args.output / "tokenizer")
    config.hf_assets_path = str(args.output / "tokenizer")
    config.dump_folder = str(args.output)
    config.model_spec = model_registry("debugmodel")
    config.model_spec.model.layers = config.model_spec.model.layers[:1]
    config.training.steps = args.steps
    config.training.seq_len = 64
    config.training.local_batch_size = 1
    config.training.disable_cuda_graphs = True
    config.compile.enable = False
    config.metrics.log_freq = 10
    config.checkpoint.enable = True
    config.checkpoint.interval = STEPS_PER_SAVE
    config.validator.enable = True
    config.validator.freq = STEPS_PER_SAVE
    config.validator.steps = 5
    config.validator.dataloader = text_datasets.HuggingFaceTextDataLoader.Config(dataset="c4_test")
    trainer = Witnessed(config)
    save = trainer.checkpointer.save

    def saved(step: int, last_step: bool = False) -> bool:
        done: bool = save(step, last_step=last_step)
        if done:
            truth.tell("saved", step)
        return done

    trainer.checkpointer.save = saved
    trainer.train()
    trainer.close()


if __name__ == "__main__":
    main()
