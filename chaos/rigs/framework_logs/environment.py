"""`python -m chaos.rigs.framework_logs.environment`: creates the environments in which the trainings run.

Each is a layer above the environment of chaos.rigs.torch_training or chaos.rigs.paddle_training, which the
command creates, too. The layers alone cost up to 1 GB to download, and need 2.5 GB of disk.
"""

from __future__ import annotations

from chaos.processes.locked_environment import LockedEnvironment
from chaos.rigs.paddle_training.environment import PADDLE
from chaos.rigs.torch_training.environment import TORCH

__all__ = ["PADDLENLP", "TORCH_FRAMEWORKS"]

_COMMAND, _COST = "python -m chaos.rigs.framework_logs.environment", "1 GB to fetch"

TORCH_FRAMEWORKS = LockedEnvironment(
    name="torch-frameworks", command=_COMMAND, cost=_COST, below=TORCH, builders=("setuptools",)
)
PADDLENLP = LockedEnvironment(
    name="paddlenlp",
    command=_COMMAND,
    cost=_COST,
    below=PADDLE,
    builders=("setuptools", "setuptools-scm", "vcs-versioning", "packaging"),
)

if __name__ == "__main__":
    raise SystemExit(TORCH_FRAMEWORKS.main() or PADDLENLP.main())
