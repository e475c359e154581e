"""Models of the controllers that create pods and clean up: jobs, scheduler, node lifecycle, garbage
collector.

In: changes in the store.
Out: writes to the store.
Touches: the simulated API only.
"""
