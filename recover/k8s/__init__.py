"""What we read and write of Kubernetes: kinds, bodies, pods, identities, quantities, durations, limits.

In: plain data and structs.
Out: structs, and bodies as dicts.
Touches: nothing: pure. Knows no kind of ours but by name.
"""
