"""The controller as a process: observes, asks the pure rooms, executes; loops, metrics, probes, the webhook.

In: objects and settings.
Out: writes, each with its precondition; metrics and logs.
Touches: everything below it.
"""
