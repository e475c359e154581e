"""Runs a Recovery, phase by phase: stop, fence, choose, resume, verify; with its scan pod, costs and expiry.

In: one Recovery, World, settings, time.
Out: Plan: the phase first, then its actions.
Touches: nothing: pure.
"""
