"""Rung 2 of the test ladder: the production controller loops and agents' state on a virtual clock and the
in-memory cluster, with faults on top and the safety invariants checked after every write.
"""
