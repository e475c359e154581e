"""Repairs a node after its quarantine: reset, reboot, validate, return to service, or hand over to a person.

In: World, settings, time, templates of the steps.
Out: Plan.
Touches: pure, except for means.py, which reads templates at the start.

mend.py begins and ends repairs, waiting.py and working.py carry them through their phases.
"""
