"""What happens to a node after its quarantine: reset, reboot, validate, return, or a person.

In: World, settings, time, templates of the steps.
Out: Plan.
Touches: pure, but for means.py, which reads templates at the start.

mend.py begins and ends repairs, waiting.py and working.py carry them through their phases.
"""
