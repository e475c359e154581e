"""Faults on purpose: an in-memory cluster, real training processes, scenarios with a verdict, the demo."""
