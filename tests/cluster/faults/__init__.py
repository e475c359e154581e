"""Faults of every kind on real nodes, one test each, on one cluster. Each test leaves the cluster as it found
it."""
