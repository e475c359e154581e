"""What agent, repair step and controller say to each other: NodeHealth, faults, reports, names of kinds.

In: nothing.
Out: structs, enums, and `key()` for the names of labels.
Touches: nothing: pure.
"""
