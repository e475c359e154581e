"""`rekindle demo`, `rekindle chaos` and `rekindle bench`.

In: arguments.
Out: an exit status.
Touches: everything below it.
"""
