"""Implements the check memory-and-matmul: on each GPU, most of the free memory keeps the written data, and
products are right.

All of the memory is filled before any of it is read back, so a fault in the addressing shows, too. The
factors are small integers, so every partial sum is exact in float32, in any order of the summation: the GPU
must return the CPU's product bit for bit. In bfloat16, which other units of the GPU compute, each product
must be equal to the GPU's own first one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from detectors.validation.node_check import Node, Result, failed, passed
from detectors.validation.with_torch import cuda_torch

__all__ = ["run", "wrong_products", "wrong_words"]

_CHUNK_WORDS = 2**25
"""Number of words in 256 MiB, which are checked at a time."""
_SHARE = 0.9
"""Share of the free memory that is filled: the comparison needs some memory, too."""
_PATTERNS = (0x5555555555555555, -0x5555555555555556, 0, -1)
_SIZE = 4096
_FACTOR_MAX = 8
"""Greatest factor. _SIZE * 8 * 8 is below 2**24, up to which float32 has every integer."""
_ROUNDS = 50


def run(node: Node) -> Result:
    torch = cuda_torch()
    bad: list[str] = []
    checked_bytes = 0
    count = torch.cuda.device_count()
    for index in range(count):
        device = torch.device("cuda", index)
        free_bytes, _ = torch.cuda.mem_get_info(device)
        words = int(free_bytes * _SHARE) // 8
        if wrong := wrong_words(torch, device, words):
            bad.append(f"{_name(torch, index)}: {wrong} of {words} words of memory changed")
        torch.cuda.empty_cache()
        if trouble := wrong_products(torch, device, size=_SIZE, rounds=_ROUNDS):
            bad.append(f"{_name(torch, index)}: {trouble}")
        checked_bytes += words * 8
    if bad:
        return failed("; ".join(bad))
    return passed(f"GPUs: {count}; {checked_bytes / 2**30:.0f} GiB written and read, products as the CPU's")


def _name(torch: Any, index: int) -> str:
    """Returns a name for the GPU. Older versions of PyTorch do not report the UUID, and CUDA may number GPUs
    differently from NVML."""
    uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    return f"GPU-{uuid}" if uuid is not None else f"CUDA device {index}"


def wrong_words(torch: Any, device: Any, words: int) -> int:
    """Returns the number of words of 8 bytes that are not read as they were written, over all patterns."""
    sizes = [min(_CHUNK_WORDS, words - begin) for begin in range(0, words, _CHUNK_WORDS)]
    chunks = [torch.empty(size, dtype=torch.int64, device=device) for size in sizes]
    wrong = 0
    for pattern in _PATTERNS:
        for chunk in chunks:
            chunk.fill_(pattern)
        wrong += sum(int((chunk != pattern).sum()) for chunk in chunks)
    for chunk, own in _with_addresses(torch, device, chunks):
        chunk.copy_(own)
    wrong += sum(int((chunk != own).sum()) for chunk, own in _with_addresses(torch, device, chunks))
    return wrong


def _with_addresses(torch: Any, device: Any, chunks: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Yields each chunk with a different value for every word."""
    begin = 0
    for chunk in chunks:
        yield chunk, torch.arange(begin, begin + len(chunk), dtype=torch.int64, device=device)
        begin += len(chunk)


def wrong_products(torch: Any, device: Any, *, size: int, rounds: int) -> str:
    """Returns a description of a wrong product; empty if all are right."""
    generator = torch.Generator().manual_seed(size)
    left, right = (
        torch.randint(-_FACTOR_MAX, _FACTOR_MAX + 1, (size, size), generator=generator, dtype=torch.float32)
        for _ in range(2)
    )
    expected = (left @ right).to(device)
    left, right = left.to(device), right.to(device)
    for number in range(rounds):
        if not torch.equal(left @ right, expected):
            return f"product {number + 1} of {rounds} in float32 is not the CPU's"
    left, right = left.bfloat16(), right.bfloat16()
    expected = left @ right
    for number in range(rounds):
        if not torch.equal(left @ right, expected):
            return f"product {number + 1} of {rounds} in bfloat16 is not the first one"
    return ""
