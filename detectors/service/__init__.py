"""What a daemon needs besides its work: settings, metrics, probes, clocks, and giving up rights.

In: a settings file, and what the agent counts.
Out: settings, and pages for probes and scrapes.
Touches: files, sockets, prctl, the environment.
"""
