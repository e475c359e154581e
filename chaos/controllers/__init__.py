"""Models of the controllers that make pods and keep house: jobs, scheduler, node lifecycle, garbage.

In: changes in the store.
Out: writes to the store.
Touches: the simulated API only.
"""
