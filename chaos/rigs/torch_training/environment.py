"""`python -m chaos.rigs.torch_training.environment`: creates the virtual environment in which train.py runs.

The command downloads some 2.5 GB, which need 4.2 GB of disk, because torch cannot be loaded without CUDA's
libraries.
"""

from __future__ import annotations

from chaos.processes.locked_environment import LockedEnvironment

__all__ = ["TORCH"]

TORCH = LockedEnvironment(
    name="torch", command="python -m chaos.rigs.torch_training.environment", cost="2.5 GB to fetch"
)

if __name__ == "__main__":
    raise SystemExit(TORCH.main())
