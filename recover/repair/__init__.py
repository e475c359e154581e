"""Reset, reboot, validate, return, or hand to a person: what happens to a node after its quarantine. Pure.

plan.py begins and ends repairs, waiting.py and working.py carry them through their phases; state.py is what
the Incident keeps of them.
"""
