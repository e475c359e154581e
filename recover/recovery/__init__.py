"""A running Recovery, phase by phase: stop, fence, choose, resume, verify; its scan pod, costs and expiry.

In: one Recovery, World, settings, time.
Out: Plan: the phase first, then its acts.
Touches: nothing: pure.
"""
