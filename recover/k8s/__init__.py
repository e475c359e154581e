"""What we read and write of Kubernetes itself: kinds, bodies, patches, pod templates, quantities, durations.

In: plain data and structs.
Out: structs, and bodies as dicts.
Touches: nothing: pure. Knows no kind of ours but by name.
"""
