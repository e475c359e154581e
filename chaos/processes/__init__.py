"""Child processes that must not outlive us, and virtual environments from locks.

In: commands and locks.
Out: processes and interpreters.
Touches: processes, files, the package index.
"""
