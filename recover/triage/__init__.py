"""Turns diagnoses into a plan: what Rekindle may do, and what it writes about nodes, Incidents, spares and
new Recoveries.

In: World, settings, time.
Out: Plan: writes, reasons, and the time of the next reconcile.
Touches: nothing: pure. guard.py decides about each quarantine and each restart.
"""
