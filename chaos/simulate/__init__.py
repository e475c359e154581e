"""Random scripts of faults against the production loops in virtual time. The room draws scripts, plays them,
and shrinks failing ones.

In: a seed or a script.
Out: the course of the run, and every violation.
Touches: virtual time; processes for many seeds.
"""
