"""`python -m chaos.rigs.paddle_training.environment`: creates the virtual environment in which train.py runs.

The command downloads PaddlePaddle's CPU wheel and its dependencies: some 210 MB, which need 870 MB of disk.
"""

from __future__ import annotations

from chaos.processes.locked_environment import LockedEnvironment

__all__ = ["PADDLE"]

PADDLE = LockedEnvironment(
    name="paddle", command="python -m chaos.rigs.paddle_training.environment", cost="210 MB to fetch"
)

if __name__ == "__main__":
    raise SystemExit(PADDLE.main())
