"""The controller as a process: it observes, calls the pure rooms, and executes. Contains the loops, the
metrics, the probes and the webhook.

In: objects and settings.
Out: writes, each with its precondition; metrics and logs.
Touches: everything below it.
"""
