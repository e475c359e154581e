"""`rekindle bench scale`: what the size of a cluster costs the controller.

In: how many nodes, pods and ranks.
Out: figures for each size, and how each of them grows.
Touches: in process nothing at all; else a throwaway API server and controllers that it starts.
"""
