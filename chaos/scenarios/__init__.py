"""A scenario from its file to its verdict, on a stage of real daemons; the demo.

In: YAML.
Out: a verdict and its timeline.
Touches: processes, files, loopback.
"""
