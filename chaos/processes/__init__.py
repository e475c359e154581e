"""Child processes that must not outlive their parent, and virtual environments from locks.

In: commands and locks.
Out: processes and interpreters.
Touches: processes, files, the package index.
"""
