"""Finds out which checkpoint of a directory is complete: a reader for each format, scan, choice. Runs in the
scan pod.

In: a mounted directory, and the job's annotations.
Out: a ScanResult, each verdict with its reason.
Touches: files below the mounted directory. Imports no other room, so that the scan pod starts fast.

A reader looks at names, sizes, headers, indexes and pickles, and never at the data of tensors. It imports
nothing heavy.
"""

from __future__ import annotations

from typing import Protocol

from recover.checkpoints.accelerate import Accelerate
from recover.checkpoints.deepspeed import DeepSpeed
from recover.checkpoints.folder import Folder
from recover.checkpoints.generic import Generic
from recover.checkpoints.hf_trainer import HfTrainer
from recover.checkpoints.lightning import Lightning
from recover.checkpoints.megatron_torch import MegatronTorch
from recover.checkpoints.megatron_torch_dist import MegatronTorchDist
from recover.checkpoints.orbax import Orbax
from recover.checkpoints.paddle import Paddle
from recover.checkpoints.paddlenlp import PaddleNlp
from recover.checkpoints.rekindle_sharded import RekindleSharded
from recover.checkpoints.scan_result import Verdict
from recover.checkpoints.torch_dcp import TorchDcp
from recover.checkpoints.torch_save import TorchSave

__all__ = ["READERS", "Reader"]


class Reader(Protocol):
    """One checkpoint format. Both methods may raise only DamagedError, with the reason, and OutOfTimeError,
    which the Folder raises. scan.py also handles the errors ODD of folder.py."""

    name: str

    def recognises(self, folder: Folder) -> bool:
        """Whether some file has a name of this format, also if the checkpoint is only half written."""

    def read(self, folder: Folder, step: int) -> Verdict:
        """Returns the verdict: complete if everything that a resume at `step` needs is present."""


READERS: tuple[Reader, ...] = (
    RekindleSharded(),
    Lightning(),
    MegatronTorch(),
    MegatronTorchDist(),
    DeepSpeed(),
    TorchDcp(),
    Orbax(),
    PaddleNlp(),
    Paddle(),
    HfTrainer(),
    Accelerate(),
    TorchSave(),
    Generic(),
)
"""The formats, in the order in which they are tried. A new format is one file and its line here."""
