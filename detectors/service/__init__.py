"""Provides the parts of a daemon other than its work: settings, metrics, probes, clocks, and the removal of
permissions.

In: a settings file, and what the agent counts.
Out: settings, and pages for probes and scrapes.
Touches: files, sockets, prctl, the environment.
"""
