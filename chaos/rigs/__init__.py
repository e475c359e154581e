"""Real frameworks: torchrun soak, Paddle, and the logs that frameworks print. Apart from the simulator.

In: locked environments.
Out: logs, verdicts of a soak.
Touches: processes, files; each program runs with its environment's Python.
"""
