"""Checks whether a node may be used again after a repair: runs checks, each in a separate process, and
reports.

In: the names of checks.
Out: a table for people, a report for the controller.
Touches: the node's devices and processes.
"""
