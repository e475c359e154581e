"""Resets the GPUs of the node on which it runs: `rekindle reset-devices`, a step of a repair."""
