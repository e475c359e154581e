"""Names what will not work in an installation, or when a job fails: one function for each check.

In: a job as it is or as its manifest says; an installation.
Out: findings, worst first, and their story.
Touches: look.py, and inspect.py, reader.py and rules.py of installation/ read the API; all else is pure.
"""
