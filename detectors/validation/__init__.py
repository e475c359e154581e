"""Whether a node may be used again after a repair: checks, each in a process of its own, and their report.

In: the names of checks.
Out: a table for people, a report for the controller.
Touches: the node's devices and processes.
"""
