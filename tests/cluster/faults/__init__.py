"""Faults of every kind on real nodes, one test each, on one cluster: each test leaves it as it found it."""
