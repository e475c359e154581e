"""Resets the GPUs of the node on which it runs: a step of a repair.

In: the devices that the repair names.
Out: a report for the controller.
Touches: the node's nvidia-smi and /proc.
"""
