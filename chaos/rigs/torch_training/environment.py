"""`python -m chaos.rigs.torch_training.environment`: makes the virtual environment that train.py runs in.

Some 2.5 GB are fetched and 4.2 GB kept, since torch is not loaded without CUDA's libraries.
"""

from __future__ import annotations

from chaos.processes.locked_environment import LockedEnvironment

__all__ = ["TORCH"]

TORCH = LockedEnvironment(
    name="torch", command="python -m chaos.rigs.torch_training.environment", cost="2.5 GB to fetch"
)

if __name__ == "__main__":
    raise SystemExit(TORCH.main())
