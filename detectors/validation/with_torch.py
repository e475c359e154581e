"""Loads PyTorch with CUDA, if the image has it. PyTorch is no dependency of Rekindle, so Rekindle's own image
is small."""

from __future__ import annotations

from typing import Any

from detectors.validation.node_check import CannotRunError

__all__ = ["cuda_torch"]


def cuda_torch() -> Any:
    """Returns the module. Raises `CannotRunError`, which says what is missing."""
    try:
        import torch  # noqa: PLC0415  only here: it is optional, and takes seconds
    except (ImportError, OSError) as error:  # OSError: one of its libraries cannot be loaded
        raise CannotRunError(f"PyTorch cannot be loaded in this image: {error}") from error
    if not torch.backends.cuda.is_built():
        raise CannotRunError(f"PyTorch {torch.__version__} of this image is built without CUDA")
    if not torch.cuda.is_available():
        raise CannotRunError(f"PyTorch {torch.__version__} finds no GPU that it can use")
    return torch
