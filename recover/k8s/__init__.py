"""Decodes and builds the parts of Kubernetes objects that Rekindle needs: kinds, bodies, pods, identities,
quantities, durations, limits.

In: plain data and structs.
Out: structs, and bodies as dicts.
Touches: nothing: pure. It knows our own kinds only by name.
"""
