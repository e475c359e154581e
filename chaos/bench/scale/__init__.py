"""`rekindle bench scale`: measures what the size of a cluster costs the controller.

In: the numbers of nodes, pods and ranks.
Out: figures for each size, and how each of them grows.
Touches: nothing with `--in-process`; otherwise a throwaway API server and controllers that the bench starts.
"""
