"""Defines the objects by which agent, repair step and controller communicate: NodeHealth, faults, reports,
names of kinds.

In: nothing.
Out: structs, enums, and `key()` for the names of labels.
Touches: nothing: pure.
"""
