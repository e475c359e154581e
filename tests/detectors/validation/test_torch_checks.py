"""The checks that use PyTorch, with the real PyTorch on a CPU: they pass if all is well, and otherwise find
the fault.

These tests run with REKINDLE_TORCH=1. They need no GPU and no NCCL: gloo replaces NCCL, and main memory
replaces the GPU's memory.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import msgspec
import pytest
import structlog

import detectors
from chaos.rigs.torch_training.environment import TORCH

pytestmark = [pytest.mark.processes, pytest.mark.on_request("REKINDLE_TORCH")]

EXCHANGE = "from detectors.validation.nccl import exchange; print(exchange({who!r}, {ranks}, 'gloo', {{}}))"
MEMORY = """
import torch
from detectors.validation import memory
from detectors.validation.memory import wrong_products, wrong_words
memory._CHUNK_WORDS = 1000
cpu = torch.device("cpu")
"""


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """Returns a folder with the modules that the interpreter with PyTorch sees in addition to its own
    packages. A test may add modules."""
    folder = tmp_path / "modules"
    folder.mkdir()
    for module in (msgspec, structlog, detectors):
        package = Path(module.__file__ or "").parent
        (folder / package.name).symlink_to(package)
    return folder


def printed(modules: Path, *arguments: str) -> str:
    done = subprocess.run(
        [str(TORCH.interpreter()), *arguments],
        env=dict(os.environ) | {"PYTHONPATH": str(modules)},
        cwd=modules,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def test_sound_memory_and_arithmetic_pass(modules: Path) -> None:
    script = MEMORY + "print(wrong_words(torch, cpu, 123456))\n"
    script += "print(repr(wrong_products(torch, cpu, size=512, rounds=3)))"

    assert printed(modules, "-c", script).splitlines() == ["0", "''"]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("chunk[7] |= 2**40", 3),
        ("chunk[6] &= ~1", 2),
    ],
    ids=["a bit that is always set", "a bit that is never set"],
)
def test_memory_that_does_not_keep_what_is_written_is_found(modules: Path, fault: str, words: int) -> None:
    """A stuck bit shows only in those of the four patterns and the addresses in which the bit has the other
    value."""
    script = MEMORY + (
        "fill, copy = torch.Tensor.fill_, torch.Tensor.copy_\n"
        "def broken(write):\n"
        "    def call(chunk, value):\n"
        "        write(chunk, value)\n"
        f"        {fault}\n"
        "    return call\n"
        "torch.Tensor.fill_, torch.Tensor.copy_ = broken(fill), broken(copy)\n"
        "print(wrong_words(torch, cpu, 1000))"
    )

    assert printed(modules, "-c", script) == str(words)


def test_two_addresses_that_lead_to_one_word_are_found(modules: Path) -> None:
    """Every pattern looks right at these addresses. Only words that contain their own address show the
    fault."""
    script = MEMORY + (
        "copy = torch.Tensor.copy_\n"
        "def aliased(chunk, value):\n"
        "    copy(chunk, value)\n"
        "    chunk[10] = chunk[20]\n"
        "torch.Tensor.copy_ = aliased\n"
        "print(wrong_words(torch, cpu, 1000))"
    )

    assert printed(modules, "-c", script) == "1"


@pytest.mark.parametrize("type_", ["float32", "bfloat16"])
def test_one_wrong_bit_in_one_product_is_found(modules: Path, type_: str) -> None:
    """The first product of each type is the reference for the others."""
    script = MEMORY + (
        "multiply, products = torch.Tensor.__matmul__, 0\n"
        "def broken(left, right):\n"
        "    global products\n"
        "    result = multiply(left, right)\n"
        f"    if result.dtype is torch.{type_}:\n"
        "        products += 1\n"
        "        if products == 3:\n"
        "            bits = result.view(torch.int16)\n"
        "            bits[100, 100] ^= 1\n"
        "    return result\n"
        "torch.Tensor.__matmul__ = broken\n"
        "print(wrong_products(torch, cpu, size=256, rounds=3))"
    )

    said = printed(modules, "-c", script)
    assert all(name in said for name in ("2 of 3", f" {type_} "))


@pytest.mark.parametrize(("who", "ranks"), [("all", 2), ("pairs", 3)])
def test_ranks_that_add_up_rightly_pass(modules: Path, who: str, ranks: int) -> None:
    assert printed(modules, "-c", EXCHANGE.format(who=who, ranks=ranks)) == "None"


def in_rank_1(modules: Path, code: str) -> None:
    """Makes the code run in the process of rank 1 before anything else."""
    is_it = "'detectors.validation.nccl_rank' in sys.orig_argv and sys.orig_argv[-1] == '1'"
    (modules / "sitecustomize.py").write_text(f"import sys\nif {is_it}:\n{code}")


def test_a_sum_that_is_wrong_is_found(modules: Path) -> None:
    in_rank_1(
        modules,
        "    from torch import distributed\n"
        "    add_up = distributed.all_reduce\n"
        "    def broken(data, group):\n"
        "        add_up(data, group=group)\n"
        "        data[77] += 1\n"
        "    distributed.all_reduce = broken\n",
    )

    said = printed(modules, "-c", EXCHANGE.format(who="all", ranks=2))

    assert all(name in said for name in ("rank 1 of 2", "1 of 16777216", "[0, 1]"))


def test_a_rank_that_dies_ends_the_exchange_for_all(modules: Path) -> None:
    in_rank_1(modules, "    import os\n    os._exit(7)\n")

    said = printed(modules, "-c", EXCHANGE.format(who="all", ranks=2))
    assert "rank 1 of 2" in said
    assert "7" in said


def test_without_a_gpu_the_checks_say_what_is_missing(modules: Path) -> None:
    said = printed(modules, "-m", "detectors.validation.check_child", "memory-and-matmul", "{}")

    assert "not-run" in said
    assert "GPU" in said
