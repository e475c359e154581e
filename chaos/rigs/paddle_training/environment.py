"""`python -m chaos.rigs.paddle_training.environment`: makes the virtual environment that train.py runs in.

PaddlePaddle's CPU wheel and what it needs: some 210 MB are fetched and 870 MB kept.
"""

from __future__ import annotations

from chaos.processes.locked_environment import LockedEnvironment

__all__ = ["PADDLE"]

PADDLE = LockedEnvironment(
    name="paddle", command="python -m chaos.rigs.paddle_training.environment", cost="210 MB to fetch"
)

if __name__ == "__main__":
    raise SystemExit(PADDLE.main())
