"""What a simulation consists of: machines, agents, jobs, people, and the truth of what happened.

In: a setup.
Out: objects and truth.
Touches: virtual time only.
"""
