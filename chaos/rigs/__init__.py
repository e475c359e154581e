"""Runs real frameworks, separate from the simulator: a torchrun soak, Paddle, and the logs that frameworks
print.

In: locked environments.
Out: logs, verdicts of a soak.
Touches: processes, files; each program runs with its environment's Python.
"""
