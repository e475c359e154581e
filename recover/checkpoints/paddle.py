"""Reads checkpoints of paddle, which a training loop writes with paddle.save: the model (`.pdparams`) and the
optimizer.

    step-40/model.pdparams, step-40/model.pdopt      or, side by side,      40.pdparams, 40.pdopt

Every such file is one pickle and is written in place under its final name, so the reader follows each pickle
to its end. Nothing says how many files there should be. A checkpoint counts as complete with a model and an
optimizer at least, since a save that was interrupted between the two leaves a model that looks complete. A
training that keeps everything in one file uses the format `generic`.
Source: paddle/framework/io.py, checked against 3.3; hapi/model.py, Model.save.
"""

from __future__ import annotations

from recover.checkpoints.folder import Folder
from recover.checkpoints.pickle_end import pickle_bytes
from recover.checkpoints.scan_result import Verdict

__all__ = ["Paddle"]

MODEL, OPTIMIZER = ".pdparams", ".pdopt"
TRAINER_STATE = "trainer_state.json"
"""Name of a file that only PaddleNLP writes. With this file the checkpoint is PaddleNLP's, which has more
rules."""

_SUFFIXES = (MODEL, OPTIMIZER, ".pdscaler", ".pdstates")


class Paddle:
    name = "paddle"

    def recognises(self, folder: Folder) -> bool:
        ours = any(name.endswith((MODEL, OPTIMIZER)) for name in folder.files)
        return ours and TRAINER_STATE not in folder.files

    def read(self, folder: Folder, step: int) -> Verdict:
        del step  # the format does not record it
        names = sorted(name for name in folder.files if name.endswith(_SUFFIXES))
        total_bytes = sum(pickle_bytes(folder, name) for name in names)
        for suffix, what in ((MODEL, "model"), (OPTIMIZER, "optimizer")):
            if not any(name.endswith(suffix) for name in names):
                reason = f"no file {suffix}: the state of the {what} was not saved, or not yet"
                return Verdict(complete=False, bytes=total_bytes, reason=reason)
        return Verdict(complete=True, bytes=total_bytes)
