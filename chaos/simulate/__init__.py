"""Random scripts of faults against the production loops in virtual time: drawing, playing, shrinking.

In: a seed or a script.
Out: what happened, and what was violated.
Touches: virtual time; processes for many seeds.
"""
