"""Plays a scenario from its file to its verdict, on a stage of real daemons. The demo is one of the
scenarios.

In: YAML.
Out: a verdict and its timeline.
Touches: processes, files, loopback.
"""
