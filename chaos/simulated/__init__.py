"""The parts of a simulation: machines, agents, jobs, people, and the truth of what happened.

In: a setup.
Out: objects and truth.
Touches: virtual time only.
"""
